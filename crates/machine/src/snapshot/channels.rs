//! Channels of a shard (version 5; version 10 with commands in messages, version 11 with ends of transactions).
//!
//! ```text
//! ChannelsV5, outboxes x (OutboxV5, PartitionV1, its MessageV5s) by shard, sources x ExpectedV5 by shard
//! in version 10 ChannelsV10 and MessageV10s in their places, and at the end FenceV10s by shard
//! ```

use std::sync::Arc;

use base::limits::SHARDS_MAX;
use base::{LeaseGroupId, PartitionId, ShardId, SharedMap, TopicId};

use super::{MESSAGE_COMMANDS_SINCE, inconsistent, put, take};
use crate::command::{
    EndedPart, GroupSettle, MessageCommand, Preparation, ProducerKey, SentBatch, SentMessage,
};
use crate::entry::DecodeError;
use crate::rows::channels::{Channels, Outbox};
use crate::rows::partition::Partition;
use crate::stored::{
    ChannelsV5, ChannelsV10, ExpectedV5, FenceV10, GroupSettleV10, MessageCommandV10, MessageV5,
    MessageV10, OutboxV5, PartitionV1, SentBatchV5,
};

pub(super) fn encode(channels: &Channels, version: u16, mut bytes: Vec<u8>) -> Vec<u8> {
    let (outboxes, sources) = (channels.outboxes.len() as u64, channels.expected.len() as u64);
    let fences = channels.fences.len() as u64;
    bytes = match version {
        MESSAGE_COMMANDS_SINCE.. => put(bytes, &ChannelsV10 { outboxes, sources, fences }),
        _ => put(bytes, &ChannelsV5 { outboxes, sources }),
    };
    for (to, outbox) in channels.outboxes() {
        bytes = put(bytes, &OutboxV5 { to: to.0, messages: outbox.len() as u64 });
        bytes = put(bytes, &outbox.partition.stored());
        for (number, message) in outbox.messages_from(0) {
            let batches = message.batches.iter().map(SentBatchV5::from).collect();
            let commands = message.commands.iter().map(MessageCommandV10::from).collect();
            bytes = match version {
                MESSAGE_COMMANDS_SINCE.. => put(bytes, &MessageV10 { number, batches, commands }),
                _ => put(bytes, &MessageV5 { number, batches }),
            };
        }
    }
    for (from, &number) in &channels.expected {
        bytes = put(bytes, &ExpectedV5 { from: from.0, number });
    }
    for (shard, &Preparation { term, number }) in &channels.fences {
        bytes = put(bytes, &FenceV10 { shard: shard.0, term, number });
    }
    bytes
}

pub(super) fn decode(
    own: ShardId,
    version: u16,
    body: &mut &[u8],
) -> Result<Channels, DecodeError> {
    let stored: ChannelsV10 = match version {
        MESSAGE_COMMANDS_SINCE.. => take(body, "channels")?,
        _ => take::<ChannelsV5>(body, "channels")?.into(),
    };
    let mut channels = Channels::default();
    let is_other = |shard: u32| ShardId(shard) != own && (1..=SHARDS_MAX).contains(&shard);
    for _ in 0..stored.outboxes {
        let OutboxV5 { to, messages: count } = take(body, "an outbox")?;
        let partition = Partition::from(take::<PartitionV1>(body, "a channel")?);
        let (mut messages, mut bytes) = (SharedMap::default(), 0_u64);
        for _ in 0..count {
            let MessageV10 { number, batches, commands } = match version {
                MESSAGE_COMMANDS_SINCE.. => take(body, "a message")?,
                _ => MessageV10::from(take::<MessageV5>(body, "a message")?),
            };
            let batches = batches.into_iter().map(SentBatch::from).collect();
            let message =
                SentMessage { batches, commands: commands.into_iter().map(Into::into).collect() };
            bytes = bytes.saturating_add(message.bytes());
            if messages.insert(number, Arc::new(message)).is_some() {
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
    for _ in 0..stored.fences {
        let FenceV10 { shard, term, number } = take(body, "a fence")?;
        let before = Preparation { term, number };
        let is_new = channels.fences.insert(ShardId(shard), before).is_none();
        if !is_new || !is_other(shard) {
            return Err(inconsistent("fence", shard));
        }
    }
    if channels.are_unused() {
        return Err(inconsistent("channels", "without any"));
    }
    Ok(channels)
}

impl From<ChannelsV5> for ChannelsV10 {
    fn from(ChannelsV5 { outboxes, sources }: ChannelsV5) -> Self {
        Self { outboxes, sources, fences: 0 }
    }
}

impl From<MessageV5> for MessageV10 {
    fn from(MessageV5 { number, batches }: MessageV5) -> Self {
        Self { number, batches, commands: Vec::new() }
    }
}

impl From<&MessageCommand> for MessageCommandV10 {
    fn from(command: &MessageCommand) -> Self {
        let settles = match command {
            MessageCommand::Settle { settles } => settles,
            MessageCommand::EndTransaction(part) => {
                let &EndedPart { producer: ProducerKey { id: producer, epoch }, .. } = part;
                let &EndedPart { number, commit, .. } = part;
                return Self::EndTransaction { producer, epoch, number, commit };
            }
        };
        let stored = |settle: &GroupSettle| GroupSettleV10 {
            group: settle.group.0,
            partition: settle.partition,
            settled: settle.settled.clone(),
            attempts: settle.attempts.clone(),
        };
        Self::Settle { settles: settles.iter().map(stored).collect() }
    }
}

impl From<MessageCommandV10> for MessageCommand {
    fn from(stored: MessageCommandV10) -> Self {
        let settles = match stored {
            MessageCommandV10::Settle { settles } => settles,
            MessageCommandV10::EndTransaction { producer: id, epoch, number, commit } => {
                let producer = ProducerKey { id, epoch };
                return Self::EndTransaction(EndedPart { producer, number, commit });
            }
        };
        let settle = |GroupSettleV10 { group, partition, settled, attempts }| GroupSettle {
            group: LeaseGroupId(group),
            partition,
            settled,
            attempts,
        };
        Self::Settle { settles: settles.into_iter().map(settle).collect() }
    }
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
