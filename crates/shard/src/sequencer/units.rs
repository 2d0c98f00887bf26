//! Units, and the messages between shards.
//!
//! Batches of a unit for partitions of other shards go into outboxes: they are appended to a channel of this shard,
//! and a command names their target partitions ([`machine::rows::channels`]). A message from another shard is a unit
//! here, without the rows of deleted topics. Limits of length do not apply to it, for one full topic would block all
//! following messages. Rows of a partition that has moved on are sent on.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base::{Offset, PartitionId, ShardId};
use bytes::BytesMut;
use machine::rows::channels::{self, ArrivalOrder};
use machine::{Command, MessageCommand, SentBatch, SentMessage, Unit};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use tokio::sync::oneshot;

use super::limits;
use super::limits::refused_for_space;
use super::proposal::{BatchBytes, Context, Proposal, refused, span};
use crate::append::AppendBatch;
use crate::error::{AppendError, Unavailable};
use crate::pending::{MessageRow, PendingMessage, PendingUnit, Slot, UnitMessage};
use crate::receipts::Receipt;
use crate::request::{CommandsElsewhere, Message, ReceiveError, UnitAnswer, UnitContent};

/// A unit's batches by the shards of their rows.
struct SplitUnit {
    here: Vec<AppendBatch>,
    /// Positions of the rows of `here` among all rows of the unit.
    places: Vec<usize>,
    there: BTreeMap<ShardId, PartThere>,
}

/// A unit's part for another shard.
#[derive(Default)]
struct PartThere {
    batches: Vec<AppendBatch>,
    /// Positions of its rows among all rows of the unit, then that of its commands.
    places: Vec<usize>,
    commands: CommandsElsewhere,
}

