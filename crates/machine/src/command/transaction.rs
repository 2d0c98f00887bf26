//! Changes of transactions of Kafka's producers ([ADR 0032]).
//!
//! The *home* of a transactional id is a shard: its log has the state of the id, and decides. Every shard in which the
//! transaction writes, or has pending offsets, is a *participant*.
//!
//! [ADR 0032]: ../../../docs/adr/0032-the-home-of-a-transactional-id-decides.md

use base::{Level, PartitionId, ShardId};
use serde::{Deserialize, Serialize};

use super::CommitOffset;

/// A producer id with an epoch, as Kafka's clients have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ProducerKey {
    pub id: i64,
    pub epoch: i16,
}

/// Its ordinals and fields are persisted, as those of [`super::Command`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TransactionCommand {
    /// At home: the next producer of the id (InitProducerId). Refused while a transaction is open, which `End` aborts.
    /// Returns [`crate::Outcome::Producer`].
    Initialize {
        id: String,
        /// The caller's producer, if it has one (KIP-360): only the current or the former one gets the next.
        expect: Option<ProducerKey>,
        /// Producer id of a new transactional id, or of one whose epochs are used up. -1: none.
        fresh: i64,
        timeout_ms: u32,
    },
    /// At home: a shard takes part in the id's transaction, which begins with its first participant. If the shard is the
    /// home itself, it opens here as by `Open`. Returns [`crate::Outcome::Joined`].
    Join {
        id: String,
        producer: ProducerKey,
        shard: Option<ShardId>,
        /// Partitions that the client registers (AddPartitionsToTxn before version 4): they begin the transaction.
        added: Vec<PartitionId>,
        /// The join requires that the client registered this partition, and begins no transaction (Produce of such a client).
        requires: Option<PartitionId>,
    },
    /// In a participant that is not the home: the producer may write with its epoch.
    Open {
        producer: ProducerKey,
        /// The home's number of the transaction.
        number: u64,
        home: ShardId,
    },
    /// In the home of a group, which participates: offsets that the end commits. Returns [`crate::Outcome::Committed`].
    Pending { producer: ProducerKey, group: String, offsets: Vec<CommitOffset> },
    /// At home: the decision. Only in a unit, with the markers of this shard's partitions, and a message with
    /// [`super::MessageCommand::EndTransaction`] for each other participant. Returns [`crate::Outcome::Producer`].
    End {
        id: String,
        producer: ProducerKey,
        commit: bool,
        cause: EndCause,
        /// As of `Initialize`.
        fresh: i64,
    },
    /// At home: forgets ids without an open transaction that were unused since before `before_ms`. Returns
    /// [`crate::Outcome::Expired`].
    Forget { ids: Vec<String>, before_ms: i64 },
}

base::levels!(TransactionCommand {
    Level::TRANSACTIONS => Initialize | Join | Open | Pending | End | Forget;
});

/// Why a transaction ends. It determines the epochs of the markers and of the next producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EndCause {
    /// EndTxn before version 5: the epoch stays.
    Client,
    /// EndTxn of a client that changes to the next epoch with each end (KIP-890).
    ClientWithNextEpoch,
    /// InitProducerId over an open transaction. The former producer's EndTxn must not pass for a repetition of the new
    /// producer's: the markers have the next epoch, and the new producer the one after it.
    Initialized { expect: Option<ProducerKey>, timeout_ms: u32 },
    /// The timeout has passed, or an operator aborts it: its producer is fenced.
    Expired,
}

base::levels!(EndCause {
    Level::TRANSACTIONS => Client | ClientWithNextEpoch | Initialized | Expired;
});

/// End of a transaction in a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndedPart {
    /// The producer, with the epoch of the markers: earlier ones are fenced from now on.
    pub producer: ProducerKey,
    pub number: u64,
    pub commit: bool,
}

impl TransactionCommand {
    /// Approximate size in an entry.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Initialize { id, .. } | Self::End { id, .. } => id.len() + 40,
            Self::Join { id, added, .. } => id.len() + 24 + added.len() * 8,
            Self::Open { .. } => 24,
            Self::Pending { group, offsets, .. } => {
                let of = |commit: &CommitOffset| 32 + commit.metadata.len();
                group.len() + offsets.iter().map(of).sum::<usize>()
            }
            Self::Forget { ids, .. } => ids.iter().map(|id| id.len() + 2).sum(),
        }
    }
}
