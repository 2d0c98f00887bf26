//! Building of a proposal: requests become bodies, commands and units of one log entry.

use std::mem;

use base::{HashMap, Offset, PartitionId, TopicId};
use bytes::{Bytes, BytesMut};
use journal::{Body, DiskRoom};
use machine::config::{Durability, LimitOverflow};
use machine::ids::AppendedIds;
use machine::partition::Partition;
use machine::producer::{BatchSequence, SequenceVerdict};
use machine::{Command, ProducerKey, RowSequence, Unit};
use record::BatchHeader;
use tokio::sync::oneshot;

use super::pending_state::{PendingState, TouchedKeys};
use super::transactions::{self, PendingTransaction};
use super::{forwarded_rows, limits};
use crate::append::{AppendBatch, Appends};
use crate::dedup::{self, BatchTarget, CopyPositions, Dedup, Deduplicated};
use crate::error::{AppendError, Unavailable};
use crate::pending::{Overflow, PendingAppend, PendingMessage, PendingRequests, PendingUnit, Slot};
use crate::record_ids::RecordIds;
use crate::request::{CommandReply, Request};
use crate::state_machine::{Shard, View};

pub(super) struct Proposal {
    pub(super) ticket: u64,
    pub(super) bodies: Vec<Body>,
    pub(super) units: Vec<Unit>,
    pub(super) touched: TouchedKeys,
    appends: Vec<PendingAppend>,
    pub(super) pending_units: Vec<PendingUnit>,
    pub(super) messages: Vec<PendingMessage>,
    /// Bodies to be rebuilt without duplicate records.
    parts: Vec<PendingBody>,
    /// Commands of units, in their order. Their outcomes are not sent to clients.
    pub(super) bound: Vec<Command>,
    /// Commands that stand alone.
    alone: Vec<Command>,
    replies: Vec<CommandReply>,
    /// Replies to commands of units, with the position of each among them.
    pub(super) bound_replies: Vec<(usize, CommandReply)>,
    pub(super) imported: Vec<PartitionId>,
    /// New ids of the bodies, by topic.
    ids: Vec<(TopicId, AppendedIds)>,
    /// Whether a body is for a topic with `dedup.window.ms`, or a command changes ids.
    concerns_ids: bool,
    /// Dropped once this proposal and all before it are applied, or have failed.
    settling: Vec<oneshot::Sender<()>>,
}

/// A body that is rebuilt once the machine's lock is released.
struct PendingBody {
    body: usize,
    base_offset: Offset,
    leader_epoch: i32,
    whole: Bytes,
    copies: CopyPositions,
}

/// Values shared by all batches of one proposal.
pub(super) struct ProposalContext<'a> {
    pub(super) term: u64,
    pub(super) leader_epoch: i32,
    pub(super) room: DiskRoom,
    pub(super) now_ms: i64,
    pub(super) shard: &'a Shard,
}

/// State that is read and changed while a request is added.
pub(super) struct Context<'a> {
    pub(super) ahead: &'a mut PendingState,
    pub(super) dedup: &'a mut Dedup,
    pub(super) state: &'a View<'a>,
    pub(super) terms: &'a ProposalContext<'a>,
}

/// A batch being sequenced into one partition or several.
struct Sequencing {
    header: BatchHeader,
    bytes: BatchBytes,
    expect: Option<Offset>,
    ids: Option<RecordIds>,
    /// False for records moved by the broker from topic to topic, which are copies on purpose.
    deduplicated: bool,
}

/// A batch's bytes: unshared until it has an offset, then shared by its rows.
pub(super) enum BatchBytes {
    Unplaced(BytesMut),
    /// With the leader epoch in these bytes.
    Placed(Bytes, i32),
}

