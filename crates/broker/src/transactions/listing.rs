//! Transactions that this node coordinates, for operators and for Kafka's tools.

use base::{Offset, PartitionId, ShardId};
use machine::rows::transactions::ids::{TransactionPhase, TransactionalId};
use machine::{ProducerKey, Rows};
use shard::error::Unavailable;

use crate::broker::Broker;

/// State of a transactional id, as Kafka names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionState {
    Empty,
    Ongoing,
    /// Decided, and some shards have not ended their parts yet.
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

/// A transactional id whose home this node leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownTransaction {
    pub id: String,
    pub producer: ProducerKey,
    pub state: TransactionState,
    pub timeout_ms: u32,
    /// Begin of the open transaction.
    pub started_ms: Option<i64>,
    pub updated_ms: i64,
    /// Partitions with records of the open transaction, as far as this node knows.
    pub partitions: Vec<PartitionId>,
}

impl TransactionState {
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }
}

impl Broker {
    /// Returns a transactional id that this node coordinates. `None`: there is no such id.
    pub fn transaction(&self, id: &str) -> Result<Option<KnownTransaction>, Unavailable> {
        let home = self.home_of(id);
        if home.serves_in().is_none() {
            return Err(Unavailable::NotLeader);
        }
        let known = {
            let rows = home.shard.rows();
            rows.transactions().ids().get(id).map(|it| described(&rows, id, it))
        };
        Ok(known.map(|known| self.with_partitions(known)))
    }

    /// Returns the transactional ids that this node coordinates, without their partitions.
    pub fn transactions(&self) -> Vec<KnownTransaction> {
        let mut found = Vec::new();
        for home in self.shards_with_rows().iter().filter(|shard| shard.serves_in().is_some()) {
            let rows = home.shard.rows();
            let ids = rows.transactions().ids().iter();
            found.extend(ids.map(|(id, it)| described(&rows, id, it)));
        }
        found
    }

    fn with_partitions(&self, mut known: KnownTransaction) -> KnownTransaction {
        if known.state == TransactionState::Ongoing {
            for shard in self.shards_with_rows() {
                let rows = shard.shard.rows();
                let participation = rows.transactions().participation(known.producer.id);
                let open = participation.filter(|it| it.is_open);
                known.partitions.extend(open.into_iter().flat_map(|it| &it.partitions));
            }
            known.partitions.sort_unstable();
            known.partitions.dedup();
        }
        known
    }
}

fn described(rows: &Rows, id: &str, it: &TransactionalId) -> KnownTransaction {
    let state = match &it.phase {
        TransactionPhase::Empty => TransactionState::Empty,
        TransactionPhase::Ongoing(_) => TransactionState::Ongoing,
        TransactionPhase::Ended(ended) => {
            let is_missing = |message: &(ShardId, Offset)| is_missing(rows, *message);
            match (ended.messages.iter().any(is_missing), ended.commit) {
                (true, true) => TransactionState::PrepareCommit,
                (true, false) => TransactionState::PrepareAbort,
                (false, true) => TransactionState::CompleteCommit,
                (false, false) => TransactionState::CompleteAbort,
            }
        }
    };
    let open = it.ongoing();
    KnownTransaction {
        id: id.to_owned(),
        producer: it.producer,
        state,
        timeout_ms: it.timeout_ms,
        started_ms: open.map(|open| open.started_ms),
        updated_ms: it.updated_ms,
        partitions: open
            .into_iter()
            .flat_map(|open| &open.added)
            .copied()
            .filter(is_of_topic)
            .collect(),
    }
}

/// Whether it stands for no offsets of groups.
fn is_of_topic(partition: &PartitionId) -> bool {
    partition.as_channel().is_none()
}

/// Whether the other shard lacks a message, as far as the log says.
pub(super) fn is_missing(rows: &Rows, (to, number): (ShardId, Offset)) -> bool {
    rows.channels().outbox(to).is_some_and(|outbox| outbox.acknowledged() <= number)
}
