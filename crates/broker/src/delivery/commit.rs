//! Making durable what was settled.
//!
//! All that changed in a turn is one command; while a few are under way, what changes meanwhile
//! joins the next one. Settles that nobody waits for (not every protocol answers them) wait a few
//! milliseconds for company, and for frames that are written anyway: a consumer that acknowledges
//! one by one would take every other turn of the disk from its producers. A settle is answered when
//! the machine has it: from then on the record is never delivered again, whatever crashes.

use std::sync::Arc;

use base::LeaseGroupId;
use base::limits::{SETTLE_UNAWAITED_DELAY, SETTLES_IN_FLIGHT_MAX};
use dispatch::{SessionId, SettleRefused, Settlement};
use futures_util::FutureExt;
use machine::{Command, GroupSettle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::append::{AppendBatch, Appended};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::sequencer::Request;

use super::burial::Burial;
use super::driver::Driver;
use super::error::SettleError;
use super::event::Event;
use super::group::Dying;
use super::session::Settle;
use super::transfer::{Transfer, Transferred};

type Results = Vec<Result<(), SettleError>>;

/// Who waits for settles to be durable.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) reply: Reply,
    pub(super) rejects: Vec<Reject>,
}

/// What is answered, to whom.
#[derive(Debug)]
pub(super) enum Reply {
    Settles(Results, oneshot::Sender<Results>),
    Transfer(Vec<Appended>, oneshot::Sender<Transferred>),
}

/// A group in which something was rejected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reject {
    pub(super) group: LeaseGroupId,
    /// The engine that took the reject, and how many of its dead letters have to be buried before
    /// that is durable. Known once the group's changes are drained.
    pub(super) engine: u64,
    pub(super) buried: u64,
}

/// What is under way.
#[derive(Debug)]
pub(super) enum UnderWay {
    Settles(Vec<Waiter>),
    Burial(Burial),
    Transfer(Transfer),
}

/// What came of it: of each batch, or of all.
#[derive(Debug)]
pub(super) struct Committed {
    number: u64,
    groups: Vec<LeaseGroupId>,
    under_way: UnderWay,
    result: Result<Vec<Result<Appended, AppendError>>, Unavailable>,
}

impl Driver {
    pub(super) fn settle(
        &mut self,
        session: SessionId,
        settles: &[Settle],
        reply: oneshot::Sender<Results>,
    ) {
        let mut rejects: Vec<Reject> = Vec::new();
        let mut durable = false;
        let mut results = Vec::with_capacity(settles.len());
        for settle in settles {
            let result = self.settle_one(session, settle);
            if result.is_ok() {
                durable |= !matches!(settle.settlement, Settlement::Renew { .. });
                note_reject(&mut rejects, settle);
            }
            results.push(result);
        }
        if durable {
            self.waiters.push(Waiter { reply: Reply::Settles(results, reply), rejects });
        } else {
            let _ = reply.send(results);
        }
    }

    pub(super) fn settle_one(
        &mut self,
        session: SessionId,
        settle: &Settle,
    ) -> Result<(), SettleError> {
        let now_ms = self.timeline.now_ms();
        let pooled = self.pools.used(session).is_some();
        let Some(group) = self.groups.get_mut(&settle.group) else {
            // Nothing is leased of a group that nobody uses.
            return Err(SettleError::NotLeased);
        };
        group.dispatch.settle(session, settle.what, settle.settlement, now_ms).map_err(
            |refused| match refused {
                SettleRefused::Stale { .. }
                | SettleRefused::NotHolder { .. }
                | SettleRefused::NotLeased { .. }
                | SettleRefused::NoSuchPartition { .. } => SettleError::NotLeased,
            },
        )?;
        if pooled {
            // Room in the session's pool is room for its consumers of other groups too.
            group.dispatch.return_to(&mut self.pools);
            self.enqueue_groups_of(session);
        }
        self.mark_changed(settle.group);
        self.enqueue(settle.group);
        Ok(())
    }

    /// The group has something to make durable, in this turn's command or the next.
    pub(super) fn mark_changed(&mut self, group: LeaseGroupId) {
        if let Some(found) = self.groups.get_mut(&group)
            && !std::mem::replace(&mut found.changed, true)
        {
            self.changed.push(group);
            self.settle_at.get_or_insert_with(|| Instant::now() + SETTLE_UNAWAITED_DELAY);
        }
    }

