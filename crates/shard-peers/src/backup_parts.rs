//! Backup steps requested by another node, and the parts sent in reply.

use crate::limits::BACKUPS_SENT_MAX;
use base::{Level, ShardId};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use shard::error::Unavailable;

/// Reason why a piece of a backup is not sent. Travels between nodes: a variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum BackupError {
    #[error(
        "{BACKUPS_SENT_MAX} backups are taken from this node already: ask another one, or wait"
    )]
    TooMany,
    #[error(
        "this node knows of no such backup: it was started again, or nothing was asked for for a minute"
    )]
    Unknown,
    #[error("there is no {0} in the backup")]
    NoShard(ShardId),
    #[error("the backup has no such place")]
    NoSuchPlace,
    #[error(
        "the backup is given up: more than 1 GiB of the log of {0} would have to be kept for it; write it faster"
    )]
    TooSlow(ShardId),
    #[error(
        "the backup is given up: the log of {0} goes on elsewhere, since this node was sent a snapshot by another one"
    )]
    Replaced(ShardId),
    #[error("{shard} cannot be read: {what}")]
    Unreadable { shard: ShardId, what: String },
    #[error(
        "partitions moved to other shards meanwhile: take the backup again once `postroad cluster status`, or `postroad \
         topic move`, says that all are there"
    )]
    Moving,
    #[error(
        "this node has nothing of {shard}, and none of the nodes {nodes:?} that have it sends it: {why}"
    )]
    Lacking { shard: ShardId, nodes: Vec<u32>, why: String },
    #[error("no node says how far the shards are: {0}")]
    Unavailable(#[from] Unavailable),
}

base::levels!(BackupError {
    Level::REPLICAS => TooMany | Unknown | NoShard | NoSuchPlace | TooSlow | Replaced | Unreadable | Moving
        | Lacking | Unavailable;
});

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BackupStep {
    Shard,
    Section {
        section: u8,
        from: u64,
    },
    Segment {
        segment: u64,
        row: u64,
    },
    Log {
        from: u64,
    },
    /// Replied to once the log is applied up to this index.
    Applied {
        index: u64,
    },
    End,
}

base::levels!(BackupStep {
    Level::REPLICAS => Shard | Section | Segment | Log | Applied | End;
});

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BackupPart {
    Shard {
        /// Term, leader, index.
        id: (u64, u64, u64),
        /// Bytes and checksum of each section.
        sections: [(u64, u32); 4],
        segments: u64,
    },
    /// `next`: for a segment, the row to request next.
    Bytes {
        next: Option<u64>,
    },
    Log {
        next: u64,
        more: bool,
    },
    Done,
}

base::levels!(BackupPart {
    Level::REPLICAS => Shard | Bytes | Log | Done;
});

/// Sends the backup parts that another node requests.
pub trait SendsBackups: Send + Sync + std::fmt::Debug {
    /// `None` once the broker is gone.
    fn back_up_for_another(
        &self,
        backup: u64,
        shard: ShardId,
        step: BackupStep,
    ) -> BoxFuture<'static, Option<Result<(BackupPart, Bytes), BackupError>>>;
}
