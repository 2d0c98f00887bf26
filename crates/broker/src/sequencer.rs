//! Gives batches their offsets, and makes one proposal of all that waits.
//!
//! The leader decides a batch's offset before it is proposed, so that what is written is final:
//! consumers are served the journal's own bytes. For that it looks ahead of the machine: `Ahead`
//! holds the ends and the producers' sequences of what is proposed and not yet applied. The
//! machine has the last word: an entry that does not fit is refused there, alike on every replica.
//!
//! Batching needs no timer: while proposals are under way, what arrives joins the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::{PROPOSAL_BYTES_MAX, PROPOSALS_IN_FLIGHT_MAX};
use base::{Clock, Offset, PartitionId};
use bytes::{Bytes, BytesMut};
use consensus::{Consensus, Payload, ProposeError, Proposed};
use hashbrown::HashMap;
use journal::{Body, Room};
use machine::config::{Durability, LimitOverflow};
use machine::partition::Partition;
use machine::producer::{BatchSequence, ProducerState, SequenceRefusal, SequenceVerdict};
use machine::{Command, Outcome, State, command};
use tokio::sync::{mpsc, oneshot};

use record::BatchHeader;

use crate::append::{AppendBatch, Appended};
use crate::dedup::{Dedup, Deduplicated, Going};
use crate::delivery::driver::Message;
use crate::delivery::overflow;
use crate::error::{AppendError, Unavailable};
use crate::shard::{CommandFailed, Pending, PendingAppend, Shard, Slot};

pub(crate) enum Request {
    /// With `commands`, which go into the same entry, it is all or nothing: one batch that is refused
    /// keeps the rest out, and the commands too.
    Append {
        batches: Vec<AppendBatch>,
        commands: Vec<Command>,
        reply: oneshot::Sender<Vec<Result<Appended, AppendError>>>,
    },
    Execute {
        command: Command,
        reply: oneshot::Sender<Result<Outcome, CommandFailed>>,
    },
}

pub(crate) struct Sequencer {
    shard: Arc<Shard>,
    consensus: Consensus,
    clock: Arc<dyn Clock>,
    inbox: mpsc::UnboundedReceiver<Request>,
    ahead: Ahead,
    dedup: Dedup,
    under_way: VecDeque<UnderWay>,
    /// Time in the log never runs backwards, whatever the clock does.
    now_ms: i64,
    drained: Vec<Request>,
}

struct UnderWay {
    ticket: u64,
    proposed: Proposed,
    touched: Touched,
}

/// What a proposal put into [`Ahead`], to be taken out once it is applied.
#[derive(Default)]
struct Touched {
    partitions: Vec<PartitionId>,
    producers: Vec<(PartitionId, i64)>,
}

/// What the machine will know once all that is under way is applied, where it differs.
/// Each value carries the ticket of the last proposal that changed it.
#[derive(Default)]
struct Ahead {
    ends: HashMap<PartitionId, (Offset, u64)>,
    producers: HashMap<(PartitionId, i64), (ProducerState, u64)>,
}

/// A proposal in the making.
struct Proposal {
    ticket: u64,
    pending: Pending,
    bodies: Vec<Body>,
    commands: Vec<Command>,
    touched: Touched,
}

/// What holds for every batch of one drain.
struct Terms<'a> {
    leader_epoch: i32,
    room: Room,
    now_ms: i64,
    shard: &'a Shard,
}

impl Sequencer {
    pub(crate) fn new(
        shard: Arc<Shard>,
        consensus: Consensus,
        clock: Arc<dyn Clock>,
        inbox: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        Self {
            shard,
            consensus,
            clock,
            inbox,
            ahead: Ahead::default(),
            dedup: Dedup::default(),
            under_way: VecDeque::new(),
            now_ms: 0,
            drained: Vec::new(),
        }
    }

