//! Channels between shards: messages sent and not yet acknowledged, and the position reached in
//! those of other shards.
//!
//! A message is everything that one unit of the log sends to one shard: batches, and for each the
//! receiving partitions there; and commands. Its batches are appended to the channel, a partition of
//! no topic, so that the journal stores their bytes like others. The first offset is the message's number; the
//! next message's number follows its last offset. Both ends therefore count alike, and no number is
//! used twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::{OUTBOX_BYTES_MAX, OUTBOX_MESSAGES_MAX, SHARDS_MAX};
use base::{Offset, PartitionId, ShardId, SharedMap};

use super::partition::Partition;
use crate::command::{MessageParts, Preparation, SentMessage};
use crate::entry::{Append, Origin};
use crate::outcome::{AppendOutcome, EntryEffects, Refusal};

/// All channels of a shard. An unused channel takes no memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Channels {
    pub(crate) outboxes: SharedMap<ShardId, Arc<Outbox>>,
    /// The number of the next message from each shard.
    pub(crate) expected: SharedMap<ShardId, Offset>,
    /// The first valid preparation of each shard: see [`crate::Command::Fence`].
    pub(crate) fences: SharedMap<ShardId, Preparation>,
}

/// Messages to one shard that are not acknowledged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outbox {
    /// Starts at the first message that is not acknowledged.
    pub(crate) partition: Partition,
    /// By number.
    pub(crate) messages: SharedMap<Offset, Arc<SentMessage>>,
    /// See [`SentMessage::bytes`].
    pub(crate) bytes: u64,
}

/// Classification of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrivalOrder {
    Next,
    /// It was accepted before.
    Duplicate,
    /// An earlier message is missing, or it is invalid.
    OutOfOrder,
}

/// A channel without messages.
static UNUSED: Partition = Partition::unused();

/// Whether a channel to or from it may exist.
fn is_shard(shard: ShardId) -> bool {
    (ShardId::FIRST.0..=SHARDS_MAX).contains(&shard.0)
}

impl Outbox {
    /// Unacknowledged messages with their numbers, from this number on.
    pub fn messages_from(
        &self,
        number: Offset,
    ) -> impl Iterator<Item = (Offset, &Arc<SentMessage>)> {
        self.messages.range(number..).map(|(&number, message)| (number, message))
    }

    /// The unacknowledged message with this number.
    pub fn message(&self, number: Offset) -> Option<&SentMessage> {
        self.messages.get(&number).map(Arc::as_ref)
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of the first unacknowledged message; of the next one if all are acknowledged.
    pub fn acknowledged(&self) -> Offset {
        self.partition.log_start()
    }

    /// The number of the next message.
    pub fn end(&self) -> Offset {
        self.partition.next_offset()
    }

    /// Whether an outbox of a snapshot is valid.
    pub(crate) fn is_sound(&self) -> bool {
        let (start, end) = (self.acknowledged(), self.end());
        let first = self.messages.first_key_value().map(|(number, _)| *number);
        let begins = if start == end { first.is_none() } else { first == Some(start) };
        let ends = self.messages.keys().all(|number| *number < end);
        let messages = self.messages.values().all(|message| message.borrowed().is_sound());
        begins && ends && messages && self.partition.is_sound()
    }
}

/// Whether a message fits next to this many others of this many bytes.
pub fn has_room(messages: usize, bytes: u64, more: u64) -> bool {
    messages == 0
        || (messages < OUTBOX_MESSAGES_MAX && bytes.saturating_add(more) <= OUTBOX_BYTES_MAX)
}

impl Channels {
    /// Whether this shard never sent or accepted a message.
    pub fn are_unused(&self) -> bool {
        self.outboxes.is_empty() && self.expected.is_empty() && self.fences.is_empty()
    }

    pub fn outbox(&self, to: ShardId) -> Option<&Outbox> {
        self.outboxes.get(&to).map(Arc::as_ref)
    }

    /// Outboxes that were ever used, by shard.
    pub fn outboxes(&self) -> impl Iterator<Item = (ShardId, &Outbox)> {
        self.outboxes.iter().map(|(&to, outbox)| (to, outbox.as_ref()))
    }

    /// Shards whose messages were accepted, with the number of the next one.
    pub fn taken(&self) -> impl Iterator<Item = (ShardId, Offset)> {
        self.expected.iter().map(|(&from, &next)| (from, next))
    }

    /// The number of the next message from a shard.
    pub fn expected(&self, from: ShardId) -> Offset {
        self.expected.get(&from).copied().unwrap_or(0)
    }

    pub fn arrival(&self, origin: Origin) -> ArrivalOrder {
        arrival(self.expected(origin.shard), origin)
    }

    pub(super) fn partition(&self, to: ShardId) -> Option<&Partition> {
        let known = self.outbox(to).map(|outbox| &outbox.partition);
        known.or_else(|| is_shard(to).then_some(&UNUSED))
    }

