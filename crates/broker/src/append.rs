//! What a producer hands in and gets back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use base::{Offset, PartitionId};
use bytes::BytesMut;
use record::BatchHeader;
use tokio::sync::oneshot;

use crate::error::{AppendError, Unavailable};
use crate::record_ids::RecordIds;

/// One batch for one partition, or for several. The gateway has validated it: it is what its header
/// says, its checksum holds, and the topic's policy (size, timestamps, compression) has been applied.
#[derive(Debug)]
pub struct AppendBatch {
    pub partition: PartitionId,
    /// Further partitions that get the same records. The batch is written once, with a row for each
    /// of its partitions; each row is taken or refused by itself.
    pub also: Vec<PartitionId>,
    pub header: BatchHeader,
    /// The whole batch. Its base offset and leader epoch are written in place, so the bytes must
    /// be this batch's own.
    pub bytes: BytesMut,
    /// Only if its first record gets this offset: whoever read up to there knows that nothing
    /// came in between (optimistic concurrency).
    pub expect: Option<Offset>,
    /// The ids of its records if they were read already: a gateway reads those of batches that take
    /// long to unpack, because the sequencer must not wait for that. Only topics
    /// with `dedup.window.ms` need them.
    pub ids: Option<RecordIds>,
}

impl AppendBatch {
    /// A batch for one partition, wherever that ends.
    pub fn new(partition: PartitionId, header: BatchHeader, bytes: BytesMut) -> Self {
        Self { partition, also: Vec::new(), header, bytes, expect: None, ids: None }
    }

    /// How many results it is answered with.
    pub fn rows(&self) -> usize {
        1 + self.also.len()
    }

    /// Its partitions, in the order of its results.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        std::iter::once(self.partition).chain(self.also.iter().copied())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    pub base_offset: Offset,
    pub log_start: Offset,
    /// The batch was there already: a retry, answered with the offsets of the first try.
    pub duplicate: bool,
}

/// One answer for each row of each batch, in order.
pub(crate) type Appends = Vec<Result<Appended, AppendError>>;

/// Resolves, in the order of the batches and of each its rows, once all of the request is durable or
/// refused.
///
/// The request has its place in the order when this is made, not when it is awaited.
#[derive(Debug)]
pub struct AppendReply {
    rows: usize,
    reply: oneshot::Receiver<Appends>,
}

impl AppendReply {
    pub(crate) fn new(rows: usize, reply: oneshot::Receiver<Appends>) -> Self {
        Self { rows, reply }
    }
}

impl Future for AppendReply {
    type Output = Vec<Result<Appended, AppendError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let rows = self.rows;
        Pin::new(&mut self.reply).poll(context).map(|reply| {
            // The shard dropped the request without an answer: it is going down.
            reply.unwrap_or_else(|_| vec![Err(Unavailable::Stopping.into()); rows])
        })
    }
}