    /// Runs until every sender of requests is gone and all that was proposed is answered.
    pub(crate) async fn run(mut self) {
        self.dedup.load(&self.shard, self.clock.now_ms()).await;
        let mut open = true;
        while open || !self.under_way.is_empty() {
            let may_propose = open && self.under_way.len() < PROPOSALS_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                settled = settled(self.under_way.front_mut()), if !self.under_way.is_empty() => {
                    self.settle(settled).await;
                }
                received = self.inbox.recv(), if may_propose => match received {
                    Some(request) => self.drain(request).await,
                    None => open = false,
                }
            }
        }
    }

    /// Makes one proposal of `first` and of all that waits behind it.
    async fn drain(&mut self, first: Request) {
        let mut bytes = first.bytes();
        self.drained.push(first);
        while bytes < PROPOSAL_BYTES_MAX {
            let Ok(next) = self.inbox.try_recv() else { break };
            bytes += next.bytes();
            self.drained.push(next);
        }
        self.now_ms = self.now_ms.max(self.clock.now_ms());
        let shard = Arc::clone(&self.shard);
        let terms = Terms {
            leader_epoch: self.consensus.term() as i32,
            room: self.shard.journal.room(),
            now_ms: self.now_ms,
            shard: &shard,
        };
        let mut proposal = Proposal::new(self.shard.ticket());
        let Self { ahead, dedup, drained, .. } = self;
        shard.read(|state| {
            for request in drained.drain(..) {
                proposal.add(request, ahead, dedup, state, &terms);
            }
        });
        if proposal.pending.awaits_the_log() {
            self.propose(proposal).await;
        } else {
            proposal.pending.answer_refused();
        }
    }

    async fn propose(&mut self, proposal: Proposal) {
        let Proposal { ticket, pending, bodies, commands, touched } = proposal;
        self.shard.expect(ticket, pending);
        if let Some(delivery) = self.shard.delivery.get().filter(|_| !bodies.is_empty()) {
            let taken =
                bodies.iter().map(|body| (PartitionId::from_stream(body.stream).topic, body.span));
            delivery.published.add(self.now_ms, taken);
        }
        let head = command::encode_head(self.now_ms, &commands);
        match self.consensus.propose(Payload { head, bodies, ticket }).await {
            Ok(proposed) => self.under_way.push_back(UnderWay { ticket, proposed, touched }),
            Err(error) => self.fail_all(ticket, &error).await,
        }
    }

    /// The oldest proposal under way came to its end.
    async fn settle(&mut self, settled: Result<(), ProposeError>) {
        let Some(done) = self.under_way.pop_front() else { return };
        match settled {
            Ok(()) => self.ahead.forget(done.ticket, &done.touched),
            Err(error) => self.fail_all(done.ticket, &error).await,
        }
    }

    /// A proposal failed, so whatever was sequenced after it stands on nothing: let all that is
    /// under way come to its end, then look at the machine afresh.
    async fn fail_all(&mut self, ticket: u64, error: &ProposeError) {
        tracing::warn!(%error, "a proposal failed");
        self.shard.fail(ticket, &unavailable(error));
        while let Some(mut next) = self.under_way.pop_front() {
            if let Err(error) = settled(Some(&mut next)).await {
                self.shard.fail(next.ticket, &unavailable(&error));
            }
        }
        self.ahead = Ahead::default();
        self.dedup.forget_from(ticket);
    }
}

/// How the proposal ended. Pending for ever when there is none.
async fn settled(under_way: Option<&mut UnderWay>) -> Result<(), ProposeError> {
    match under_way {
        Some(next) => (&mut next.proposed).await.map(|_| ()),
        None => std::future::pending().await,
    }
}

fn unavailable(error: &ProposeError) -> Unavailable {
    match error {
        ProposeError::NotLeader { .. } => Unavailable::NotLeader,
        ProposeError::Stopping => Unavailable::Stopping,
        ProposeError::Failed(why) => Unavailable::Failed(why.to_string()),
    }
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Request::Append { batches, .. } => batches.iter().map(|batch| batch.bytes.len()).sum(),
            Request::Execute { .. } => 0,
        }
    }
}

impl Proposal {
    fn new(ticket: u64) -> Self {
        Self {
            ticket,
            pending: Pending::default(),
            bodies: Vec::new(),
            commands: Vec::new(),
            touched: Touched::default(),
        }
    }

