//! Making durable what was settled.
//!
//! All that changed in a turn is one command; while a few are under way, what changes meanwhile
//! joins the next one. Settles that nobody waits for (not every protocol answers them) wait a few
//! milliseconds for company, and for frames that are written anyway: a consumer that acknowledges
//! one by one would take every other turn of the disk from its producers. A settle is answered when
//! the machine has it: from then on the record is never delivered again, whatever crashes.

use std::sync::Arc;

use base::limits::{SETTLE_COMMAND_BYTES_MAX, SETTLE_UNAWAITED_DELAY, SETTLES_IN_FLIGHT_MAX};
use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, SettleRefused, Settlement};
use futures_util::FutureExt;
use machine::{Command, GroupSettle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::append::{AppendBatch, Appended};
use crate::error::{AppendError, ExecuteError, Unavailable};
use crate::request::Request;

use super::dead_lettering::DeadLettering;
use super::driver::Driver;
use super::error::SettleError;
use super::event::Event;
use super::group::PendingLetter;
use super::options::Settle;
use super::overflow::Overflowed;
use super::transfer::{Transfer, Transferred};

type Results = Vec<Result<(), SettleError>>;

/// Who waits for settles to be durable.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) reply: Reply,
    /// Whose records were settled.
    pub(super) groups: Vec<LeaseGroupId>,
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
    /// The engine that took the reject, and how many of its dead letters have to be appended before
    /// that is durable. Known once the group's changes are drained.
    pub(super) engine: u64,
    pub(super) dead_lettered: u64,
}

/// What is under way.
#[derive(Debug)]
pub(super) enum UnderWay {
    Settles(Vec<Waiter>),
    DeadLettering(DeadLettering),
    Transfer(Transfer),
    Overflow(Overflowed),
}

/// What came of it: of each batch, or of all.
#[derive(Debug)]
pub(super) struct Committed {
    number: u64,
    groups: Vec<LeaseGroupId>,
    under_way: UnderWay,
    result: Result<Vec<Result<Appended, AppendError>>, Unavailable>,
}

impl Committed {
    /// What was under way had nothing to make durable.
    pub(super) fn of_nothing(under_way: UnderWay) -> Self {
        Self { number: 0, groups: Vec::new(), under_way, result: Ok(Vec::new()) }
    }
}