    /// Answers once what has changed until now is durable.
    pub(super) fn wait_until_durable(&mut self, reply: oneshot::Sender<Results>) {
        let reply = Reply::Settles(vec![Ok(())], reply);
        self.waiters.push(Waiter { reply, rejects: Vec::new() });
    }

    /// Makes one command of all that changed, unless enough are under way. What nobody waits for
    /// waits a moment for others.
    pub(super) fn commit(&mut self) {
        let awaited = self.waiters.iter().any(Waiter::is_awaited);
        let due = self.settle_at.is_some_and(|due| due <= Instant::now());
        if self.may_settle() && (awaited || due) {
            self.commit_all();
        }
    }

    pub(super) fn may_settle(&self) -> bool {
        self.settles_under_way < SETTLES_IN_FLIGHT_MAX
    }

    /// As [`Self::commit`], however many are under way.
    pub(super) fn commit_all(&mut self) {
        self.settle_at = None;
        if self.changed.is_empty() && self.waiters.is_empty() {
            return;
        }
        let mut settles = Vec::new();
        let mut groups = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let before = settles.len();
            self.drain_group(id, &mut settles);
            if settles.len() > before {
                groups.push(id);
            }
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        for waiter in &mut waiters {
            self.count_deaths(&mut waiter.rejects);
        }
        if settles.is_empty() {
            // They changed nothing that outlives a crash.
            waiters.into_iter().for_each(|waiter| self.answer(waiter));
            return;
        }
        self.settles_under_way += 1;
        self.execute(groups, settles, UnderWay::Settles(waiters));
    }

    /// Where burials have to get to, as now nothing of these groups is undrained.
    fn count_deaths(&self, rejects: &mut [Reject]) {
        for reject in rejects {
            if let Some(group) = self.groups.get(&reject.group) {
                (reject.engine, reject.buried) = (group.engine, group.died);
            }
        }
    }

