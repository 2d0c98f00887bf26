//! Transactions of Kafka's producers (version 11).
//!
//! ```text
//! TransactionsV11, ids x TransactionalIdV11 by name, producers x ParticipationV11 by producer id,
//! partitions x PartitionTransactionsV11 by topic and number
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use base::{PartitionId, ShardId, TopicId};

use super::{inconsistent, put, take};
use crate::command::{CommitOffset, ProducerKey};
use crate::entry::DecodeError;
use crate::rows::Rows;
use crate::rows::transactions::Transactions;
use crate::rows::transactions::ids::{
    EndedTransaction, FormerProducer, OpenTransaction, TransactionPhase, TransactionalId,
};
use crate::rows::transactions::participation::Participation;
use crate::rows::transactions::partition::{AbortedRange, PartitionTransactions};
use crate::rows::transactions::pending::PendingOffsets;
use crate::stored::{
    ParticipationV11, PartitionTransactionsV11, PendingOffsetV11, TransactionPhaseV11,
    TransactionalIdV11, TransactionsV11,
};

pub(super) fn encode(transactions: &Transactions, mut bytes: Vec<u8>) -> Vec<u8> {
    let Transactions { ids, participations, partitions, .. } = transactions;
    let counts = TransactionsV11 {
        next_number: ids.next_number(),
        ids: ids.len() as u64,
        producers: participations.len() as u64,
        partitions: partitions.len() as u64,
    };
    bytes = put(bytes, &counts);
    for (id, it) in ids.iter() {
        bytes = put(bytes, &stored_id(id, it));
    }
    for (producer, it) in participations.iter() {
        let pending = it.pending.iter().map(|(group, offsets)| {
            (Cow::Borrowed(&**group), offsets.map(PendingOffsetV11::from).collect())
        });
        let stored = ParticipationV11 {
            producer,
            epoch: it.epoch,
            home: it.home.0,
            number: it.number,
            is_open: it.is_open,
            partitions: it.partitions.iter().map(pair).collect(),
            pending: pending.collect(),
            updated_ms: it.updated_ms,
        };
        bytes = put(bytes, &stored);
    }
    for (partition, it) in partitions {
        let aborted = it.aborted().iter().map(|it| (it.producer, it.first, it.last)).collect();
        let (topic, index) = pair(partition);
        let open = it.open().to_vec();
        bytes = put(bytes, &PartitionTransactionsV11 { topic, index, open, aborted });
    }
    bytes
}

pub(super) fn decode(rows: &mut Rows, body: &mut &[u8]) -> Result<(), DecodeError> {
    let counts: TransactionsV11 = take(body, "transactions")?;
    let mut transactions = Transactions::default();
    transactions.ids.restore_number(counts.next_number);
    for _ in 0..counts.ids {
        let stored: TransactionalIdV11<'_> = take(body, "a transactional id")?;
        let id = stored.id.clone().into_owned();
        if !transactions.ids.restore(&id, restored_id(stored)) {
            return Err(inconsistent("transactional id", id));
        }
    }
    for _ in 0..counts.producers {
        let stored: ParticipationV11<'_> = take(body, "a producer in a transaction")?;
        let producer = stored.producer;
        let restored = restored_participation(stored);
        if !restored.is_some_and(|it| transactions.participations.restore(producer, it)) {
            return Err(inconsistent("producer in a transaction", producer));
        }
    }
    for _ in 0..counts.partitions {
        let PartitionTransactionsV11 { topic, index, open, aborted } =
            take(body, "transactions of a partition")?;
        let partition = PartitionId::new(TopicId(topic), index);
        let range = |(producer, first, last)| AbortedRange { producer, first, last };
        let aborted: Vec<_> = aborted.into_iter().map(range).collect();
        transactions.aborted += aborted.len();
        let restored = Arc::new(PartitionTransactions::new(open, aborted));
        if transactions.partitions.insert(partition, restored).is_some() {
            return Err(inconsistent("transactions of partition", partition));
        }
    }
    let next = |partition| rows.partition(partition).map(|it| it.next_offset());
    if transactions.are_unused() || !transactions.is_sound(next) {
        return Err(inconsistent("transactions", counts.ids));
    }
    rows.transactions = transactions;
    Ok(())
}