impl Driver {
    pub(super) fn settle(
        &mut self,
        session: SessionId,
        settles: &[Settle],
        reply: oneshot::Sender<Results>,
    ) {
        let mut rejects: Vec<Reject> = Vec::new();
        let mut groups: Vec<LeaseGroupId> = Vec::new();
        let mut results = Vec::with_capacity(settles.len());
        for settle in settles {
            let result = self.settle_one(session, settle);
            if result.is_ok() && !matches!(settle.settlement, Settlement::Renew { .. }) {
                if groups.last() != Some(&settle.group) {
                    groups.push(settle.group);
                }
                note_reject(&mut rejects, settle);
            }
            results.push(result);
        }
        if !groups.is_empty() {
            self.waiters.push(Waiter { reply: Reply::Settles(results, reply), groups, rejects });
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
        let Some(group) = self.groups.get_mut(&settle.group) else {
            // Nothing is leased of a group that nobody uses.
            return Err(SettleError::NotLeased);
        };
        group
            .dispatch
            .settle(session, settle.what, settle.settlement, now_ms)
            .map_err(not_leased)?;
        self.leases_ended(session, settle.group);
        self.mark_changed(settle.group);
        Ok(())
    }

    /// As [`Self::settle_one`] for what is accepted, and is not settled before the log entry that it
    /// is a part of took effect. Partition and offset of each record.
    pub(super) fn withhold_one(
        &mut self,
        session: SessionId,
        settle: &Settle,
    ) -> Result<Vec<(u32, Offset)>, SettleError> {
        let now_ms = self.timeline.now_ms();
        let group = self.groups.get_mut(&settle.group).ok_or(SettleError::NotLeased)?;
        let withheld = group.dispatch.withhold(session, settle.what, now_ms).map_err(not_leased)?;
        self.leases_ended(session, settle.group);
        Ok(withheld)
    }

    fn leases_ended(&mut self, session: SessionId, id: LeaseGroupId) {
        if self.pools.used(session).is_some()
            && let Some(group) = self.groups.get_mut(&id)
        {
            // Room in the session's pool is room for its consumers of other groups too.
            group.dispatch.return_to(&mut self.pools);
            self.enqueue_groups_of(session);
        }
        self.enqueue(id);
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

    /// Answers once what has changed in the group until now is durable.
    pub(super) fn wait_until_durable(
        &mut self,
        group: LeaseGroupId,
        reply: oneshot::Sender<Results>,
    ) {
        let reply = Reply::Settles(vec![Ok(())], reply);
        self.waiters.push(Waiter { reply, groups: vec![group], rejects: Vec::new() });
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

    /// How many dead letters have to be appended: now nothing of these groups is undrained.
    fn count_deaths(&self, rejects: &mut [Reject]) {
        for reject in rejects {
            if let Some(group) = self.groups.get(&reject.group) {
                (reject.engine, reject.dead_lettered) = (group.engine, group.died);
            }
        }
    }

    /// Takes a group's changes, and notes its dead letters.
    fn drain_group(&mut self, id: LeaseGroupId, settles: &mut Vec<GroupSettle>) {
        let dead = self.take_changes(id, settles);
        if !dead.is_empty()
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.add_dead(dead);
            self.groups_with_dead.insert(id);
        }
    }

    /// Takes a group's changes: what is to be settled, who is active now; who died.
    pub(super) fn take_changes(
        &mut self,
        id: LeaseGroupId,
        settles: &mut Vec<GroupSettle>,
    ) -> Vec<PendingLetter> {
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
        let dead = self.changes.dead.drain(..).map(|letter| group.pending_letter(letter)).collect();
        for (consumer, active) in self.changes.active.drain(..) {
            let Some(joined) = group.consumers.get(&consumer) else { continue };
            if let Some(session) = self.sessions.get(&joined.session) {
                let _ = session.events.send((Event::Active { consumer, active }, 0));
            }
        }
        dead
    }

    /// Puts settles alone into the log, in as many commands as their size asks for; those of a
    /// transfer in one, whatever their size, since they take effect together.
    pub(super) fn execute(
        &mut self,
        groups: Vec<LeaseGroupId>,
        settles: Vec<GroupSettle>,
        under_way: UnderWay,
    ) {
        let number = self.begin(&groups, &settles);
        let mut answers = Vec::new();
        let pieces = match under_way {
            UnderWay::Transfer(_) => vec![settles],
            _ => split(settles, SETTLE_COMMAND_BYTES_MAX),
        };
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
            Ok(Vec::new())
        };
        let committed = move |result| Committed { number, groups, under_way, result };
        self.commits.push(answered.map(committed).boxed());
    }

    /// Appends dead letters of what was refused.
    pub(super) fn append_overflow(&mut self, batches: Vec<AppendBatch>, overflowed: Overflowed) {
        let (reply, answer) = oneshot::channel();
        let _ = self.requests.send(Request::Append { batches, reply });
        let (number, groups, under_way) = (0, Vec::new(), UnderWay::Overflow(overflowed));
        let answered = answer.map(|answer| answer.map_err(|_| Unavailable::Stopping));
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
        let _ = self.requests.send(Request::Unit { batches, commands, reply });
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
            UnderWay::DeadLettering(letters) => {
                let group = letters.group;
                let lost = self.dead_lettered(letters, result);
                // What could not be appended is tried again, and is not settled until then.
                self.ended(number, &groups, false);
                if lost {
                    self.reload(group);
                }
            }
            UnderWay::Transfer(transfer) => match result {
                Ok(rows) if rows.iter().all(Result::is_ok) => {
                    self.transferred(transfer, rows.into_iter().map_while(Result::ok).collect());
                    self.ended(number, &groups, false);
                }
                Ok(rows) => {
                    self.ended(number, &groups, false);
                    self.undo(transfer, rows);
                }
                Err(why) => {
                    // Nobody knows what became of it: the groups are made anew.
                    self.ended(number, &groups, true);
                    let _ = transfer.reply.send(Err(why.into()));
                }
            },
            UnderWay::Overflow(overflowed) => match result {
                // The dead letters may have been refused as well: their producer is told no more than
                // that its records were.
                Ok(_) => self.dead_letter_refused(overflowed),
                Err(_) => overflowed.answer(),
            },
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

    /// Answers a settle, or lets it wait until its dead letters are appended.
    pub(super) fn answer(&mut self, mut waiter: Waiter) {
        while let Some(Reject { group, engine, dead_lettered }) = waiter.rejects.pop() {
            // Gone with its group, the record is not delivered any more either.
            let Some(group) = self.groups.get_mut(&group) else { continue };
            if group.engine != engine {
                return waiter.fail(&Unavailable::NotLeader);
            }
            if group.dead_lettered < dead_lettered {
                if let Some(why) = &group.dead_lettering_failed {
                    return waiter.fail(why);
                }
                group.reject_waiters.push_back((dead_lettered, waiter));
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

fn not_leased(refused: SettleRefused) -> SettleError {
    match refused {
        SettleRefused::Stale { .. }
        | SettleRefused::NotHolder { .. }
        | SettleRefused::NotLeased { .. }
        | SettleRefused::NoSuchPartition { .. } => SettleError::NotLeased,
    }
}

/// Settles in pieces of about so many bytes at most. Each piece is right by itself: a settle that is
/// not there yet is as if it came later.
fn split(settles: Vec<GroupSettle>, bytes_max: usize) -> Vec<Vec<GroupSettle>> {
    let ranges_max = bytes_max / size_of::<(Offset, u32)>();
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for mut settle in settles {
        loop {
            let GroupSettle { group, partition, .. } = settle;
            let settled = take_front(&mut settle.settled, ranges_max);
            let attempts = take_front(&mut settle.attempts, ranges_max - settled.len());
            let part = GroupSettle { group, partition, settled, attempts };
            if bytes + part.weight() > bytes_max && !piece.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                bytes = 0;
            }
            bytes += part.weight();
            piece.push(part);
            if settle.settled.is_empty() && settle.attempts.is_empty() {
                break;
            }
        }
    }
    pieces.push(piece);
    pieces
}

/// Nearly always all of it.
fn take_front<T>(all: &mut Vec<T>, count: usize) -> Vec<T> {
    let rest = all.split_off(count.min(all.len()));
    std::mem::replace(all, rest)
}

fn note_reject(rejects: &mut Vec<Reject>, settle: &Settle) {
    let known = rejects.iter().any(|reject| reject.group == settle.group);
    if settle.settlement == Settlement::Reject && !known {
        rejects.push(Reject { group: settle.group, engine: 0, dead_lettered: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(partition: u32, ranges: u64) -> GroupSettle {
        let settled = (0..ranges).map(|number| (number * 2, 1)).collect();
        let attempts = vec![(1, 1), (3, 2)];
        GroupSettle { group: LeaseGroupId(1), partition, settled, attempts }
    }

    #[test]
    fn a_million_ranges_become_commands_of_a_bounded_size_and_none_is_lost() {
        const BYTES_MAX: usize = SETTLE_COMMAND_BYTES_MAX;
        let all = vec![settle(0, 3), settle(1, 1_000_000), settle(2, 5)];
        let pieces = split(all.clone(), BYTES_MAX);
        assert!(pieces.len() > 8_000_000 / BYTES_MAX);
        let weight =
            |piece: &Vec<GroupSettle>| piece.iter().map(GroupSettle::weight).sum::<usize>();
        assert!(pieces.iter().all(|piece| !piece.is_empty() && weight(piece) <= BYTES_MAX + 64));
        for expected in all {
            let of_partition =
                pieces.iter().flatten().filter(|it| it.partition == expected.partition);
            let settled: Vec<_> = of_partition.clone().flat_map(|it| it.settled.clone()).collect();
            let attempts: Vec<_> = of_partition.flat_map(|it| it.attempts.clone()).collect();
            assert_eq!((settled, attempts), (expected.settled, expected.attempts));
        }
    }

    #[test]
    fn what_fits_stays_one_command() {
        let all = vec![settle(0, 3), settle(1, 10)];
        assert_eq!(split(all.clone(), SETTLE_COMMAND_BYTES_MAX), [all]);
    }
}
