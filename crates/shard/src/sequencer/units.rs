//! Units, and the messages between shards.
//!
//! Batches of a unit for partitions of other shards go into outboxes: they are appended to a channel of this shard,
//! and a command names their target partitions ([`machine::rows::channels`]). A message from another shard is a unit
//! here, without the rows of deleted topics. Limits of length do not apply to it, for one full topic would block all
//! following messages. Rows of a partition that has moved on are sent on.

use std::collections::BTreeMap;

use base::{Offset, PartitionId, ShardId};
use bytes::BytesMut;
use machine::rows::channels::{self, ArrivalOrder, bytes_of};
use machine::{Command, SentBatch, Unit};
use tokio::sync::oneshot;

use super::limits;
use super::limits::refused_for_space;
use super::proposal::{BatchBytes, Context, Proposal, refused, span};
use crate::append::AppendBatch;
use crate::error::{AppendError, Unavailable};
use crate::pending::{MessageRow, PendingMessage, PendingUnit, Slot};
use crate::receipts::Receipt;
use crate::request::{Message, ReceiveError, UnitAnswer};

/// A unit's batches by the shards of their rows.
struct SplitUnit {
    here: Vec<AppendBatch>,
    /// Positions of the rows of `here` among all rows of the unit.
    places: Vec<usize>,
    there: BTreeMap<ShardId, Vec<AppendBatch>>,
    places_there: BTreeMap<ShardId, Vec<usize>>,
}