/// Returns the other shards with a part of the unit.
pub(super) fn shards_there(content: &UnitContent, context: &Context<'_>) -> Vec<ShardId> {
    let state = context.state;
    // With one shard, no partition is elsewhere.
    if state.catalog.shard_count() <= 1 {
        return Vec::new();
    }
    let partitions = content.batches.iter().flat_map(AppendBatch::partitions);
    let mut shards: Vec<ShardId> = partitions.filter_map(|it| state.elsewhere(it)).collect();
    shards.extend(content.elsewhere.keys());
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// Returns the first of these shards whose outbox has no room for its part.
pub(super) fn full_outbox(
    content: &UnitContent,
    shards: &[ShardId],
    context: &Context<'_>,
) -> Option<ShardId> {
    let of_shard = |to: ShardId| {
        let weight = |batch: &AppendBatch| {
            let goes = |partition: &PartitionId| context.state.elsewhere(*partition) == Some(to);
            match batch.partitions().filter(goes).count() {
                0 => 0,
                targets => SentBatch::bytes_of(batch.bytes.len() as u64, targets),
            }
        };
        let commands = content.elsewhere.get(&to).map_or(0, CommandsElsewhere::outbox_bytes);
        content.batches.iter().map(weight).sum::<u64>() + commands
    };
    shards.iter().copied().find(|&to| !has_room(to, of_shard(to), context))
}

impl SplitUnit {
    fn of(
        batches: Vec<AppendBatch>,
        elsewhere: BTreeMap<ShardId, CommandsElsewhere>,
        context: &Context<'_>,
    ) -> Self {
        let (here, places) = (Vec::with_capacity(batches.len()), Vec::new());
        let there: BTreeMap<ShardId, PartThere> = BTreeMap::new();
        let mut divided = Self { here, places, there };
        let mut place = 0;
        for batch in batches {
            let mut rows: BTreeMap<Option<ShardId>, Vec<PartitionId>> = BTreeMap::new();
            for partition in batch.partitions() {
                let shard = context.state.elsewhere(partition);
                rows.entry(shard).or_default().push(partition);
                match shard {
                    None => divided.places.push(place),
                    Some(to) => divided.there.entry(to).or_default().places.push(place),
                }
                place += 1;
            }
            let mut whole = Some(batch);
            let mut rows = rows.into_iter().peekable();
            while let Some((shard, mut partitions)) = rows.next() {
                let part = match (&whole, rows.peek()) {
                    (Some(batch), Some(_)) => AppendBatch {
                        partition: batch.partition,
                        also: Vec::new(),
                        header: batch.header,
                        bytes: batch.bytes.clone(),
                        expect: batch.expect,
                        ids: batch.ids.clone(),
                    },
                    _ => match whole.take() {
                        Some(batch) => batch,
                        None => continue,
                    },
                };
                let partition = partitions.remove(0);
                let part = AppendBatch { partition, also: partitions, ..part };
                match shard {
                    None => divided.here.push(part),
                    Some(to) => divided.there.entry(to).or_default().batches.push(part),
                }
            }
        }
        for (to, commands) in elsewhere {
            let part = divided.there.entry(to).or_default();
            part.places.push(place);
            part.commands = commands;
            place += 1;
        }
        divided
    }

    /// Returns why the whole unit is rejected.
    fn refused(&self, context: &Context<'_>) -> Option<AppendError> {
        let there = self.there.values().flat_map(|part| &part.batches);
        let of_other = there.into_iter().find(|batch| batch.expect.is_some());
        if let Some(batch) = of_other {
            return Some(AppendError::ExpectedElsewhere(batch.partition));
        }
        if !self.there.is_empty()
            && let Some(full) = refused_for_space(&context.terms.room)
        {
            return Some(full);
        }
        let full = self.there.iter().find(|(to, part)| !part.has_room(**to, context));
        match full.map(|(to, _)| *to) {
            Some(to) => Some(AppendError::OutboxFull { to }),
            None => refused(&self.here, context),
        }
    }
}

impl PartThere {
    fn has_room(&self, to: ShardId, context: &Context<'_>) -> bool {
        let of_batch =
            |batch: &AppendBatch| SentBatch::bytes_of(batch.bytes.len() as u64, batch.rows());
        let bytes = self.batches.iter().map(of_batch).sum::<u64>() + self.commands.outbox_bytes();
        has_room(to, bytes, context)
    }
}

/// Whether a message of these commands alone fits into the outbox.
pub(super) fn has_room_for_commands(
    to: ShardId,
    commands: &CommandsElsewhere,
    context: &Context<'_>,
) -> bool {
    has_room(to, commands.outbox_bytes(), context)
}

/// Whether one more message of this many bytes fits into the outbox.
fn has_room(to: ShardId, bytes: u64, context: &Context<'_>) -> bool {
    let outbox = context.state.rows.channels().outbox(to);
    let (messages, held) = outbox.map_or((0, 0), |outbox| (outbox.len(), outbox.bytes()));
    let (more_messages, more_bytes) = context.ahead.sent(to);
    channels::has_room(messages + more_messages, held + more_bytes, bytes)
}

/// The batch of a message's commands, which gives the message its number where it has no other.
static COMMAND_BATCH: LazyLock<(BatchHeader, Vec<u8>)> = LazyLock::new(|| {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.push(0, None, None, &[]).expect("an empty record fits");
    let bytes = batch.finish().to_vec();
    (BatchHeader::parse(&bytes).expect("it was built just now"), bytes)
});

impl CommandsElsewhere {
    /// Weight in an outbox, with their batch.
    fn outbox_bytes(&self) -> u64 {
        if self.commands.is_empty() {
            return 0;
        }
        let commands: usize = self.commands.iter().map(MessageCommand::weight).sum();
        SentBatch::bytes_of(COMMAND_BATCH.1.len() as u64, 0) + commands as u64
    }
}

impl Proposal {
    /// Adds a unit, all of it or nothing. The checks of the machine are made here too, so that a unit which would be
    /// rejected is answered without an entry.
    pub(super) fn add_unit(
        &mut self,
        content: UnitContent,
        reply: oneshot::Sender<UnitAnswer>,
        context: &mut Context<'_>,
    ) {
        let rows = content.rows();
        debug_assert!(rows > 0, "commands alone need no unit");
        let has_parts_there = !shards_there(&content, context).is_empty();
        let UnitContent { batches, mut commands, elsewhere } = content;
        let divided = match has_parts_there {
            true => SplitUnit::of(batches, elsewhere, context),
            false => {
                SplitUnit { here: batches, places: (0..rows).collect(), there: BTreeMap::new() }
            }
        };
        if let Some(refused) = divided.refused(context) {
            let slots = (0..rows).map(|_| Slot::Refused(refused.clone())).collect();
            self.pending_units.push(PendingUnit { slots, sent: Vec::new(), reply });
            return;
        }
        let SplitUnit { here, places, there } = divided;
        let first_append = self.bodies.len();
        let mut slots = Vec::with_capacity(rows);
        for batch in here {
            self.sequence_rows(batch, false, context, &mut slots, &mut Vec::new());
        }
        debug_assert!(slots.iter().all(|slot| matches!(slot, Slot::Body { .. })));
        let mut sent = Vec::new();
        if !there.is_empty() {
            let mut placed: Vec<(usize, Slot)> = places.into_iter().zip(slots).collect();
            for (to, PartThere { batches, places, commands: there }) in there {
                let has_commands = !there.commands.is_empty();
                let (number, command, bodies) = self.send(to, batches, there, context);
                commands.push(command);
                let sent_as = |(place, body): (&usize, usize)| (*place, Slot::Sent { body });
                placed.extend(places.iter().zip(bodies).map(sent_as));
                sent.push(UnitMessage { to, number, places, has_commands });
            }
            placed.sort_unstable_by_key(|(place, _)| *place);
            slots = placed.into_iter().map(|(_, slot)| slot).collect();
        }
        self.units.push(Unit {
            first_append: first_append as u32,
            appends: (self.bodies.len() - first_append) as u32,
            commands: commands.len() as u32,
            origin: None,
            brought: None,
        });
        self.bound.extend(commands);
        self.pending_units.push(PendingUnit { slots, sent, reply });
    }

    /// Puts a message into an outbox. Returns its number, the command for it, and the body of each of its rows, then
    /// that of its commands.
    pub(super) fn send(
        &mut self,
        to: ShardId,
        batches: Vec<AppendBatch>,
        CommandsElsewhere { commands, preparation }: CommandsElsewhere,
        context: &mut Context<'_>,
    ) -> (Offset, Command, Vec<usize>) {
        let channel = PartitionId::channel_to(to);
        let (mut sent, mut bodies) = (Vec::with_capacity(batches.len()), Vec::new());
        let first = self.channel_end(channel, context);
        let mut push = |header: &BatchHeader, bytes: BytesMut, targets: Vec<PartitionId>| {
            let base_offset = self.channel_end(channel, context);
            sent.push(SentBatch { bytes: bytes.len() as u32, targets });
            let bytes = BatchBytes::Unplaced(bytes).place(base_offset, context.terms.leader_epoch);
            self.push_body(channel, base_offset, header, bytes, context);
            self.bodies.len() - 1
        };
        for batch in batches {
            let targets: Vec<PartitionId> = batch.partitions().collect();
            let rows = targets.len();
            let body = push(&batch.header, batch.bytes, targets);
            bodies.extend(std::iter::repeat_n(body, rows));
        }
        if !commands.is_empty() {
            let (header, bytes) = &*COMMAND_BATCH;
            bodies.push(push(header, BytesMut::from(&bytes[..]), Vec::new()));
        }
        let message = SentMessage { batches: sent, commands };
        context.ahead.record_sent(to, message.bytes(), &mut self.touched);
        let SentMessage { batches, commands } = message;
        let command = match commands.is_empty() {
            true => Command::Send { to, batches },
            false => Command::SendWith { to, batches, commands, preparation },
        };
        (first, command, bodies)
    }

    fn channel_end(&self, channel: PartitionId, context: &Context<'_>) -> Offset {
        let known = || context.state.rows.partition(channel).map_or(0, |row| row.next_offset());
        context.ahead.end(channel).unwrap_or_else(known)
    }

    /// Adds a message from another shard, if it is the next one.
    pub(super) fn add_message(
        &mut self,
        message: Message,
        reply: oneshot::Sender<Result<Receipt, ReceiveError>>,
        context: &mut Context<'_>,
    ) {
        let Message { origin, batches, commands } = message;
        let known = || context.state.rows.channels().expected(origin.shard);
        let expected = context.ahead.expected(origin.shard).unwrap_or_else(known);
        match channels::arrival(expected, origin) {
            ArrivalOrder::Next => {}
            ArrivalOrder::Duplicate => {
                // It may still be pending: the reply is sent when all earlier proposals are in the log.
                self.messages.push(PendingMessage { origin, rows: Vec::new(), reply });
                return;
            }
            ArrivalOrder::OutOfOrder => {
                let _ = reply.send(Err(ReceiveError::OutOfOrder { expected }));
                return;
            }
        }
        let moves = |partition: PartitionId| {
            context.ahead.freezes(partition).is_some() || context.state.rows.is_frozen(partition)
        };
        if batches.iter().flat_map(AppendBatch::partitions).any(moves) {
            // In a moment the partition accepts messages again, or forwards them.
            let _ = reply.send(Err(AppendError::from(Unavailable::NotLeader).into()));
            return;
        }
        let not_there = batches.iter().flat_map(AppendBatch::partitions).find(|partition| {
            let rows = context.state.rows;
            let is_here = rows.partition(*partition).is_some();
            !is_here
                && rows.gone_to(*partition).is_none()
                // The source shard sends messages on from the hand-over, before this shard serves the partition.
                && (context.state.is_placed_here(*partition) || rows.import(*partition).is_some())
        });
        // Its rows are about to be there: the message must not be treated as one for a deleted topic.
        let unknown = not_there.map(AppendError::UnknownPartition);
        if let Some(refused) = unknown.or_else(|| refused_for_space(&context.terms.room)) {
            let _ = reply.send(Err(refused.into()));
            return;
        }
        let end = commands.iter().find_map(MessageCommand::as_end).copied();
        if let Some(part) = &end
            && let Err(why) = Self::may_end(part, context)
        {
            let _ = reply.send(Err(AppendError::from(why).into()));
            return;
        }
        let (first_append, mut rows) = (self.bodies.len(), Vec::new());
        if let Some(part) = &end {
            self.push_markers(part, context);
        }
        let mut onward: BTreeMap<ShardId, Vec<AppendBatch>> = BTreeMap::new();
        for batch in batches {
            let AppendBatch { partition, also, header, bytes, .. } = batch;
            let mut bytes = BatchBytes::Unplaced(bytes);
            for partition in std::iter::once(partition).chain(also) {
                let deleted = context.ahead.is_deleted(partition.topic);
                let found = context.state.rows.partition(partition).filter(|_| !deleted);
                let row =
                    MessageRow { partition, records: span(&header), body: None, went_on: false };
                if let Some(to) = context.state.rows.gone_to(partition) {
                    // The sender did not know of the move yet.
                    let copy = AppendBatch::new(partition, header, BytesMut::from(bytes.bytes()));
                    onward.entry(to).or_default().push(copy);
                    rows.push(MessageRow { went_on: true, ..row });
                    continue;
                }
                let Some(found) = found else {
                    rows.push(row);
                    continue;
                };
                let end = context.ahead.end(partition).unwrap_or_else(|| found.next_offset());
                if let Some(topic) = context.state.catalog.topic(partition.topic) {
                    let records = u64::from(span(&header));
                    let (state, shard) = (context.state, context.terms.shard);
                    let ahead = |partition| context.ahead.end(partition);
                    limits::note_waived(state, topic, shard, ahead, records, bytes.bytes());
                }
                rows.push(MessageRow { body: Some(self.bodies.len()), ..row });
                let epoch = context.terms.epoch_of(partition, context.state);
                let placed = bytes.place(end, epoch);
                self.push_body(partition, end, &header, placed, context);
            }
        }
        let bound = (commands.len() + onward.len()) as u32;
        self.bound.extend(commands.into_iter().map(Command::FromMessage));
        for (to, batches) in onward {
            let (_, command, _) = self.send(to, batches, CommandsElsewhere::default(), context);
            self.bound.push(command);
        }
        self.units.push(Unit {
            first_append: first_append as u32,
            appends: (self.bodies.len() - first_append) as u32,
            commands: bound,
            origin: Some(origin),
            brought: None,
        });
        context.ahead.record_message(origin, self.ticket, &mut self.touched);
        self.messages.push(PendingMessage { origin, rows, reply });
    }
}
