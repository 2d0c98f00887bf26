//! A shard as its replicas see it: the machine, the journal's index beside it, and on the leader
//! those who wait for an answer.
//!
//! One lock holds the machine. Consensus takes it once an entry, to apply; whoever asks a question
//! takes it shared, for as long as the question lasts. Nothing is taken for a single record.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base::{Offset, PartitionId};
use bytes::Bytes;
use consensus::{Committed, RestoreError, StateMachine};
use hashbrown::HashMap;
use journal::{Body, Journal};
use machine::outcome::{AppendOutcome, Applied};
use machine::{Append, Command, Entry, Outcome, Refusal, State, command};
use parking_lot::{Mutex, RwLock};
use record::BatchHeader;
use tokio::sync::oneshot;

use crate::append::Appended;
use crate::delivery::driver::Handle;
use crate::error::{AppendError, Unavailable};
use crate::watch::Watchers;

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) journal: Journal,
    pub(crate) watchers: Arc<Watchers>,
    /// Set once the node leads: until then there is nobody to deliver to.
    pub(crate) delivery: OnceLock<Handle>,
    state: RwLock<State>,
    /// Proposals of this node that are on their way, by ticket.
    pending: Mutex<HashMap<u64, Pending>>,
    next_ticket: AtomicU64,
    /// Requests in `pending` that are answered when they are written, without the sync.
    early: AtomicUsize,
    /// The ticket of the last proposal of which something was answered so.
    answered_early: AtomicU64,
    /// Reused by every apply; entries are applied one at a time.
    scratch: Mutex<Scratch>,
}

#[derive(Debug, Default)]
struct Scratch {
    appends: Vec<Append>,
    applied: Applied,
}

/// Who waits for a proposal.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) appends: Vec<PendingAppend>,
    /// `None`: nobody asks for this command's outcome.
    pub(crate) commands: Vec<Option<oneshot::Sender<Result<Outcome, CommandFailed>>>>,
    /// Readers that want to see what was answered early. Dropped once the proposal is applied, or
    /// failed: that is all they wait for.
    readers: Vec<oneshot::Sender<()>>,
}

pub(crate) type CommandFailed = crate::error::ExecuteError;

#[derive(Debug)]
pub(crate) struct PendingAppend {
    pub(crate) slots: Vec<Slot>,
    /// Every batch of it is for a topic whose durability is `replicated`: it is answered when it
    /// is written.
    pub(crate) early: bool,
    /// `None` once it was answered.
    pub(crate) reply: Option<oneshot::Sender<Vec<Result<Appended, AppendError>>>>,
}

/// What became of one batch of a request when it was sequenced.
#[derive(Debug)]
pub(crate) enum Slot {
    /// It is the proposal's body of this number.
    Body {
        partition: PartitionId,
        body: usize,
        base_offset: Offset,
    },
    /// A retry of a batch that is in the log before this proposal, or durable already.
    Duplicate {
        partition: PartitionId,
        base_offset: Offset,
    },
    Refused(AppendError),
}

