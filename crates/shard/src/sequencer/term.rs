//! Sequencing for one term: from its first applied entry to the loss of leadership.
//!
//! Proposals that missed the end of the term are not in the log, and they are the last ones. They are proposed again
//! in the next term, before anything else: their clients see a pause and no error.
//!
//! The outcome of a proposal in the log of a deposed leader is known once that node learns of the next leader. A
//! leader that is cut off may not learn of one for hours. So outcomes are awaited for [`OUTCOME_AWAITED_FOR`]; then
//! the requests get [`Unavailable::Unanswered`]. The machine recognizes a retry by its producer's sequence number,
//! whether the proposal was committed later or not.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{LEADERLESS_HOLD, OUTCOME_AWAITED_FOR, PROPOSALS_IN_FLIGHT_MAX};
use base::limits::PROPOSAL_BYTES_MAX;
use base::{ClusterLevel, Level, PartitionId, TopicId};
use cluster::Node;
use consensus::{Consensus, Leadership, Payload, PendingProposal, ProposeError};
use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use journal::Body;
use record::BatchHeader;
use tokio::time::{Instant, sleep, sleep_until};

use super::pending_state::{PendingState, TouchedKeys};
use super::proposal::{Context, FinishedProposal, Proposal, ProposalContext};
use super::rejected_proposal::{ProposalContent, RejectedProposal};
use super::{Sequencer, partial};
use crate::dedup::{self, Dedup};
use crate::error::Unavailable;
use crate::majority;
use crate::request::Request;

/// State of one term.
struct Term {
    leadership: Leadership,
    level: Arc<ClusterLevel>,
    ahead: PendingState,
    under_way: VecDeque<InFlightProposal>,
}

struct InFlightProposal {
    ticket: u64,
    proposed: Result<PendingProposal, ProposeError>,
    touched: TouchedKeys,
    sequenced: ProposalContent,
}

impl Term {
    /// Waits for the outcome of the oldest pending proposal; for ever without one.
    async fn settled(&mut self) -> Result<(), ProposeError> {
        match self.under_way.front_mut() {
            Some(InFlightProposal { proposed: Ok(proposed), .. }) => proposed.await.map(|_| ()),
            Some(InFlightProposal { proposed: Err(error), .. }) => Err(error.clone()),
            None => std::future::pending().await,
        }
    }

    async fn propose(
        &mut self,
        now_ms: i64,
        ticket: u64,
        sequenced: ProposalContent,
        touched: TouchedKeys,
    ) {
        let ProposalContent { bodies, units, commands } = &sequenced;
        let mut level = self.level.now();
        if level < Level::TRANSACTIONS && bodies.iter().any(is_transactional) {
            // The state has the transaction open, so the cluster has reached the level.
            level = Level::TRANSACTIONS;
        }
        let head = machine::encode_head_at(level, now_ms, commands, units);
        let payload = Payload { head, bodies: bodies.clone(), ticket };
        let proposed = self.leadership.propose(payload).await;
        self.under_way.push_back(InFlightProposal { ticket, proposed, touched, sequenced });
    }
}

fn is_transactional(body: &Body) -> bool {
    BatchHeader::parse(&body.bytes).is_ok_and(|header| header.attributes.is_transactional())
}

/// Resolves once learned ids may be stored: at once, or soon after the level was raised.
async fn seeding(dedup: &Dedup, level: &ClusterLevel) {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    while dedup.seeds() && level.now() < Level::RECORD_IDS {
        sleep(LOOK_EVERY).await;
    }
}

/// Interval of checks whether to await outcomes any longer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Pending for ever without a time.
async fn waited(until: Option<Instant>) -> Instant {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
    Instant::now()
}

