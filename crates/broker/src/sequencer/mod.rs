//! Gives batches their offsets, and makes one proposal of all that waits.
//!
//! The leader decides a batch's offset before it is proposed, so that what is written is final:
//! consumers are served the journal's own bytes. For that it looks ahead of the machine: `Ahead`
//! holds the ends and the producers' sequences of what is proposed and not yet applied. The
//! machine has the last word: an entry that does not fit is refused there, alike on every replica.
//!
//! A batch of which some records were there before is written without them. Where that takes long the
//! request is set aside until it is done ([`partial`]): others do not wait for it.
//!
//! Batching needs no timer: while proposals are under way, what arrives joins the next one.

mod ahead;
mod partial;
mod proposal;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use base::PartitionId;
use base::limits::{ENTRY_ROW_BYTES, PROPOSAL_BYTES_MAX, PROPOSALS_IN_FLIGHT_MAX};
use consensus::{Consensus, Payload, ProposeError, Proposed};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, FusedFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use machine::{Command, State};
use tokio::sync::{mpsc, oneshot};
use world::Clock;

use crate::append::AppendBatch;
use crate::cpu::CpuPool;
use crate::dedup::Dedup;
use crate::error::Unavailable;
use crate::pending::{Appends, CommandReply};
use crate::shard::Shard;
use ahead::{Ahead, Touched};
use proposal::{Context, Finished, Proposal, Terms};

/// What is asked of the log. An answer to batches has a result for each row: of each batch, its
/// partition's first, then those of `also`.
pub(crate) enum Request {
    /// Each row is taken or refused by itself.
    Append {
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Appends>,
    },
    /// At least one batch, and commands that go into the same entry: all of it takes effect, or
    /// nothing.
    Unit {
        batches: Vec<AppendBatch>,
        commands: Vec<Command>,
        reply: oneshot::Sender<Appends>,
    },
    Execute {
        command: Command,
        reply: CommandReply,
    },
}

pub(crate) struct Sequencer {
    shard: Arc<Shard>,
    consensus: Consensus,
    clock: Arc<dyn Clock>,
    inbox: mpsc::UnboundedReceiver<Request>,
    ahead: Ahead,
    dedup: Dedup,
    cpu: CpuPool,
    /// Requests that are set aside until their batches are made without copies.
    aside: FuturesUnordered<BoxFuture<'static, Request>>,
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

impl Sequencer {
    pub(crate) fn new(
        shard: Arc<Shard>,
        consensus: Consensus,
        clock: Arc<dyn Clock>,
        cpu: CpuPool,
        inbox: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        Self {
            shard,
            consensus,
            clock,
            inbox,
            ahead: Ahead::default(),
            dedup: Dedup::default(),
            cpu,
            aside: FuturesUnordered::new(),
            under_way: VecDeque::new(),
            now_ms: 0,
            drained: Vec::new(),
        }
    }

    /// Runs until every sender of requests is gone and all that was proposed is answered.
    pub(crate) async fn run(mut self) {
        // The clock may have been set back since the last entry.
        self.now_ms = self.shard.read(State::last_ms);
        self.dedup.load(&self.shard, self.clock.now_ms()).await;
        let mut open = true;
        let consensus = self.consensus.clone();
        let mut ended = pin!(consensus.ended().fuse());
        while open || !self.under_way.is_empty() || !self.aside.is_empty() {
            let has_room = self.under_way.len() < PROPOSALS_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                settled = settled(self.under_way.front_mut()), if !self.under_way.is_empty() => {
                    self.settle(settled, &mut ended).await;
                }
                error = &mut ended, if !self.under_way.is_empty() => self.fail_under_way(&error),
                Some(request) = self.aside.next(), if has_room && !self.aside.is_empty() => {
                    self.drain(request, &mut ended).await;
                }
                received = self.inbox.recv(), if open && has_room => match received {
                    Some(request) => self.drain(request, &mut ended).await,
                    None => open = false,
                }
            }
        }
    }