impl BatchBytes {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Unplaced(bytes) => bytes,
            Self::Placed(bytes, _) => bytes,
        }
    }

    /// Returns a copy of the bytes as they are.
    fn copied(&self) -> Bytes {
        match self {
            Self::Unplaced(bytes) => Bytes::copy_from_slice(bytes),
            Self::Placed(bytes, _) => bytes.clone(),
        }
    }

    /// Returns the bytes to write: those of the first row have its offset. Further rows share them, unless their
    /// leader epoch differs.
    pub(super) fn place(&mut self, base_offset: Offset, leader_epoch: i32) -> Bytes {
        if let Self::Unplaced(bytes) = self {
            let mut bytes = mem::take(bytes);
            record::assign(&mut bytes, base_offset, leader_epoch);
            *self = Self::Placed(bytes.freeze(), leader_epoch);
        }
        match self {
            Self::Placed(bytes, epoch) if *epoch == leader_epoch => bytes.clone(),
            Self::Placed(bytes, _) => {
                let mut bytes = BytesMut::from(&bytes[..]);
                record::assign(&mut bytes, base_offset, leader_epoch);
                bytes.freeze()
            }
            Self::Unplaced(_) => unreachable!("it was placed"),
        }
    }
}

impl ProposalContext<'_> {
    /// Returns the leader epoch of a partition's batches.
    pub(super) fn epoch_of(&self, partition: PartitionId, state: &View<'_>) -> i32 {
        self.leader_epoch.saturating_add(state.rows.epoch_base(partition))
    }
}

impl Proposal {
    pub(super) fn new(ticket: u64) -> Self {
        Self {
            ticket,
            bodies: Vec::new(),
            units: Vec::new(),
            touched: TouchedKeys::default(),
            appends: Vec::new(),
            pending_units: Vec::new(),
            messages: Vec::new(),
            parts: Vec::new(),
            bound: Vec::new(),
            alone: Vec::new(),
            replies: Vec::new(),
            bound_replies: Vec::new(),
            imported: Vec::new(),
            ids: Vec::new(),
            concerns_ids: false,
            settling: Vec::new(),
        }
    }

    /// Returns the content of the entry's head, and the waiting requests.
    pub(super) fn finish(self) -> FinishedProposal {
        let Self { ticket, mut bodies, units, touched, appends, parts, .. } = self;
        let Self {
            pending_units, messages, bound, alone, replies, bound_replies, imported, ..
        } = self;
        let readers = self.settling;
        for PendingBody { body, base_offset, leader_epoch, whole, copies } in parts {
            let rest = dedup::without(&whole, &copies).map_or(whole, Bytes::from);
            bodies[body].bytes =
                BatchBytes::Unplaced(BytesMut::from(rest)).place(base_offset, leader_epoch);
        }
        let first_alone = bound.len();
        let mut commands = bound;
        commands.extend(alone);
        let pending = PendingRequests {
            appends,
            units: pending_units,
            messages,
            first_alone,
            commands: replies,
            bound: bound_replies,
            readers,
        };
        FinishedProposal { ticket, bodies, units, touched, commands, imported, pending }
    }

    pub(super) fn add(&mut self, request: Request, context: &mut Context<'_>) {
        match request {
            Request::Append { batches, from, reply } => {
                if let Some(from) = from
                    && let Some(answer) = forwarded_rows::known(&batches, from, context)
                {
                    // The client may be gone.
                    let _ = reply.send(answer);
                    return;
                }
                self.add_appends(batches, from, reply, context);
            }
            Request::Unit { content, reply } => self.add_unit(content, reply, context),
            Request::Receive { message, reply } => self.add_message(message, reply, context),
            Request::Import { step, batches, reply } => {
                self.add_import(step, batches, reply, context);
            }
            Request::Settle(settles) => self.settling.push(settles),
            Request::MayWait(_) | Request::Closing => {}
            // The command may be newer than the cluster's level as known to this node.
            Request::Execute { command, reply } if !context.terms.shard.level.permits(&command) => {
                let _ = reply.send(Err(Unavailable::NotLeader.into()));
            }
            Request::KeepMembers { term, .. }
                if term.is_some_and(|it| it != context.terms.term) =>
            {
                request.refuse(&Unavailable::NotLeader);
            }
            Request::KeepMembers { groups, reply, .. } => {
                let command = Command::KeepMembers { groups };
                self.add(Request::Execute { command, reply }, context);
            }
            Request::Execute { command: Command::Transaction(command), reply } => {
                self.add_transaction(command, reply, context);
            }
            Request::Execute { mut command, reply } => {
                if let Command::CommitOffsets { offsets, .. } = &mut command {
                    // The rows of a deleted topic may be dropped before this is applied, and its offsets would stay. A
                    // topic may be newer than this node's copy of the catalog.
                    let catalog = context.state.catalog;
                    offsets.retain(|commit| !catalog.is_deleted(commit.partition.topic));
                }
                self.concerns_ids |= matches!(command, Command::RecordIds(_));
                context.ahead.record_command(&command, self.ticket, &mut self.touched);
                self.add_alone(command, reply);
            }
        }
    }