fn pair(partition: &PartitionId) -> (u32, u32) {
    (partition.topic.0, partition.index)
}

fn partition((topic, index): (u32, u32)) -> PartitionId {
    PartitionId::new(TopicId(topic), index)
}

fn stored_key(key: ProducerKey) -> (i64, i16) {
    (key.id, key.epoch)
}

fn restored_key((id, epoch): (i64, i16)) -> ProducerKey {
    ProducerKey { id, epoch }
}

fn stored_id<'a>(id: &'a str, it: &TransactionalId) -> TransactionalIdV11<'a> {
    let phase = match &it.phase {
        TransactionPhase::Empty => TransactionPhaseV11::Empty,
        TransactionPhase::Ongoing(open) => TransactionPhaseV11::Ongoing {
            number: open.number,
            started_ms: open.started_ms,
            shards: open.shards.iter().map(|shard| shard.0).collect(),
            added: open.added.iter().map(pair).collect(),
        },
        TransactionPhase::Ended(ended) => TransactionPhaseV11::Ended {
            number: ended.number,
            commit: ended.commit,
            messages: ended.messages.iter().map(|(shard, number)| (shard.0, *number)).collect(),
        },
    };
    TransactionalIdV11 {
        id: Cow::Borrowed(id),
        producer: stored_key(it.producer),
        former: it.former.map(|former| (stored_key(former.producer), former.ended)),
        timeout_ms: it.timeout_ms,
        phase,
        updated_ms: it.updated_ms,
    }
}

fn restored_id(stored: TransactionalIdV11<'_>) -> TransactionalId {
    let phase = match stored.phase {
        TransactionPhaseV11::Empty => TransactionPhase::Empty,
        TransactionPhaseV11::Ongoing { number, started_ms, shards, added } => {
            let shards: BTreeSet<_> = shards.into_iter().map(ShardId).collect();
            let added = added.into_iter().map(partition).collect();
            TransactionPhase::Ongoing(OpenTransaction { number, started_ms, shards, added })
        }
        TransactionPhaseV11::Ended { number, commit, messages } => {
            let messages = messages.into_iter().map(|(shard, number)| (ShardId(shard), number));
            let messages = messages.collect();
            TransactionPhase::Ended(EndedTransaction { number, commit, messages })
        }
    };
    let former = |(key, ended)| FormerProducer { producer: restored_key(key), ended };
    TransactionalId {
        producer: restored_key(stored.producer),
        former: stored.former.map(former),
        timeout_ms: stored.timeout_ms,
        phase,
        updated_ms: stored.updated_ms,
    }
}

/// `None`: an offset is there twice.
fn restored_participation(stored: ParticipationV11<'_>) -> Option<Participation> {
    let mut pending = PendingOffsets::default();
    for (group, offsets) in stored.pending {
        let group: Arc<str> = Arc::from(&*group);
        for offset in offsets {
            if !pending.restore(&group, offset.into()) {
                return None;
            }
        }
    }
    Some(Participation {
        epoch: stored.epoch,
        home: ShardId(stored.home),
        number: stored.number,
        is_open: stored.is_open,
        partitions: stored.partitions.into_iter().map(partition).collect(),
        pending,
        updated_ms: stored.updated_ms,
    })
}

impl From<&CommitOffset> for PendingOffsetV11 {
    fn from(commit: &CommitOffset) -> Self {
        Self {
            topic: commit.partition.topic.0,
            partition: commit.partition.index,
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            metadata: commit.metadata.clone(),
            expire_ms: commit.expire_ms,
        }
    }
}

impl From<PendingOffsetV11> for CommitOffset {
    fn from(stored: PendingOffsetV11) -> Self {
        Self {
            partition: PartitionId::new(TopicId(stored.topic), stored.partition),
            offset: stored.offset,
            leader_epoch: stored.leader_epoch,
            metadata: stored.metadata,
            expire_ms: stored.expire_ms,
        }
    }
}