    fn add(
        &mut self,
        request: Request,
        ahead: &mut Ahead,
        dedup: &mut Dedup,
        state: &State,
        terms: &Terms<'_>,
    ) {
        match request {
            Request::Append { batches, commands, reply } => {
                let early = commands.is_empty()
                    && batches.iter().all(|batch| {
                        let topic = state.topic(batch.partition.topic);
                        topic.is_some_and(|topic| topic.config.durability == Durability::Replicated)
                    });
                let refused = match commands.is_empty() {
                    true => None,
                    false => refused(&batches, ahead, state, terms),
                };
                let slots = match refused {
                    Some(refused) => {
                        batches.iter().map(|_| Slot::Refused(refused.clone())).collect()
                    }
                    None => {
                        // What the broker itself moves from topic to topic is a copy on purpose.
                        let mut dedup = commands.is_empty().then_some(&mut *dedup);
                        self.pending.commands.extend(commands.iter().map(|_| None));
                        self.commands.extend(commands);
                        batches
                            .into_iter()
                            .map(|batch| {
                                self.sequence(batch, ahead, dedup.as_deref_mut(), state, terms)
                            })
                            .collect()
                    }
                };
                self.pending.appends.push(PendingAppend { slots, early, reply: Some(reply) });
            }
            Request::Execute { command, reply } => {
                self.commands.push(command);
                self.pending.commands.push(Some(reply));
            }
        }
    }

    /// Gives the batch its place, or says why it gets none.
    fn sequence(
        &mut self,
        batch: AppendBatch,
        ahead: &mut Ahead,
        dedup: Option<&mut Dedup>,
        state: &State,
        terms: &Terms<'_>,
    ) -> Slot {
        let AppendBatch { partition, header, mut bytes, expect, ids } = batch;
        let Some(found) = state.partition(partition) else {
            return Slot::Refused(AppendError::UnknownPartition(partition));
        };
        let base_offset = ahead.end(partition).unwrap_or_else(|| found.next_offset());
        let span = header.last_offset_delta.max(0) as u32 + 1;
        let full = |ahead: &Ahead| {
            let end_of = |partition| ahead.end(partition);
            refused_for_limits(partition, &header, bytes.len(), end_of, state, terms)
        };
        let unexpected = expect.is_some_and(|expected| expected != base_offset);
        if header.is_idempotent() {
            let producer = (partition, header.producer_id);
            let sequence = BatchSequence::new(header.producer_epoch, header.base_sequence, span);
            match ahead.check(producer, found, sequence) {
                Ok(SequenceVerdict::New) => {}
                Ok(SequenceVerdict::Duplicate { base_offset }) => {
                    return Slot::Duplicate { partition, base_offset };
                }
                Err(refusal) => return Slot::Refused(AppendError::Sequence(refusal)),
            }
            // After the look for a duplicate: a retry finds its own records there.
            if unexpected {
                return Slot::Refused(AppendError::NotAtExpected { end: base_offset });
            }
            if let Some(refused) = refused_for_space(&terms.room) {
                return Slot::Refused(refused);
            }
            if let Some(full) = full(ahead) {
                return Slot::Refused(terms.refuse_full(full, state, partition, bytes));
            }
            ahead.record(producer, found, sequence, base_offset, self.ticket);
            self.touched.producers.push(producer);
        } else if unexpected {
            return Slot::Refused(AppendError::NotAtExpected { end: base_offset });
        } else if let Some(refused) = refused_for_space(&terms.room) {
            return Slot::Refused(refused);
        } else if let Some(full) = full(ahead) {
            return Slot::Refused(terms.refuse_full(full, state, partition, bytes));
        }
        let window_of = |topic| state.topic(topic).map_or(0, |it| it.config.dedup_window_ms);
        let window_ms = window_of(partition.topic);
        if let Some(dedup) = dedup.filter(|_| window_ms > 0) {
            dedup.keep(partition.topic, |topic| window_of(topic) > 0);
            let (now_ms, ticket) = (terms.now_ms, self.ticket);
            let going = Going { partition, base_offset, window_ms, now_ms, ticket };
            match dedup.check(&header, &bytes, ids, going) {
                Deduplicated::Whole => {}
                Deduplicated::Nothing { partition, offset } => {
                    return Slot::Duplicate { partition, base_offset: offset };
                }
                Deduplicated::Part(rest) => bytes = BytesMut::from(Bytes::from(rest)),
            }
        }
        record::assign(&mut bytes, base_offset, terms.leader_epoch);
        ahead.ends.insert(partition, (base_offset + u64::from(span), self.ticket));
        self.touched.partitions.push(partition);
        let body = self.bodies.len();
        self.bodies.push(Body {
            stream: partition.stream(),
            base_offset,
            span,
            // Retention by time must not take for ancient what only bears no time.
            max_timestamp: Some(header.max_timestamp).filter(|at| *at >= 0).unwrap_or(terms.now_ms),
            bytes: bytes.freeze(),
        });
        Slot::Body { partition, body, base_offset }
    }
}