    /// Adds a command that stands alone.
    pub(super) fn add_alone(&mut self, command: Command, reply: CommandReply) {
        self.alone.push(command);
        self.replies.push(reply);
    }

    /// Adds the command with the ids of the new bodies, after all commands with replies: no client waits for it.
    pub(super) fn carry_ids(&mut self, context: &mut Context<'_>) {
        let Context { dedup, state, terms, .. } = context;
        let ids = mem::take(&mut self.ids);
        let memory = || terms.shard.record_ids_of_node();
        let change = dedup.change(ids, self.concerns_ids, state, terms.now_ms, memory);
        if !change.is_empty() {
            self.alone.push(Command::RecordIds(change));
        }
    }

    /// Adds batches that each stand alone, as does each of their rows.
    fn add_appends(
        &mut self,
        batches: Vec<AppendBatch>,
        from: Option<RowSequence>,
        reply: oneshot::Sender<Appends>,
        context: &mut Context<'_>,
    ) {
        let early = batches.iter().all(|batch| {
            let topic = context.state.catalog.topic(batch.partition.topic);
            batch.also.is_empty()
                && topic.is_some_and(|topic| topic.config.durability == Durability::Replicated)
        });
        let mut slots = Vec::with_capacity(batches.len());
        let mut overflowed = Vec::new();
        for batch in batches {
            self.sequence_rows(batch, true, context, &mut slots, &mut overflowed);
        }
        if let Some(from) = from {
            self.bind_brought(from, &slots, context);
        }
        let delivery = context.terms.shard.delivery.get().filter(|_| !overflowed.is_empty());
        let overflow =
            delivery.map(|delivery| Overflow { batches: overflowed, delivery: delivery.clone() });
        let early = early && overflow.is_none();
        self.appends.push(PendingAppend { slots, early, overflow, reply: Some(reply) });
    }

    /// Gives the batch a row in each of its partitions, or the reason of a rejection.
    pub(super) fn sequence_rows(
        &mut self,
        batch: AppendBatch,
        deduplicated: bool,
        context: &mut Context<'_>,
        slots: &mut Vec<Slot>,
        overflowed: &mut Vec<(PartitionId, Bytes)>,
    ) {
        let AppendBatch { partition, also, header, bytes, expect, ids } = batch;
        let bytes = BatchBytes::Unplaced(bytes);
        let mut batch = Sequencing { header, bytes, expect, ids, deduplicated };
        for partition in std::iter::once(partition).chain(also) {
            let slot = self.sequence(partition, &mut batch, context);
            // A dead letter of a transaction would outlive its abort.
            if matches!(slot, Slot::Refused(AppendError::Full { .. }))
                && !batch.header.attributes.is_transactional()
                && makes_dead_letters(partition, context.state)
            {
                overflowed.push((partition, batch.bytes.copied()));
            }
            slots.push(slot);
        }
    }