impl Sequencer {
    /// Sequences until the term is over, or all senders of requests are gone. Returns the proposals that missed the
    /// end of the term, in order.
    pub(super) async fn lead(
        &mut self,
        leadership: Leadership,
        refused: Vec<RejectedProposal>,
    ) -> Vec<RejectedProposal> {
        // The clock may have been set back since the last entry.
        self.now_ms = self.now_ms.max(self.shard.read(|view| view.last_ms));
        let consensus = self.consensus.clone();
        let mut ended = pin!(consensus.ended());
        let holding = leadership.clone();
        let mut lost = pin!(holding.lost());
        tracing::debug!(term = leadership.term(), again = refused.len(), "sequencing begins");
        let known = Arc::clone(&self.shard.level);
        let level = Arc::clone(&known);
        let (ahead, under_way) = (PendingState::default(), VecDeque::new());
        let mut term = Term { leadership, level, ahead, under_way };
        self.propose_again(&mut term, refused).await;
        while self.open || !term.under_way.is_empty() || !self.aside.is_empty() {
            let has_room = term.under_way.len() < PROPOSALS_IN_FLIGHT_MAX;
            let any = !term.under_way.is_empty();
            tokio::select! {
                biased;
                settled = term.settled(), if any => match settled {
                    Ok(()) => {
                        let Some(done) = term.under_way.pop_front() else { continue };
                        term.ahead.forget(done.ticket, &done.touched);
                        self.dedup.applied(done.ticket);
                        if !self.held.is_empty() {
                            // The proposal may have acknowledged messages, so that outboxes have room.
                            self.propose(&mut term).await;
                        }
                    }
                    Err(error) => {
                        if let Some(next) = term.under_way.front_mut() {
                            next.proposed = Err(error);
                        }
                        break;
                    }
                },
                Some(request) = self.aside.next(), if has_room && !self.aside.is_empty() => {
                    self.drain(&mut term, request).await;
                }
                received = self.inbox.recv(), if self.open && has_room => match received {
                    Some(request) => self.drain(&mut term, request).await,
                    None => self.open = false,
                },
                () = seeding(&self.dedup, &known), if has_room && self.dedup.seeds() => {
                    self.drain_waiting(0);
                    self.propose(&mut term).await;
                }
                now = waited(self.held.expires_at()) => self.held.refuse_expired(now),
                () = &mut lost => break,
                _ = &mut ended => break,
            }
        }
        if !self.open {
            self.held.close();
        }
        self.wind_up(term).await
    }

    /// Makes one proposal of `first` and the requests waiting after it.
    async fn drain(&mut self, term: &mut Term, first: Request) {
        let bytes = first.bytes();
        self.drained.push(first);
        self.drain_waiting(bytes);
        self.propose(term).await;
    }

    fn drain_waiting(&mut self, mut bytes: usize) {
        while bytes < PROPOSAL_BYTES_MAX {
            let Ok(next) = self.inbox.try_recv() else { break };
            bytes += next.bytes();
            self.drained.push(next);
        }
    }

    /// Makes one proposal of the drained requests, and of the units with room in their outboxes by now.
    async fn propose(&mut self, term: &mut Term) {
        self.now_ms = self.now_ms.max(self.clock.now_ms());
        if self.drained.iter().any(|request| matches!(request, Request::Closing)) {
            self.held.close();
        }
        let terms = ProposalContext {
            term: term.leadership.term(),
            leader_epoch: term.leadership.term() as i32,
            room: self.shard.journal.room(),
            now_ms: self.now_ms,
            shard: &self.shard,
        };
        dedup::read_ids(&mut self.drained, &self.shard);
        let mut proposal = Proposal::new(self.shard.pending.ticket());
        let Self { dedup, drained, aside, cpu, held, .. } = self;
        let (ahead, permits) = (&mut term.ahead, term.level.now() >= Level::RECORD_IDS);
        self.shard.read(|state| {
            dedup.begin_proposal(permits, state);
            let mut context = Context { ahead, dedup, state, terms: &terms };
            held.release(&mut context, |unit, context| proposal.add(unit, context));
            for request in drained.drain(..) {
                let Some(request) = held.admit(request, &context) else { continue };
                if dedup::needs_ids(&request, state) {
                    aside.push(partial::with_ids(request, cpu.clone()).boxed());
                    continue;
                }
                let partial = partial::copies_in(&request, &context);
                if partial.is_empty() {
                    proposal.add(request, &mut context);
                } else {
                    aside.push(partial::rebuilt_without(request, partial, cpu.clone()).boxed());
                }
            }
            proposal.carry_ids(&mut context);
        });
        let mut finished = proposal.finish();
        if !finished.pending.awaits_the_log() && finished.commands.is_empty() {
            self.shard.pending.drop_after_all(std::mem::take(&mut finished.pending.readers));
            return finished.pending.answer_refused();
        }
        let FinishedProposal { ticket, pending, bodies, units, commands, touched, imported } =
            finished;
        self.shard.pending.expect(ticket, pending);
        if let Some(delivery) = self.shard.delivery.get().filter(|_| !bodies.is_empty()) {
            let taken =
                bodies.iter().map(|body| (PartitionId::from_stream(body.stream), body.span));
            let taken = taken.filter(|(partition, _)| {
                partition.topic != TopicId::CHANNELS && !imported.contains(partition)
            });
            let taken = taken.map(|(partition, span)| (partition.topic, span));
            delivery.published.add(self.now_ms, taken);
        }
        let sequenced = ProposalContent { bodies, units, commands };
        term.propose(self.now_ms, ticket, sequenced, touched).await;
    }