    /// Takes a group's changes, and lets those who died be buried.
    fn drain_group(&mut self, id: LeaseGroupId, settles: &mut Vec<GroupSettle>) {
        let dead = self.take_changes(id, settles);
        if !dead.is_empty()
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.mourn(dead);
            self.dying.insert(id);
        }
    }

    /// Takes a group's changes: what is to be settled, who is active now; who died.
    pub(super) fn take_changes(
        &mut self,
        id: LeaseGroupId,
        settles: &mut Vec<GroupSettle>,
    ) -> Vec<Dying> {
        let Some(group) = self.groups.get_mut(&id) else { return Vec::new() };
        group.changed = false;
        group.dispatch.drain(&mut self.changes);
        for change in self.changes.partitions.drain(..) {
            group.counts.settled +=
                change.settled.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
            settles.push(GroupSettle {
                group: id,
                partition: change.partition,
                settled: change.settled,
                attempts: change.attempts,
            });
        }
        let dead = self.changes.dead.drain(..).map(|letter| group.dying(letter)).collect();
        for (consumer, active) in self.changes.active.drain(..) {
            let Some(joined) = group.consumers.get(&consumer) else { continue };
            if let Some(session) = self.sessions.get(&joined.session) {
                let _ = session.events.send((Event::Active { consumer, active }, 0));
            }
        }
        dead
    }

    /// Puts settles alone into the log.
    fn execute(
        &mut self,
        groups: Vec<LeaseGroupId>,
        settles: Vec<GroupSettle>,
        under_way: UnderWay,
    ) {
        let number = self.begin(&groups, &settles);
        let (reply, answer) = oneshot::channel();
        let request = Request::Execute { command: Command::Settle { settles }, reply };
        let _ = self.requests.send(request);
        let answered = answer.map(|answer| match answer {
            Ok(Ok(_)) => Ok(Vec::new()),
            Ok(Err(ExecuteError::Unavailable(why))) => Err(why),
            Ok(Err(ExecuteError::Refused(refusal))) => {
                unreachable!("a settle passes over what it does not find: {refusal}")
            }
            Err(_) => Err(Unavailable::Stopping),
        });
        let committed = move |result| Committed { number, groups, under_way, result };
        self.commits.push(answered.map(committed).boxed());
    }

    /// Puts settles and batches into one log entry; one that is refused keeps all of it out.
    pub(super) fn execute_with(
        &mut self,
        groups: Vec<LeaseGroupId>,
        settles: Vec<GroupSettle>,
        batches: Vec<AppendBatch>,
        under_way: UnderWay,
    ) {
        if batches.is_empty() {
            return self.execute(groups, settles, under_way);
        }
        let number = self.begin(&groups, &settles);
        let (reply, answer) = oneshot::channel();
        let commands = vec![Command::Settle { settles }];
        let _ = self.requests.send(Request::Append { batches, commands, reply });
        let answered = answer.map(|answer| answer.map_err(|_| Unavailable::Stopping));
        let committed = move |result| Committed { number, groups, under_way, result };
        self.commits.push(answered.map(committed).boxed());
    }

    /// Notes with its groups what a request is about, until it ended.
    fn begin(&mut self, groups: &[LeaseGroupId], settles: &[GroupSettle]) -> u64 {
        self.next_request += 1;
        let settles: Arc<[GroupSettle]> = settles.into();
        for id in groups {
            if let Some(group) = self.groups.get_mut(id) {
                group.under_way.push((self.next_request, Arc::clone(&settles)));
            }
        }
        self.next_request
    }

    pub(super) fn committed(&mut self, committed: Committed) {
        let Committed { number, groups, under_way, result } = committed;
        let refused = |batches: &Vec<Result<_, _>>| batches.iter().any(Result::is_err);
        match under_way {
            UnderWay::Settles(waiters) => {
                self.settles_under_way -= 1;
                for waiter in waiters {
                    match &result {
                        Ok(_) => self.answer(waiter),
                        Err(why) => waiter.fail(why),
                    }
                }
                self.ended(number, &groups, result.is_err());
            }
            UnderWay::Burial(burial) => {
                self.buried(burial, result);
                // What could not be buried is tried again, and is not settled until then.
                self.ended(number, &groups, false);
            }
            UnderWay::Transfer(transfer) if result.as_ref().is_ok_and(|it| !refused(it)) => {
                self.transferred(transfer, result);
                self.ended(number, &groups, false);
            }
            UnderWay::Transfer(transfer) => {
                self.ended(number, &groups, true);
                self.transferred(transfer, result);
            }
        }
    }

    /// What was under way for these groups is in the machine, or nobody knows whether it will be.
    fn ended(&mut self, number: u64, groups: &[LeaseGroupId], failed: bool) {
        for id in groups {
            let Some(group) = self.groups.get_mut(id) else { continue };
            group.under_way.retain(|(other, _)| *other != number);
            if failed {
                // What the engine believes to be settled may not be.
                self.reload(*id);
            } else if group.under_way.is_empty() && !group.sought.is_empty() {
                self.seek_now(*id);
            }
        }
    }

    /// Answers a settle, or lets it wait for its dead letters to be buried.
    pub(super) fn answer(&mut self, mut waiter: Waiter) {
        while let Some(Reject { group, engine, buried }) = waiter.rejects.pop() {
            // Gone with its group, the record is not delivered any more either.
            let Some(group) = self.groups.get_mut(&group) else { continue };
            if group.engine != engine {
                return waiter.fail(&Unavailable::NotLeader);
            }
            if group.buried < buried {
                if let Some(why) = &group.bury_failed {
                    return waiter.fail(why);
                }
                group.reject_waiters.push_back((buried, waiter));
                return;
            }
        }
        // Whoever asked may not care.
        match waiter.reply {
            Reply::Settles(results, reply) => drop(reply.send(results)),
            Reply::Transfer(appended, reply) => drop(reply.send(Ok(appended))),
        }
    }
}

impl Waiter {
    /// A record that was rejected becomes a dead letter at once, whether or not somebody waits.
    fn is_awaited(&self) -> bool {
        let cares = match &self.reply {
            Reply::Settles(_, reply) => !reply.is_closed(),
            Reply::Transfer(_, reply) => !reply.is_closed(),
        };
        cares || !self.rejects.is_empty()
    }

    /// Nobody can tell whether it is durable.
    pub(super) fn fail(self, why: &Unavailable) {
        match self.reply {
            Reply::Settles(mut results, reply) => {
                for result in results.iter_mut().filter(|result| result.is_ok()) {
                    *result = Err(why.clone().into());
                }
                let _ = reply.send(results);
            }
            Reply::Transfer(_, reply) => drop(reply.send(Err(why.clone().into()))),
        }
    }
}

fn note_reject(rejects: &mut Vec<Reject>, settle: &Settle) {
    let known = rejects.iter().any(|reject| reject.group == settle.group);
    if settle.settlement == Settlement::Reject && !known {
        rejects.push(Reject { group: settle.group, engine: 0, buried: 0 });
    }
}
