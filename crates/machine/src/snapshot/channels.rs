//! Channels of a shard (version 5).
//!
//! ```text
//! ChannelsV5, outboxes x (OutboxV5, PartitionV1, its MessageV5s) by shard, sources x ExpectedV5 by shard
//! ```

use std::sync::Arc;

use base::limits::SHARDS_MAX;
use base::{PartitionId, ShardId, SharedMap, TopicId};

use super::{inconsistent, put, take};
use crate::command::SentBatch;
use crate::entry::DecodeError;
use crate::rows::channels::{Channels, Outbox, bytes_of};
use crate::rows::partition::Partition;
use crate::stored::{ChannelsV5, ExpectedV5, MessageV5, OutboxV5, PartitionV1, SentBatchV5};

pub(super) fn encode(channels: &Channels, mut bytes: Vec<u8>) -> Vec<u8> {
    let (outboxes, sources) = (channels.outboxes.len() as u64, channels.expected.len() as u64);
    bytes = put(bytes, &ChannelsV5 { outboxes, sources });
    for (to, outbox) in channels.outboxes() {
        bytes = put(bytes, &OutboxV5 { to: to.0, messages: outbox.len() as u64 });
        bytes = put(bytes, &outbox.partition.stored());
        for (number, batches) in outbox.messages_from(0) {
            let batches = batches.iter().map(SentBatchV5::from).collect();
            bytes = put(bytes, &MessageV5 { number, batches });
        }
    }
    for (from, &number) in &channels.expected {
        bytes = put(bytes, &ExpectedV5 { from: from.0, number });
    }
    bytes
}

pub(super) fn decode(own: ShardId, body: &mut &[u8]) -> Result<Channels, DecodeError> {
    let stored: ChannelsV5 = take(body, "channels")?;
    let mut channels = Channels::default();
    let is_other = |shard: u32| ShardId(shard) != own && (1..=SHARDS_MAX).contains(&shard);
    for _ in 0..stored.outboxes {
        let OutboxV5 { to, messages: count } = take(body, "an outbox")?;
        let partition = Partition::from(take::<PartitionV1>(body, "a channel")?);
        let (mut messages, mut bytes) = (SharedMap::default(), 0_u64);
        for _ in 0..count {
            let MessageV5 { number, batches } = take(body, "a message")?;
            let batches: Arc<[SentBatch]> = batches.into_iter().map(SentBatch::from).collect();
            bytes = bytes.saturating_add(bytes_of(&batches));
            if messages.insert(number, batches).is_some() {
                return Err(inconsistent("message", number));
            }
        }
        let outbox = Outbox { partition, messages, bytes };
        let is_new = !channels.outboxes.contains_key(&ShardId(to));
        if !is_new || !is_other(to) || !outbox.is_sound() {
            return Err(inconsistent("outbox", to));
        }
        channels.outboxes.insert(ShardId(to), Arc::new(outbox));
    }
    for _ in 0..stored.sources {
        let ExpectedV5 { from, number } = take(body, "a source")?;
        let is_new = channels.expected.insert(ShardId(from), number).is_none();
        if !is_new || !is_other(from) || number > i64::MAX as u64 {
            return Err(inconsistent("source", from));
        }
    }
    if channels.are_unused() {
        return Err(inconsistent("channels", "without any"));
    }
    Ok(channels)
}

impl From<&SentBatch> for SentBatchV5 {
    fn from(batch: &SentBatch) -> Self {
        let targets = batch.targets.iter().map(|it| (it.topic.0, it.index)).collect();
        Self { bytes: batch.bytes, targets }
    }
}

impl From<SentBatchV5> for SentBatch {
    fn from(stored: SentBatchV5) -> Self {
        let targets = stored.targets.into_iter();
        let targets = targets.map(|(topic, index)| PartitionId::new(TopicId(topic), index));
        Self { bytes: stored.bytes, targets: targets.collect() }
    }
}
