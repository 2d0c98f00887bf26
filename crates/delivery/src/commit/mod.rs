//! Making settles durable.
//!
//! All changes of an iteration become one command; while the limit of commands is in flight, later changes join
//! the next one. Settles without a waiting caller (not every protocol has a reply to them) wait a few
//! milliseconds to be batched, with each other and with frames that are written anyway: a consumer that
//! acknowledges records one by one would otherwise take every second disk write from its producers. A settle is
//! acknowledged when the machine has applied it: from then on the record is never delivered again, even after a
//! crash.

pub(crate) mod settles;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::{SETTLE_COMMAND_BYTES_MAX, SETTLE_UNAWAITED_DELAY, SETTLES_IN_FLIGHT_MAX};
use base::{LeaseGroupId, ShardId};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use machine::{Command, GroupSettle, MessageCommand};
use shard::append::AppendBatch;
use shard::delivery::handle::SettlesElsewhere;
use shard::error::{ExecuteError, Unavailable};
use shard::request::{CommandsElsewhere, Request, UnitAnswer, UnitContent, UnitReply};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::commit::settles::split;
use crate::groups::Groups;
use crate::groups::group::Group;
use crate::waiter::Waiter;

/// Changes to make durable, and the requests in flight. `P` is the purpose of a request, which is returned with
/// the result.
pub(crate) struct Commits<P> {
    requests: mpsc::UnboundedSender<Request>,
    in_flight: FuturesUnordered<BoxFuture<'static, FinishedCommit<P>>>,
    last_number: u64,
    settles_in_flight: usize,
    /// Groups with changes to make durable, each once.
    changed: Vec<LeaseGroupId>,
    waiters: Vec<Waiter>,
    /// Latest time to make the changes durable if no caller waits.
    due_at: Option<Instant>,
}

/// A finished request.
#[derive(Debug)]
pub(crate) struct FinishedCommit<P> {
    pub(crate) number: u64,
    pub(crate) groups: Vec<LeaseGroupId>,
    pub(crate) purpose: P,
    pub(crate) result: Result<CommittedAs, Unavailable>,
}

/// Outcome of a request that the log replied to.
#[derive(Debug)]
pub(crate) enum CommittedAs {
    /// The result of each batch; empty for settles alone.
    Entered(UnitReply),
    /// Nothing was done: there was no room in an outbox before the term was over.
    GivenBack(Unit),
}

/// Settles and batches that take effect together.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    pub(crate) settles: Vec<GroupSettle>,
    pub(crate) batches: Vec<AppendBatch>,
    /// Settles in other shards.
    pub(crate) elsewhere: BTreeMap<ShardId, SettlesElsewhere>,
}

impl<P> FinishedCommit<P> {
    /// There was nothing to make durable.
    pub(crate) fn without_request(purpose: P) -> Self {
        let result = Ok(CommittedAs::Entered(UnitReply::nothing()));
        Self { number: 0, groups: Vec::new(), purpose, result }
    }
}