impl Shard {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal,
            watchers: Arc::default(),
            delivery: OnceLock::new(),
            state: RwLock::new(State::new()),
            pending: Mutex::default(),
            // Ticket 0 means "nobody here waits": an entry that is replayed or someone else's.
            next_ticket: AtomicU64::new(1),
            early: AtomicUsize::new(0),
            answered_early: AtomicU64::new(0),
            scratch: Mutex::default(),
        }
    }

    pub(crate) fn read<R>(&self, question: impl FnOnce(&State) -> R) -> R {
        question(&self.state.read())
    }

    /// A number for a proposal of this node, never given twice.
    pub(crate) fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers who waits, before the proposal can possibly be applied.
    pub(crate) fn expect(&self, ticket: u64, pending: Pending) {
        self.early.fetch_add(pending.early(), Ordering::AcqRel);
        self.pending.lock().insert(ticket, pending);
    }

    fn take(&self, ticket: u64) -> Option<Pending> {
        let pending = self.pending.lock().remove(&ticket)?;
        self.early.fetch_sub(pending.early(), Ordering::AcqRel);
        Some(pending)
    }

    /// Waits until all that was answered before it was applied is applied, so that whoever asks from
    /// then on sees it. Proposals are applied in the order of their tickets.
    pub(crate) async fn apply_answered(&self) {
        let ticket = self.answered_early.load(Ordering::Acquire);
        let applied = {
            let mut pending = self.pending.lock();
            let Some(pending) = pending.get_mut(&ticket) else { return };
            let (reader, applied) = oneshot::channel();
            pending.readers.push(reader);
            applied
        };
        // Nothing is ever sent: its end is the message.
        let _ = applied.await;
    }

    /// The proposal will not be applied, or nobody can know whether it will.
    pub(crate) fn fail(&self, ticket: u64, why: &Unavailable) {
        let Some(pending) = self.take(ticket) else { return };
        pending.fail(why);
    }

    /// Reads an entry's bodies into `appends`, in the machine's words.
    fn describe(bodies: &[Body], appends: &mut Vec<Append>) {
        appends.clear();
        appends.extend(bodies.iter().map(|body| {
            let header = BatchHeader::parse(&body.bytes)
                .expect("a batch in the log was validated before it was proposed");
            Append {
                partition: PartitionId::from_stream(body.stream),
                base_offset: body.base_offset,
                span: body.span,
                leader_epoch: header.leader_epoch,
                max_timestamp: body.max_timestamp,
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
            }
        }));
    }

    /// Carries out what the machine decided about bytes: which are live, which are dead.
    fn settle_bytes(&self, index: u64, applied: &Applied) {
        for (body, outcome) in applied.appends.iter().enumerate() {
            match outcome {
                AppendOutcome::Taken { .. } => self.journal.accept(index, body),
                _ => self.journal.refuse(index, body),
            }
        }
        for (partition, start) in &applied.trimmed {
            self.journal.trim(partition.stream(), *start);
        }
        for (partition, from, to) in &applied.punched {
            self.journal.punch(partition.stream(), *from, *to);
        }
        for (topic, partitions) in &applied.removed {
            let first = PartitionId::new(*topic, 0).stream();
            self.journal.remove(first..first + u64::from(*partitions));
        }
    }

    fn wake(&self, appends: &[Append], applied: &Applied) {
        let gone = applied.removed.iter().flat_map(|&(topic, partitions)| {
            (0..partitions).map(move |index| PartitionId::new(topic, index))
        });
        let trimmed = applied.trimmed.iter().map(|(partition, _)| *partition);
        self.watchers
            .wake(appends.iter().map(|append| append.partition).chain(trimmed).chain(gone));
    }
}

impl StateMachine for Shard {
    fn apply(&self, entry: Committed<'_>) -> u64 {
        let mut scratch = self.scratch.lock();
        let Scratch { appends, applied } = &mut *scratch;
        let (now_ms, commands) = command::decode_head(entry.head)
            .expect("a committed entry was encoded by this version or one that it can read");
        Self::describe(entry.bodies, appends);
        {
            let mut state = self.state.write();
            state.apply(&Entry { now_ms, appends, commands: &commands }, applied);
            // Under the lock: whoever reads the new end must find its batches in the index.
            self.settle_bytes(entry.id.index, applied);
        }
        if let Some(delivery) = self.delivery.get() {
            delivery.applied(&commands, applied);
        }
        if entry.ticket != 0
            && let Some(pending) = self.take(entry.ticket)
        {
            let state = self.state.read();
            pending.answer(&state, applied);
        }
        self.wake(appends, applied);
        changes(appends, &commands)
    }

    fn written(&self, ticket: u64) {
        if self.early.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(pending) = self.pending.lock().get_mut(&ticket) {
            // Before the answers: whoever has one may tell others to look.
            if pending.early() > 0 {
                self.answered_early.fetch_max(ticket, Ordering::AcqRel);
            }
            let answered = pending.answer_early(&self.state.read());
            self.early.fetch_sub(answered, Ordering::AcqRel);
        }
    }

    fn snapshot(&self) -> Bytes {
        Bytes::from(self.state.read().encode())
    }

    fn restore(&self, machine: &[u8]) -> Result<(), RestoreError> {
        let state = State::decode(machine).map_err(|error| RestoreError(error.to_string()))?;
        *self.state.write() = state;
        Ok(())
    }
}