    /// Proposes again what missed the end of the former term. A proposal that no longer fits, because another node
    /// led in between, fails with all that follow it.
    async fn propose_again(&mut self, term: &mut Term, refused: Vec<RejectedProposal>) {
        self.now_ms = self.now_ms.max(self.clock.now_ms());
        let mut refused = refused.into_iter();
        while let Some(RejectedProposal { ticket, term: former, mut sequenced }) = refused.next() {
            if former != term.leadership.term() {
                sequenced.drop_members();
            }
            let (epoch, ahead) = (term.leadership.term() as i32, &mut term.ahead);
            let placed = self.shard.read(|state| {
                let may = Dedup::may_place_again(&sequenced.commands, &sequenced.bodies, state);
                may.then(|| sequenced.place_again(ticket, epoch, ahead, state)).flatten()
            });
            if placed.is_some() {
                self.dedup.place_again(ticket, &sequenced.commands, &sequenced.bodies);
            }
            match placed {
                Some(touched) => term.propose(self.now_ms, ticket, sequenced, touched).await,
                None => {
                    let failed =
                        std::iter::once(RejectedProposal { ticket, term: former, sequenced });
                    let failed = failed.chain(refused);
                    return self.fail_refused(failed.collect());
                }
            }
        }
    }

    /// Waits for the outcomes of all pending proposals, for a while. If the outcome of one is unknown, those after it
    /// fail with it.
    async fn wind_up(&mut self, mut term: Term) -> Vec<RejectedProposal> {
        self.leaderless_since = Instant::now();
        let consensus = self.consensus.clone();
        let mut ended = pin!(consensus.ended());
        let mut overdue = pin!(outcomes_overdue(self.node.clone(), consensus.clone()));
        let mut is_overdue = false;
        let mut refused: Vec<RejectedProposal> = Vec::new();
        let mut failed: Option<Unavailable> = None;
        let mut gone: Option<ProposeError> = None;
        while !term.under_way.is_empty() {
            let settled = match &gone {
                Some(error) => Some(Err(error.clone())),
                None if is_overdue => term.settled().now_or_never(),
                None => tokio::select! {
                    biased;
                    settled = term.settled() => Some(settled),
                    error = &mut ended => Some(Err(gone.insert(error).clone())),
                    () = &mut overdue => {
                        is_overdue = true;
                        continue;
                    }
                },
            };
            let Some(InFlightProposal { ticket, sequenced, .. }) = term.under_way.pop_front()
            else {
                break;
            };
            match settled {
                Some(Ok(())) => self.dedup.applied(ticket),
                // The entry is in no log, even if earlier ones are.
                Some(Err(ProposeError::NotLeader { .. })) => {
                    let term = term.leadership.term();
                    refused.push(RejectedProposal { ticket, term, sequenced });
                }
                Some(Err(error)) => {
                    let why = failed.get_or_insert_with(|| {
                        tracing::warn!(%error, "a proposal failed");
                        self.dedup.forget_from(ticket);
                        Unavailable::from(&error)
                    });
                    self.shard.pending.fail(ticket, why);
                }
                None => {
                    let why = failed.get_or_insert_with(|| {
                        let (shard, open) = (self.shard.role().shard(), 1 + term.under_way.len());
                        tracing::warn!(
                            %shard,
                            open,
                            "leadership was lost with proposals whose outcome is unknown: they are answered so"
                        );
                        Unavailable::Unanswered
                    });
                    self.is_in_doubt = true;
                    self.shard.pending.fail(ticket, why);
                }
            }
        }
        if failed.is_some() {
            self.fail_refused(std::mem::take(&mut refused));
        }
        refused
    }
}

/// Resolves once the outcomes of a past term's proposals are no longer awaited. Never where the node is alone.
async fn outcomes_overdue(node: Option<Arc<Node>>, consensus: Consensus) {
    let Some(node) = node else { return std::future::pending().await };
    let (since, role) = (Instant::now(), consensus.role());
    sleep(OUTCOME_AWAITED_FOR).await;
    while since.elapsed() < LEADERLESS_HOLD
        && role.borrow().other_leader().is_none()
        && majority::is_connected(&node, &consensus.members())
    {
        sleep(LOOK_EVERY).await;
    }
}