    /// Gives the batch its offset in one partition.
    fn sequence(
        &mut self,
        partition: PartitionId,
        batch: &mut Sequencing,
        context: &mut Context<'_>,
    ) -> Slot {
        let Context { ahead, dedup, state, terms } = context;
        let unknown = || Slot::Refused(AppendError::UnknownPartition(partition));
        if ahead.is_deleted(partition.topic) {
            return unknown();
        }
        if ahead.freezes(partition).is_some()
            || state.rows.is_frozen(partition)
            || state.rows.gone_to(partition).is_some()
        {
            return Slot::Refused(AppendError::Moving(partition));
        }
        let Some(found) = state.rows.partition(partition) else { return unknown() };
        let base_offset = ahead.end(partition).unwrap_or_else(|| found.next_offset());
        let header = &batch.header;
        if header.attributes.is_transactional() {
            let producer = producer_of(header);
            if let Some(refused) =
                transactions::refused(producer, ahead, state.rows, &terms.shard.pending)
            {
                return Slot::Refused(AppendError::Transaction(refused));
            }
            let (writes, touched) = (PendingTransaction::Writes, &mut self.touched);
            ahead.record_transaction(producer.id, writes, self.ticket, touched);
            // An abort would leave the ids of records that no reader gets.
            batch.deduplicated = false;
        }
        let sequence = match check_sequence(partition, header, found, ahead) {
            Ok(sequence) => sequence,
            Err(slot) => return slot,
        };
        // After the check for a duplicate: a retry finds its own records there.
        if batch.expect.is_some_and(|expected| expected != base_offset) {
            return Slot::Refused(AppendError::NotAtExpected { end: base_offset });
        }
        let end_of = |partition| ahead.end(partition);
        let bytes = batch.bytes.bytes();
        let refused = limits::refused_for_space(&terms.room)
            .or_else(|| refused_for_limits(partition, header, bytes, end_of, state, terms))
            .or_else(|| limits::refused_for_ids(batch.ids.as_ref()));
        if let Some(refused) = refused {
            return Slot::Refused(refused);
        }
        if let Some(sequence) = sequence {
            let producer = (partition, header.producer_id);
            let (ticket, touched) = (self.ticket, &mut self.touched);
            ahead.record_producer(producer, found, sequence, base_offset, ticket, touched);
        }
        let mut copies = None;
        let topic = state.catalog.topic(partition.topic);
        let window_ms = topic.map_or(0, |topic| topic.config.dedup_window_ms);
        if batch.deduplicated && window_ms > 0 {
            let bytes = &batch.bytes;
            let ids = batch.ids.get_or_insert_with(|| RecordIds::read(bytes.bytes()));
            let (now_ms, ticket) = (terms.now_ms, self.ticket);
            let going = BatchTarget { partition, base_offset, window_ms, now_ms, ticket };
            let (outcome, ids) = dedup.check(header, ids, going, state.rows.record_ids());
            self.concerns_ids = true;
            if !ids.is_empty() {
                let append = self.bodies.len() as u32;
                self.ids.push((partition.topic, AppendedIds { append, ids }));
            }
            match outcome {
                Deduplicated::Whole => {}
                Deduplicated::Nothing { partition, offset } => {
                    return Slot::Duplicate { partition, base_offset: offset };
                }
                Deduplicated::Part(some) => copies = Some(some),
            }
        }
        let (body, leader_epoch) = (self.bodies.len(), terms.epoch_of(partition, state));
        let bytes = match copies {
            Some(copies) => {
                let whole = batch.bytes.copied();
                self.parts.push(PendingBody { body, base_offset, leader_epoch, whole, copies });
                Bytes::new()
            }
            None => batch.bytes.place(base_offset, leader_epoch),
        };
        self.push_body(partition, base_offset, &batch.header, bytes, context);
        Slot::Body { partition, body, base_offset }
    }

    pub(super) fn push_body(
        &mut self,
        partition: PartitionId,
        base_offset: Offset,
        header: &BatchHeader,
        bytes: Bytes,
        context: &mut Context<'_>,
    ) {
        let span = span(header);
        let end = base_offset + u64::from(span);
        context.ahead.record_end(partition, end, self.ticket, &mut self.touched);
        self.bodies.push(Body {
            stream: partition.stream(),
            base_offset,
            span,
            // A batch without a timestamp must not be old for retention.
            max_timestamp: Some(header.max_timestamp)
                .filter(|at| *at >= 0)
                .unwrap_or(context.terms.now_ms),
            bytes,
        });
    }
}

/// A proposal ready to be encoded.
pub(super) struct FinishedProposal {
    pub(super) ticket: u64,
    pub(super) bodies: Vec<Body>,
    pub(super) units: Vec<Unit>,
    pub(super) touched: TouchedKeys,
    pub(super) commands: Vec<Command>,
    /// Partitions with imported parts, which are not new records.
    pub(super) imported: Vec<PartitionId>,
    pub(super) pending: PendingRequests,
}