/// About how many microseconds of work an entry is. Most commands are rare; a settle may be about a
/// thousand records, each of them apart from the others.
fn changes(appends: &[Append], commands: &[Command]) -> u64 {
    const PER_BATCH: usize = 2;
    let changes = |command: &Command| match command {
        Command::Settle { settles } => {
            settles.iter().map(|settle| settle.settled.len() + settle.attempts.len()).sum()
        }
        Command::CreateTopics { topics } => topics.len(),
        _ => 1,
    };
    (appends.len() * PER_BATCH + commands.iter().map(changes).sum::<usize>()) as u64
}

impl PendingAppend {
    fn answer(&mut self, answer: impl FnMut(Slot) -> Result<Appended, AppendError>) {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have gone; the records stay.
            let _ = reply.send(std::mem::take(&mut self.slots).into_iter().map(answer).collect());
        }
    }
}

impl Pending {
    /// Requests that still wait for an early answer.
    fn early(&self) -> usize {
        self.appends.iter().filter(|append| append.early && append.reply.is_some()).count()
    }

    /// The proposal is written: answers those that asked for no more. The leader sequenced them,
    /// and the log keeps that order.
    fn answer_early(&mut self, state: &State) -> usize {
        let mut answered = 0;
        for append in self.appends.iter_mut().filter(|append| append.early) {
            append.answer(|slot| slot.answer_early(state));
            answered += 1;
        }
        answered
    }

    /// Whether any of the answers depends on what is in the log.
    pub(crate) fn awaits_the_log(&self) -> bool {
        let refused = |slot: &Slot| matches!(slot, Slot::Refused(_));
        !self.commands.is_empty()
            || self.appends.iter().any(|append| !append.slots.iter().all(refused))
    }

    /// Answers requests of which nothing was taken.
    pub(crate) fn answer_refused(self) {
        debug_assert!(!self.awaits_the_log());
        self.fail(&Unavailable::Stopping);
    }

    fn answer(self, state: &State, applied: &mut Applied) {
        for mut append in self.appends {
            append.answer(|slot| slot.answer(state, applied));
        }
        for (reply, outcome) in self.commands.into_iter().zip(applied.commands.drain(..)) {
            let Some(reply) = reply else { continue };
            let _ = reply.send(outcome.map_err(|refusal: Refusal| CommandFailed::Refused(refusal)));
        }
    }

    pub(crate) fn fail(self, why: &Unavailable) {
        for mut append in self.appends {
            append.answer(|slot| match slot {
                Slot::Refused(error) => Err(error),
                Slot::Body { .. } | Slot::Duplicate { .. } => Err(why.clone().into()),
            });
        }
        for reply in self.commands.into_iter().flatten() {
            let _ = reply.send(Err(why.clone().into()));
        }
    }
}

fn log_start(state: &State, partition: PartitionId) -> Offset {
    state.partition(partition).map_or(0, |found| found.log_start())
}

impl Slot {
    fn answer_early(self, state: &State) -> Result<Appended, AppendError> {
        let (partition, base_offset, duplicate) = match self {
            Slot::Refused(error) => return Err(error),
            Slot::Body { partition, base_offset, .. } => (partition, base_offset, false),
            Slot::Duplicate { partition, base_offset } => (partition, base_offset, true),
        };
        Ok(Appended { base_offset, log_start: log_start(state, partition), duplicate })
    }

    fn answer(self, state: &State, applied: &Applied) -> Result<Appended, AppendError> {
        let taken = |partition, base_offset, duplicate| {
            Ok(Appended { base_offset, log_start: log_start(state, partition), duplicate })
        };
        match self {
            Slot::Refused(error) => Err(error),
            Slot::Duplicate { partition, base_offset } => taken(partition, base_offset, true),
            Slot::Body { partition, body, .. } => match applied.appends[body] {
                AppendOutcome::Taken { base_offset } => taken(partition, base_offset, false),
                AppendOutcome::Duplicate { base_offset } => taken(partition, base_offset, true),
                AppendOutcome::UnknownPartition => Err(AppendError::UnknownPartition(partition)),
                AppendOutcome::Producer(refusal) => Err(AppendError::Sequence(refusal)),
                // Sequenced by a leader that was no longer one; the client tries again.
                AppendOutcome::NotSequenced { .. } => Err(Unavailable::NotLeader.into()),
            },
        }
    }
}