/// Returns the other shards that have any of these partitions.
pub(super) fn shards_there(batches: &[AppendBatch], context: &Context<'_>) -> Vec<ShardId> {
    let state = context.state;
    // With one shard, no partition is elsewhere.
    if state.catalog.shard_count() <= 1 {
        return Vec::new();
    }
    let partitions = batches.iter().flat_map(AppendBatch::partitions);
    let mut shards: Vec<ShardId> = partitions.filter_map(|it| state.elsewhere(it)).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// Returns the first of these shards whose outbox has no room for messages with these batches.
pub(super) fn full_outbox(
    batches: &[AppendBatch],
    shards: &[ShardId],
    context: &Context<'_>,
) -> Option<ShardId> {
    let of_shard = |to: ShardId| {
        let weight = |batch: &AppendBatch| {
            let goes = |partition: &PartitionId| context.state.elsewhere(*partition) == Some(to);
            match batch.partitions().filter(goes).count() {
                0 => 0,
                targets => channels::weight(batch.bytes.len() as u64, targets),
            }
        };
        batches.iter().map(weight).sum::<u64>()
    };
    shards.iter().copied().find(|&to| {
        let outbox = context.state.rows.channels().outbox(to);
        let (messages, bytes) = outbox.map_or((0, 0), |outbox| (outbox.len(), outbox.bytes()));
        let (more_messages, more_bytes) = context.ahead.sent(to);
        !channels::has_room(messages + more_messages, bytes + more_bytes, of_shard(to))
    })
}

impl SplitUnit {
    fn of(batches: Vec<AppendBatch>, context: &Context<'_>) -> Self {
        let (here, places) = (Vec::with_capacity(batches.len()), Vec::new());
        let (there, places_there) = (BTreeMap::new(), BTreeMap::new());
        let mut divided = Self { here, places, there, places_there };
        let mut place = 0;
        for batch in batches {
            let mut rows: BTreeMap<Option<ShardId>, Vec<PartitionId>> = BTreeMap::new();
            for partition in batch.partitions() {
                let shard = context.state.elsewhere(partition);
                rows.entry(shard).or_default().push(partition);
                match shard {
                    None => divided.places.push(place),
                    Some(to) => divided.places_there.entry(to).or_default().push(place),
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
                    Some(to) => divided.there.entry(to).or_default().push(part),
                }
            }
        }
        divided
    }

    /// Returns why the whole unit is rejected.
    fn refused(&self, context: &Context<'_>) -> Option<AppendError> {
        let of_other = self.there.values().flatten().find(|batch| batch.expect.is_some());
        if let Some(batch) = of_other {
            return Some(AppendError::ExpectedElsewhere(batch.partition));
        }
        if !self.there.is_empty()
            && let Some(full) = refused_for_space(&context.terms.room)
        {
            return Some(full);
        }
        let shards: Vec<ShardId> = self.there.keys().copied().collect();
        let full = shards
            .iter()
            .find_map(|to| full_outbox(&self.there[to], std::slice::from_ref(to), context));
        match full {
            Some(to) => Some(AppendError::OutboxFull { to }),
            None => refused(&self.here, context),
        }
    }
}

impl Proposal {
    /// Adds a unit, all of it or nothing. The checks of the machine are made here too, so that a unit which would be
    /// rejected is answered without an entry.
    pub(super) fn add_unit(
        &mut self,
        batches: Vec<AppendBatch>,
        mut commands: Vec<Command>,
        reply: oneshot::Sender<UnitAnswer>,
        context: &mut Context<'_>,
    ) {
        debug_assert!(!batches.is_empty(), "commands alone need no unit");
        let rows = batches.iter().map(AppendBatch::rows).sum();
        let elsewhere = !shards_there(&batches, context).is_empty();
        let divided = match elsewhere {
            true => SplitUnit::of(batches, context),
            false => SplitUnit {
                here: batches,
                places: (0..rows).collect(),
                there: BTreeMap::new(),
                places_there: BTreeMap::new(),
            },
        };
        if let Some(refused) = divided.refused(context) {
            let slots = (0..rows).map(|_| Slot::Refused(refused.clone())).collect();
            self.pending_units.push(PendingUnit { slots, sent: Vec::new(), reply });
            return;
        }
        let SplitUnit { here, places, there, mut places_there } = divided;
        let first_append = self.bodies.len();
        let mut slots = Vec::with_capacity(rows);
        for batch in here {
            self.sequence_rows(batch, false, context, &mut slots, &mut Vec::new());
        }
        debug_assert!(slots.iter().all(|slot| matches!(slot, Slot::Body { .. })));
        let mut sent = Vec::new();
        if !there.is_empty() {
            let mut placed: Vec<(usize, Slot)> = places.into_iter().zip(slots).collect();
            for (to, batches) in there {
                let (number, command, bodies) = self.send(to, batches, context);
                commands.push(command);
                let places = places_there.remove(&to).unwrap_or_default();
                let sent_as = |(place, body): (&usize, usize)| (*place, Slot::Sent { body });
                placed.extend(places.iter().zip(bodies).map(sent_as));
                sent.push((to, number, places));
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

    /// Puts a message into an outbox. Returns its number, the command for it, and the body of each of its rows.
    fn send(
        &mut self,
        to: ShardId,
        batches: Vec<AppendBatch>,
        context: &mut Context<'_>,
    ) -> (Offset, Command, Vec<usize>) {
        let channel = PartitionId::channel_to(to);
        let (mut sent, mut bodies) = (Vec::with_capacity(batches.len()), Vec::new());
        let first = self.channel_end(channel, context);
        for batch in batches {
            let base_offset = self.channel_end(channel, context);
            let targets: Vec<PartitionId> = batch.partitions().collect();
            bodies.extend(targets.iter().map(|_| self.bodies.len()));
            sent.push(SentBatch { bytes: batch.bytes.len() as u32, targets });
            let bytes =
                BatchBytes::Unplaced(batch.bytes).place(base_offset, context.terms.leader_epoch);
            self.push_body(channel, base_offset, &batch.header, bytes, context);
        }
        context.ahead.record_sent(to, bytes_of(&sent), &mut self.touched);
        (first, Command::Send { to, batches: sent }, bodies)
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
        let Message { origin, batches } = message;
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
        let (first_append, mut rows) = (self.bodies.len(), Vec::new());
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
        let commands = onward.len() as u32;
        for (to, batches) in onward {
            let (_, command, _) = self.send(to, batches, context);
            self.bound.push(command);
        }
        self.units.push(Unit {
            first_append: first_append as u32,
            appends: (self.bodies.len() - first_append) as u32,
            commands,
            origin: Some(origin),
            brought: None,
        });
        context.ahead.record_message(origin, self.ticket, &mut self.touched);
        self.messages.push(PendingMessage { origin, rows, reply });
    }
}