/// Returns the sequence of an idempotent producer's batch if it is the next one, or else the row's result.
fn check_sequence(
    partition: PartitionId,
    header: &BatchHeader,
    found: &Partition,
    ahead: &PendingState,
) -> Result<Option<BatchSequence>, Slot> {
    let Some(sequence) = sequence_of(header) else { return Ok(None) };
    match ahead.check((partition, header.producer_id), found, sequence) {
        Ok(SequenceVerdict::New) => Ok(Some(sequence)),
        Ok(SequenceVerdict::Duplicate { base_offset }) => {
            Err(Slot::Duplicate { partition, base_offset })
        }
        Err(refusal) => Err(Slot::Refused(AppendError::Sequence(refusal))),
    }
}

/// Returns the sequence that an idempotent producer gave its batch. A marker has none.
pub(super) fn sequence_of(header: &BatchHeader) -> Option<BatchSequence> {
    let sequence = || BatchSequence::new(header.producer_epoch, header.base_sequence, span(header));
    (header.is_idempotent() && !header.attributes.is_control()).then(sequence)
}

fn producer_of(header: &BatchHeader) -> ProducerKey {
    ProducerKey { id: header.producer_id, epoch: header.producer_epoch }
}

/// Returns why one of the batches, which are accepted together or not at all, would be rejected. Each has to fit
/// after those before it.
pub(super) fn refused(batches: &[AppendBatch], context: &Context<'_>) -> Option<AppendError> {
    let Context { ahead, state, terms, .. } = context;
    let mut ends: HashMap<PartitionId, Offset> = HashMap::default();
    for batch in batches {
        let AppendBatch { header, bytes, expect, .. } = batch;
        for partition in batch.partitions() {
            let unknown = Some(AppendError::UnknownPartition(partition));
            if ahead.is_deleted(partition.topic) {
                return unknown;
            }
            if ahead.freezes(partition).is_some() || state.rows.is_frozen(partition) {
                return Some(AppendError::Moving(partition));
            }
            let Some(found) = state.rows.partition(partition) else { return unknown };
            if header.attributes.is_transactional()
                && let Some(refused) = transactions::refused(
                    producer_of(header),
                    ahead,
                    state.rows,
                    &terms.shard.pending,
                )
            {
                return Some(AppendError::Transaction(refused));
            }
            match check_sequence(partition, header, found, ahead) {
                Ok(_) => {}
                Err(Slot::Refused(refused)) => return Some(refused),
                // It was appended before, so the whole unit was.
                Err(_) => return Some(AppendError::UnitRefused),
            }
            let end_of = |partition| ends.get(&partition).copied().or_else(|| ahead.end(partition));
            let end = end_of(partition).unwrap_or_else(|| found.next_offset());
            if expect.is_some_and(|expected| expected != end) {
                return Some(AppendError::NotAtExpected { end });
            }
            let refused = limits::refused_for_space(&terms.room)
                .or_else(|| refused_for_limits(partition, header, bytes, end_of, state, terms));
            if refused.is_some() {
                return refused;
            }
            ends.insert(partition, end + u64::from(span(header)));
        }
    }
    None
}

/// Number of offsets of the batch.
pub(super) fn span(header: &BatchHeader) -> u32 {
    header.last_offset_delta.max(0) as u32 + 1
}

/// Checks the topic's limits. `ahead` returns the ends that the machine does not know yet.
fn refused_for_limits(
    partition: PartitionId,
    header: &BatchHeader,
    batch: &[u8],
    ahead: impl Fn(PartitionId) -> Option<Offset>,
    state: &View<'_>,
    terms: &ProposalContext<'_>,
) -> Option<AppendError> {
    let topic = state.catalog.topic(partition.topic)?;
    let records = u64::from(span(header));
    limits::refused(state, topic, terms.shard, ahead, records, batch)
}

/// Whether records that a full topic rejects become dead letters.
fn makes_dead_letters(partition: PartitionId, state: &View<'_>) -> bool {
    let topic = state.catalog.topic(partition.topic);
    topic.is_some_and(|topic| topic.config.limit_overflow == LimitOverflow::RejectDeadLetter)
}