impl<P: Send + 'static> Commits<P> {
    pub(crate) fn new(requests: mpsc::UnboundedSender<Request>) -> Self {
        Self {
            requests,
            in_flight: FuturesUnordered::new(),
            last_number: 0,
            settles_in_flight: 0,
            changed: Vec::new(),
            waiters: Vec::new(),
            due_at: None,
        }
    }

    /// The group has changes to make durable, in the next command or the one after.
    pub(crate) fn note_changed(&mut self, group: &mut Group) {
        if !std::mem::replace(&mut group.changed, true) {
            self.changed.push(group.id);
            self.due_at.get_or_insert_with(|| Instant::now() + SETTLE_UNAWAITED_DELAY);
        }
    }

    /// The group's changes were taken in another way, or are void.
    pub(crate) fn forget_changes(&mut self, group: LeaseGroupId) {
        self.changed.retain(|changed| *changed != group);
    }

    /// Replies once all changes until now are durable.
    pub(crate) fn wait(&mut self, waiter: Waiter) {
        self.waiters.push(waiter);
    }

    /// Takes the waiters for changes of the group, which are void.
    pub(crate) fn take_waiters_of(&mut self, group: LeaseGroupId) -> Vec<Waiter> {
        let of_group = |waiter: &Waiter| waiter.groups.contains(&group);
        let (taken, others) = std::mem::take(&mut self.waiters).into_iter().partition(of_group);
        self.waiters = others;
        taken
    }

    /// Whether to build a command now. Never while the limit is in flight; changes without a waiting caller
    /// wait a moment for others.
    pub(crate) fn is_due(&self) -> bool {
        let awaited = || self.waiters.iter().any(Waiter::is_awaited);
        let due = || self.due_at.is_some_and(|due| due <= Instant::now());
        self.may_settle() && (awaited() || due())
    }

    /// Time at which a command is due without further events. None while the limit is in flight: the end of one
    /// triggers the next.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due_at.filter(|_| self.may_settle())
    }

    fn may_settle(&self) -> bool {
        self.settles_in_flight < SETTLES_IN_FLIGHT_MAX
    }

    /// The changes and waiters for one command; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<(Vec<LeaseGroupId>, Vec<Waiter>)> {
        self.due_at = None;
        if !self.has_changes() {
            return None;
        }
        Some((std::mem::take(&mut self.changed), std::mem::take(&mut self.waiters)))
    }

    /// Whether there is a change or a waiter.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.waiters.is_empty()
    }

    /// Proposes settles alone, in as many commands as their size requires. They count as in flight until
    /// [`Self::on_settled`].
    pub(crate) fn settle(
        &mut self,
        groups: &mut Groups,
        of: Vec<LeaseGroupId>,
        settles: Vec<GroupSettle>,
        purpose: P,
    ) {
        self.settles_in_flight += 1;
        let number = self.begin(groups, &of, &settles);
        self.execute(number, of, split(settles, SETTLE_COMMAND_BYTES_MAX), purpose);
    }

    pub(crate) fn on_settled(&mut self) {
        self.settles_in_flight -= 1;
    }

    /// Puts all of it into one log entry; if a part is refused all are.
    pub(crate) fn execute_unit(
        &mut self,
        groups: &mut Groups,
        of: Vec<LeaseGroupId>,
        unit: Unit,
        purpose: P,
    ) {
        let Unit { settles, batches, elsewhere } = unit;
        let number = self.begin(groups, &of, &settles);
        // No settles make no command: an empty one is the mark of a clean shutdown.
        let settles = (!settles.is_empty()).then_some(settles);
        if batches.is_empty() && elsewhere.is_empty() {
            // In one command of any size: they take effect together.
            return self.execute(number, of, settles.into_iter().collect(), purpose);
        }
        let (reply, answer) = oneshot::channel();
        let commands = settles.map(|settles| Command::Settle { settles }).into_iter().collect();
        let carried = |SettlesElsewhere { settles, preparation }| CommandsElsewhere {
            commands: vec![MessageCommand::Settle { settles }],
            preparation,
        };
        let elsewhere = elsewhere.into_iter().map(|(to, settles)| (to, carried(settles)));
        let content = UnitContent { batches, commands, elsewhere: elsewhere.collect() };
        let _ = self.requests.send(Request::Unit { content, reply });
        let answered = answer.map(|answer| match answer {
            Ok(UnitAnswer::Entered(rows)) => Ok(CommittedAs::Entered(rows)),
            Ok(UnitAnswer::GivenBack(unit)) => Ok(CommittedAs::GivenBack(unit.into())),
            Err(_) => Err(Unavailable::Stopping),
        });
        let committed = move |result| FinishedCommit { number, groups: of, purpose, result };
        self.in_flight.push(answered.map(committed).boxed());
    }

    fn execute(
        &mut self,
        number: u64,
        groups: Vec<LeaseGroupId>,
        pieces: Vec<Vec<GroupSettle>>,
        purpose: P,
    ) {
        let mut answers = Vec::new();
        for settles in pieces {
            let (reply, answer) = oneshot::channel();
            let request = Request::Execute { command: Command::Settle { settles }, reply };
            let _ = self.requests.send(request);
            answers.push(answer);
        }
        let answered = async move {
            for answer in answers {
                match answer.await {
                    Ok(Ok(_)) => {}
                    Ok(Err(ExecuteError::Unavailable(why))) => return Err(why),
                    Ok(Err(ExecuteError::Refused(refusal))) => {
                        unreachable!("a settle passes over what it does not find: {refusal}")
                    }
                    Err(_) => return Err(Unavailable::Stopping),
                }
            }
            Ok(CommittedAs::Entered(UnitReply::nothing()))
        };
        let committed = move |result| FinishedCommit { number, groups, purpose, result };
        self.in_flight.push(answered.map(committed).boxed());
    }

    /// Records a request and its settles with its groups until it ends. Returns its number.
    pub(crate) fn begin(
        &mut self,
        groups: &mut Groups,
        of: &[LeaseGroupId],
        settles: &[GroupSettle],
    ) -> u64 {
        self.last_number += 1;
        let settles: Arc<[GroupSettle]> = settles.into();
        for id in of {
            if let Some(group) = groups.get_mut(*id) {
                group.in_flight.push((self.last_number, Arc::clone(&settles)));
            }
        }
        self.last_number
    }

    /// Adds work in flight that ends without a request to the log.
    pub(crate) fn push(&mut self, ending: BoxFuture<'static, FinishedCommit<P>>) {
        self.in_flight.push(ending);
    }

    /// Whether units may wait for room in an outbox: not while the driver is about to stop.
    pub(crate) fn may_wait(&self, may: bool) {
        let _ = self.requests.send(Request::MayWait(may));
    }

    /// Whether anything is in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The next finished request; `None` if nothing is in flight.
    pub(crate) async fn done(&mut self) -> Option<FinishedCommit<P>> {
        self.in_flight.next().await
    }

    /// A request that is finished already.
    pub(crate) fn try_done(&mut self) -> Option<FinishedCommit<P>> {
        if self.in_flight.is_empty() {
            return None;
        }
        self.in_flight.next().now_or_never().flatten()
    }
}