    /// Makes one proposal of `first` and of all that waits behind it.
    async fn drain(&mut self, first: Request, ended: &mut impl Ended) {
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
        let Self { ahead, dedup, drained, aside, cpu, .. } = self;
        shard.read(|state| {
            let mut context = Context { ahead, dedup, state, terms: &terms };
            for request in drained.drain(..) {
                let partial = partial::copies_in(&request, &context);
                if partial.is_empty() {
                    proposal.add(request, &mut context);
                } else {
                    aside.push(partial::made_without(request, partial, cpu.clone()).boxed());
                }
            }
        });
        let finished = proposal.finish();
        if finished.pending.awaits_the_log() {
            self.propose(finished, ended).await;
        } else {
            finished.pending.answer_refused();
        }
    }

    async fn propose(&mut self, finished: Finished, ended: &mut impl Ended) {
        let Finished { ticket, pending, bodies, units, commands, touched } = finished;
        self.shard.expect(ticket, pending);
        if let Some(delivery) = self.shard.delivery.get().filter(|_| !bodies.is_empty()) {
            let taken =
                bodies.iter().map(|body| (PartitionId::from_stream(body.stream).topic, body.span));
            delivery.published.add(self.now_ms, taken);
        }
        let head = machine::encode_head(self.now_ms, &commands, &units);
        match self.consensus.propose(Payload { head, bodies, ticket }).await {
            Ok(proposed) => self.under_way.push_back(UnderWay { ticket, proposed, touched }),
            Err(error) => self.fail_all(ticket, &error, ended).await,
        }
    }

    /// The oldest proposal under way came to its end.
    async fn settle(&mut self, settled: Result<(), ProposeError>, ended: &mut impl Ended) {
        let Some(done) = self.under_way.pop_front() else { return };
        match settled {
            Ok(()) => self.ahead.forget(done.ticket, &done.touched),
            Err(error) => self.fail_all(done.ticket, &error, ended).await,
        }
    }

    /// A proposal failed, so whatever was sequenced after it stands on nothing: let all that is
    /// under way come to its end, then look at the machine afresh.
    async fn fail_all(&mut self, ticket: u64, error: &ProposeError, ended: &mut impl Ended) {
        tracing::warn!(%error, "a proposal failed");
        self.shard.fail(ticket, &unavailable(error));
        while !self.under_way.is_empty() {
            tokio::select! {
                biased;
                settled = settled(self.under_way.front_mut()) => {
                    let done = self.under_way.pop_front();
                    if let (Some(done), Err(error)) = (done, settled) {
                        self.shard.fail(done.ticket, &unavailable(&error));
                    }
                }
                error = &mut *ended => self.fail_under_way(&error),
            }
        }
        self.ahead = Ahead::default();
        self.dedup.forget_from(ticket);
    }

    /// Consensus has ended: nobody will tell what became of these.
    fn fail_under_way(&mut self, error: &ProposeError) {
        tracing::warn!(%error, "consensus ended with proposals under way");
        for lost in self.under_way.drain(..) {
            self.shard.fail(lost.ticket, &unavailable(error));
        }
    }
}

/// The end of consensus, which comes once.
trait Ended: FusedFuture<Output = ProposeError> + Unpin {}

impl<F: FusedFuture<Output = ProposeError> + Unpin> Ended for F {}

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
    /// About what it takes of an entry.
    fn bytes(&self) -> usize {
        let of_batches = |batches: &[AppendBatch]| -> usize {
            batches.iter().map(|batch| batch.bytes.len() + batch.rows() * ENTRY_ROW_BYTES).sum()
        };
        match self {
            Request::Append { batches, .. } => of_batches(batches),
            Request::Unit { batches, commands, .. } => {
                of_batches(batches) + commands.iter().map(Command::weight).sum::<usize>()
            }
            Request::Execute { command, .. } => command.weight(),
        }
    }
}