/// Why one of the batches, which stand or fall together, would be refused: each has to fit beside
/// those before it.
fn refused(
    batches: &[AppendBatch],
    ahead: &Ahead,
    state: &State,
    terms: &Terms<'_>,
) -> Option<AppendError> {
    let mut ends: HashMap<PartitionId, Offset> = HashMap::new();
    for AppendBatch { partition, header, bytes, expect, .. } in batches {
        let Some(found) = state.partition(*partition) else {
            return Some(AppendError::UnknownPartition(*partition));
        };
        let end_of = |partition| ends.get(&partition).copied().or_else(|| ahead.end(partition));
        let end = end_of(*partition).unwrap_or_else(|| found.next_offset());
        if expect.is_some_and(|expected| expected != end) {
            return Some(AppendError::NotAtExpected { end });
        }
        let refused = refused_for_space(&terms.room)
            .or_else(|| refused_for_limits(*partition, header, bytes.len(), end_of, state, terms));
        if refused.is_some() {
            return refused;
        }
        ends.insert(*partition, end + span(header));
    }
    None
}

/// How many offsets the batch takes.
fn span(header: &BatchHeader) -> u64 {
    header.last_offset_delta.max(0) as u64 + 1
}

/// The topic holds as much as it may. `ahead` tells the ends that the machine does not know yet.
fn refused_for_limits(
    partition: PartitionId,
    header: &BatchHeader,
    bytes: usize,
    ahead: impl Fn(PartitionId) -> Option<Offset>,
    state: &State,
    terms: &Terms<'_>,
) -> Option<AppendError> {
    let topic = state.topic(partition.topic)?;
    overflow::refused(state, topic, terms.shard, ahead, span(header), bytes as u64)
}

fn refused_for_space(room: &Room) -> Option<AppendError> {
    match *room {
        Room::Ok => None,
        Room::Full { free_bytes, reserve_bytes } => {
            Some(AppendError::StorageFull { free_bytes, reserve_bytes })
        }
    }
}

impl Terms<'_> {
    /// Some topics make dead letters of what they refuse.
    fn refuse_full(
        &self,
        full: AppendError,
        state: &State,
        partition: PartitionId,
        bytes: BytesMut,
    ) -> AppendError {
        let topic = state.topic(partition.topic);
        let buries = topic
            .is_some_and(|topic| topic.config.limit_overflow == LimitOverflow::RejectDeadLetter);
        if let Some(delivery) = self.shard.delivery.get().filter(|_| buries) {
            delivery.tell(Message::Overflowed { partition, bytes: bytes.freeze() });
        }
        full
    }
}

impl Ahead {
    fn end(&self, partition: PartitionId) -> Option<Offset> {
        self.ends.get(&partition).map(|(end, _)| *end)
    }

    fn check(
        &self,
        producer: (PartitionId, i64),
        found: &Partition,
        sequence: BatchSequence,
    ) -> Result<SequenceVerdict, SequenceRefusal> {
        let ahead = self.producers.get(&producer).map(|(state, _)| state);
        match ahead.or_else(|| found.producer(producer.1)) {
            Some(known) => known.check(sequence),
            None => ProducerState::check_unknown(sequence),
        }
    }

    fn record(
        &mut self,
        producer: (PartitionId, i64),
        found: &Partition,
        sequence: BatchSequence,
        base_offset: Offset,
        ticket: u64,
    ) {
        // When it was last heard of matters to the machine only, which knows the time.
        const UNTIMED: i64 = 0;
        let known = self.producers.get(&producer).map(|(state, _)| *state);
        let state = match known.or_else(|| found.producer(producer.1).copied()) {
            Some(mut state) => {
                state.record(sequence, base_offset, UNTIMED);
                state
            }
            None => ProducerState::started(sequence, base_offset, UNTIMED),
        };
        self.producers.insert(producer, (state, ticket));
    }

    /// The machine knows it now.
    fn forget(&mut self, ticket: u64, touched: &Touched) {
        for partition in &touched.partitions {
            if self.ends.get(partition).is_some_and(|(_, last)| *last == ticket) {
                self.ends.remove(partition);
            }
        }
        for key in &touched.producers {
            if self.producers.get(key).is_some_and(|(_, last)| *last == ticket) {
                self.producers.remove(key);
            }
        }
    }
}