impl From<UnitContent> for Unit {
    /// The content must have been built here.
    fn from(content: UnitContent) -> Self {
        let UnitContent { batches, commands, elsewhere } = content;
        let settles = |command| match command {
            Command::Settle { settles } => settles,
            _ => Vec::new(),
        };
        let settles_of = |CommandsElsewhere { commands, preparation }| {
            let settles = |command| match command {
                MessageCommand::Settle { settles } => settles,
                MessageCommand::EndTransaction(_) => Vec::new(),
            };
            let settles = commands.into_iter().flat_map(settles).collect();
            SettlesElsewhere { settles, preparation }
        };
        let elsewhere = elsewhere.into_iter().map(|(to, commands)| (to, settles_of(commands)));
        Self {
            settles: commands.into_iter().flat_map(settles).collect(),
            batches,
            elsewhere: elsewhere.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiter::{Reject, Reply};
    use shard::delivery::handle::SettleResults;

    const GROUP: LeaseGroupId = LeaseGroupId(1);

    fn commits() -> (Commits<&'static str>, mpsc::UnboundedReceiver<Request>) {
        let (requests, requested) = mpsc::unbounded_channel();
        (Commits::new(requests), requested)
    }

    fn waiter() -> (Waiter, oneshot::Receiver<SettleResults>) {
        let (reply, answer) = oneshot::channel();
        let reply = Reply::Settles(vec![Ok(())], reply.into());
        (Waiter::new(reply, vec![GROUP], Vec::new()), answer)
    }

    #[test]
    fn command_is_due_at_once_for_a_waiting_caller_or_a_reject() {
        let (mut commits, _requested) = commits();
        assert!(!commits.is_due() && commits.take().is_none());
        let (waiting, answer) = waiter();
        commits.wait(waiting);
        assert!(commits.is_due());
        drop(answer);
        assert!(!commits.is_due(), "the caller does not wait");
        let (mut rejecting, _) = waiter();
        rejecting.rejects.push(Reject { group: GROUP, engine: 1, dead_lettered: 0 });
        commits.wait(rejecting);
        assert!(commits.is_due());
        assert_eq!(commits.take().map(|(_, waiters)| waiters.len()), Some(2));
        assert!(!commits.is_due());
    }

    #[test]
    fn command_waits_while_the_limit_of_commands_is_in_flight() {
        let (mut commits, _requested) = commits();
        commits.wait(waiter().0);
        let (waiting, _answer) = waiter();
        commits.wait(waiting);
        commits.settles_in_flight = SETTLES_IN_FLIGHT_MAX;
        assert!(!commits.is_due());
        commits.on_settled();
        assert!(commits.is_due());
    }

    #[test]
    fn waiters_of_a_group_are_found_by_the_groups_they_settled() {
        let (mut commits, _requested) = commits();
        let (waiting, _answer) = waiter();
        commits.wait(waiting);
        assert!(commits.take_waiters_of(LeaseGroupId(2)).is_empty());
        assert_eq!(commits.take_waiters_of(GROUP).len(), 1);
        assert!(!commits.has_changes());
    }

    #[tokio::test]
    async fn request_returns_its_purpose_and_its_result() {
        let (mut commits, mut requested) = commits();
        assert!(commits.done().await.is_none());
        commits.push(std::future::pending().boxed());
        for _ in 0..2 {
            commits.execute(1, Vec::new(), vec![Vec::new()], "settles");
        }
        assert!(commits.try_done().is_none() && commits.is_in_flight());
        let Some(Request::Execute { reply, .. }) = requested.recv().await else {
            panic!("a command")
        };
        reply.send(Ok(machine::Outcome::Done)).expect("it waits");
        let done = commits.done().await.expect("it ended");
        assert!(done.purpose == "settles" && done.result.is_ok());
        // The sequencer is gone.
        drop(requested);
        let done = commits.done().await.expect("it ended");
        assert!(matches!(done.result, Err(Unavailable::Stopping)));
    }
}