    pub(super) fn append(
        &mut self,
        to: ShardId,
        append: &Append,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> AppendOutcome {
        if !is_shard(to) {
            return AppendOutcome::UnknownPartition;
        }
        let append = append.without_producer();
        self.outbox_mut(to).partition.append(&append, leader_epoch, now_ms)
    }

    /// Whether messages have commands, or may have had some: a snapshot then has the version for that.
    pub(crate) fn have_commands(&self) -> bool {
        let messages = self.outboxes.values().flat_map(|outbox| outbox.messages.values());
        self.have_fences() || messages.into_iter().any(|it| !it.commands.is_empty())
    }

    /// Whether another shard has given up preparations: see [`crate::Command::Fence`].
    pub fn have_fences(&self) -> bool {
        !self.fences.is_empty()
    }

    /// Whether a message with commands may be sent that needs this preparation of the other shard.
    pub(crate) fn check_fence(&self, to: ShardId, preparation: Preparation) -> Result<(), Refusal> {
        match self.fences.get(&to).is_some_and(|fence| preparation < *fence) {
            true => Err(Refusal::PreparedEarlier { to }),
            false => Ok(()),
        }
    }

    /// Notes that a shard gives up earlier preparations. Returns the number of the next message to it.
    pub(crate) fn fence(&mut self, shard: ShardId, before: Preparation) -> Result<Offset, Refusal> {
        if !is_shard(shard) {
            return Err(Refusal::NotAMessage);
        }
        if self.fences.get(&shard).is_none_or(|known| *known < before) {
            self.fences.insert(shard, before);
        }
        Ok(self.outbox(shard).map_or(0, Outbox::end))
    }

    /// Whether a unit with these appends may send this. Changes nothing.
    pub(crate) fn check_send(
        &self,
        own: ShardId,
        to: ShardId,
        message: MessageParts<'_>,
        appends: &[Append],
    ) -> Result<(), Refusal> {
        let channel = PartitionId::channel_to(to);
        let bodies = appends.iter().filter(|append| append.partition == channel).count();
        if !is_shard(to) || to == own || bodies != message.batches.len() || !message.is_sound() {
            return Err(Refusal::NotAMessage);
        }
        let held = self.outbox(to).map_or((0, 0), |outbox| (outbox.len(), outbox.bytes()));
        match has_room(held.0, held.1, message.bytes()) {
            true => Ok(()),
            false => Err(Refusal::OutboxFull { to, messages: held.0, bytes: held.1 }),
        }
    }

    /// Registers a message whose batches are about to be appended. Returns its number.
    pub(crate) fn send(&mut self, to: ShardId, message: SentMessage) -> Offset {
        let outbox = self.outbox_mut(to);
        let number = outbox.partition.next_offset();
        outbox.bytes = outbox.bytes.saturating_add(message.bytes());
        outbox.messages.insert(number, Arc::new(message));
        number
    }

    /// The other shard has all messages below. Repeating an acknowledgement is no error.
    pub(crate) fn acknowledge(
        &mut self,
        to: ShardId,
        below: Offset,
        applied: &mut EntryEffects,
    ) -> Result<(), Refusal> {
        let partition = PartitionId::channel_to(to);
        let Some(outbox) = self.outbox(to) else {
            return Err(Refusal::UnknownPartition { partition });
        };
        let (start, end) = (outbox.acknowledged(), outbox.end());
        if below != end && below > start && !outbox.messages.contains_key(&below) {
            return Err(Refusal::OffsetOutOfRange { partition, offset: below, start, end });
        }
        if below <= start {
            return Ok(());
        }
        let outbox = self.outbox_mut(to);
        while let Some((&number, message)) = outbox.messages.first_key_value()
            && number < below
        {
            outbox.bytes = outbox.bytes.saturating_sub(message.bytes());
            outbox.messages.remove(&number);
        }
        outbox.partition.advance_start(below);
        applied.trimmed.push((partition, below));
        Ok(())
    }

    /// Records an accepted message.
    pub(crate) fn take(&mut self, origin: Origin) {
        self.expected.insert(origin.shard, origin.next);
    }

    /// Raises the next numbers to these. Unacknowledged messages keep theirs. Fences end: after a recovery nothing is
    /// prepared, and a shard's terms may go on below its fences.
    pub(crate) fn resume(
        &mut self,
        sent: &[(ShardId, Offset)],
        taken: &[(ShardId, Offset)],
        applied: &mut EntryEffects,
    ) -> Result<(), Refusal> {
        let is_sound =
            |(shard, next): &(ShardId, Offset)| is_shard(*shard) && *next <= i64::MAX as u64;
        if !sent.iter().chain(taken).all(is_sound) {
            return Err(Refusal::NotAMessage);
        }
        self.fences = SharedMap::default();
        for &(to, next) in sent {
            if self.outbox(to).map_or(0, Outbox::end) >= next {
                continue;
            }
            let partition = &mut self.outbox_mut(to).partition;
            let start = partition.log_start();
            partition.skip_to(next);
            if partition.log_start() > start {
                applied.trimmed.push((PartitionId::channel_to(to), next));
            }
        }
        for &(from, next) in taken {
            if self.expected(from) < next {
                self.expected.insert(from, next);
            }
        }
        Ok(())
    }

    /// Number of a unit's appends to each channel, by shard.
    pub(crate) fn appends_by_shard(appends: &[Append]) -> BTreeMap<ShardId, usize> {
        let mut counts = BTreeMap::new();
        for to in appends.iter().filter_map(|append| append.partition.as_channel()) {
            *counts.entry(to).or_default() += 1;
        }
        counts
    }

    fn outbox_mut(&mut self, to: ShardId) -> &mut Outbox {
        if !self.outboxes.contains_key(&to) {
            self.outboxes.insert(to, Arc::default());
        }
        let outbox = self.outboxes.get_mut(&to).expect("it was put there");
        Arc::make_mut(outbox)
    }
}

/// Classifies a message, given the expected number.
pub fn arrival(expected: Offset, origin: Origin) -> ArrivalOrder {
    if origin.next <= origin.number || !is_shard(origin.shard) || origin.next > i64::MAX as u64 {
        ArrivalOrder::OutOfOrder
    } else if origin.next <= expected {
        ArrivalOrder::Duplicate
    } else if origin.number == expected {
        ArrivalOrder::Next
    } else {
        ArrivalOrder::OutOfOrder
    }
}
