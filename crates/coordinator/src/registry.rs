//! The registry of groups: maps behind locks, one clock for all deadlines, and the waiting requests.
//!
//! The groups themselves are pure. This shell locks one, applies an event, and carries out the effects. One task
//! watches the deadlines of all groups ([`watch_deadlines`]): each has at most one valid alarm, for its earliest
//! possible deadline.

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::limits::{GROUPS_BYTES_MAX, GROUPS_MAX};
use base::collections::HashState;
use base::{HashMap, Level};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::warn;
use world::Instant;

use crate::alarms::Alarms;
use crate::changed_groups::{ChangedGroups, StoreReceipt};
use crate::classic::{Effects, JoinLimits, Reply, Waiter};
use crate::group::Group;
use crate::stored_fields::{KeptError, Stamp};
use crate::stored_group::SessionTimeouts;
use crate::{Text, text};

/// Locks over all groups. A lock is held for one event of one group.
const BUCKETS: usize = 16;

#[derive(Debug)]
pub struct Registry {
    hasher: HashState,
    buckets: [Mutex<Bucket>; BUCKETS],
    /// Separate, because the task that waits for the next one must not keep the groups alive.
    alarms: Arc<Alarms>,
    /// Separate for the same reason.
    changed: Arc<ChangedGroups>,
    last_waiter: AtomicU64,
    totals: Arc<Totals>,
    started: Instant,
}

/// Number and memory of groups, over all registries that share them: the bounds hold for all together.
#[derive(Debug, Default)]
pub struct Totals {
    groups: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Bucket {
    slots: HashMap<Text, Slot>,
    waiting: HashMap<Waiter, PendingGroupRequest>,
}

/// A request that waits for a group's reply.
#[derive(Debug)]
struct PendingGroupRequest {
    group: Text,
    answer: oneshot::Sender<Reply>,
}

#[derive(Debug, Default)]
struct Slot {
    /// `None` only while an event creates or ends the group.
    group: Option<Group>,
    alarm_at: Option<Instant>,
    /// The value last added to the registry's sum.
    bytes: usize,
    /// The time since which it has had no members.
    empty_since: Option<Instant>,
    /// The stamp of its stored form, or of the one that is about to be stored.
    kept: Stamp,
}

impl Slot {
    /// Whether dropping it loses nothing but the time since which it has had no members.
    fn is_idle(&self) -> bool {
        self.group.as_ref().is_none_or(Group::is_idle)
    }
}

/// The access of an event to a group.
#[derive(Debug)]
pub struct GroupAccess<'a> {
    /// `None` if there is none, or if it is to be removed after the visit.
    pub group: &'a mut Option<Group>,
    pub now: Instant,
    pub effects: &'a mut Effects,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let slots = &bucket.get_mut().slots;
            self.totals.groups.fetch_sub(slots.len(), Ordering::Relaxed);
            let bytes = slots.values().map(|slot| slot.bytes).sum();
            self.totals.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Registry {
    pub(crate) fn new(totals: Arc<Totals>) -> Self {
        Self {
            hasher: HashState::default(),
            buckets: Default::default(),
            alarms: Arc::default(),
            changed: Arc::default(),
            last_waiter: AtomicU64::new(0),
            totals,
            started: Instant::now(),
        }
    }

    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Whether a member with this memory fits, and the group itself if there is none yet.
    pub fn has_room(&self, name: &str, bytes: usize) -> bool {
        let groups = self.totals.groups.load(Ordering::Relaxed);
        let held = self.totals.bytes.load(Ordering::Relaxed);
        let fits = held.saturating_add(bytes) <= GROUPS_BYTES_MAX
            && (groups < GROUPS_MAX || self.bucket(name).lock().slots.contains_key(name));
        if !fits {
            warn!(groups, bytes = held, "no room for more groups or members");
        }
        fits
    }

    /// Applies an event to a group, and carries out its effects.
    pub fn visit<R>(&self, name: &str, event: impl FnOnce(GroupAccess<'_>) -> R) -> R {
        let mut bucket = self.bucket(name).lock();
        self.visit_in(&mut bucket, name, event)
    }

    /// As [`Registry::visit`], for an event whose reply is sent once its change is stored; `None`: it is stored.
    pub fn visit_to_store<R>(
        &self,
        name: &str,
        event: impl FnOnce(GroupAccess<'_>) -> R,
    ) -> (R, Option<StoreReceipt>) {
        let mut bucket = self.bucket(name).lock();
        let result = self.visit_in(&mut bucket, name, event);
        (result, self.changed.stored(name))
    }

    /// As [`Registry::visit`], for an event whose reply may come later: it is sent to the receiver, once the state
    /// behind it is stored.
    pub fn visit_and_wait(
        &self,
        name: &str,
        event: impl FnOnce(GroupAccess<'_>, Waiter),
    ) -> oneshot::Receiver<Reply> {
        let waiter = Waiter(self.last_waiter.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, receiver) = oneshot::channel();
        let mut bucket = self.bucket(name).lock();
        bucket.waiting.insert(waiter, PendingGroupRequest { group: text(name), answer });
        self.visit_in(&mut bucket, name, |visit| event(visit, waiter));
        receiver
    }

    fn bucket(&self, name: &str) -> &Mutex<Bucket> {
        let hash = self.hasher.hash_one(name);
        &self.buckets[hash as usize % BUCKETS]
    }

    fn visit_in<R>(
        &self,
        bucket: &mut Bucket,
        name: &str,
        event: impl FnOnce(GroupAccess<'_>) -> R,
    ) -> R {
        let now = Instant::now();
        let mut effects = Effects::default();
        let mut fresh = Slot::default();
        let (slot, was_there) = match bucket.slots.get_mut(name) {
            Some(slot) => (slot, true),
            None => (&mut fresh, false),
        };
        let visit = GroupAccess { group: &mut slot.group, now, effects: &mut effects };
        // The panic belongs to the session; a half-changed group would affect all its members.
        let result = catch_unwind(AssertUnwindSafe(|| event(visit)));
        if result.is_err() {
            slot.group = None;
        }
        let is_there = slot.group.is_some();
        self.settle(name, slot, now);
        match (was_there, is_there) {
            (false, true) => {
                self.totals.groups.fetch_add(1, Ordering::Relaxed);
                bucket.slots.insert(text(name), fresh);
            }
            (true, false) => {
                self.totals.groups.fetch_sub(1, Ordering::Relaxed);
                bucket.slots.remove(name);
            }
            _ => {}
        }
        for (waiter, reply) in effects.replies {
            if let Some(PendingGroupRequest { answer, .. }) = bucket.waiting.remove(&waiter) {
                self.changed.answer(name, answer, reply);
            }
        }
        result.unwrap_or_else(|panic| {
            // Their replies will never come: members rejoin, and find a new group.
            bucket.waiting.retain(|_, waiting| *waiting.group != *name);
            resume_unwind(panic)
        })
    }

    /// Updates the derived values of a group after an event.
    fn settle(&self, name: &str, slot: &mut Slot, now: Instant) {
        let bytes = slot.group.as_ref().map_or(0, Group::bytes);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(std::mem::replace(&mut slot.bytes, bytes), Ordering::Relaxed);
        if slot.group.as_ref().is_some_and(Group::is_empty) {
            slot.empty_since.get_or_insert(now);
        } else {
            slot.empty_since = None;
        }
        if let Some(at) = slot.group.as_ref().and_then(Group::check_at) {
            self.set_alarm(name, slot, at);
        }
        let stamp = slot.group.as_ref().map_or(Some(Stamp::Nothing), Group::stamp);
        if let Some(stamp) = stamp.filter(|stamp| *stamp != slot.kept) {
            slot.kept = stamp;
            self.changed.note(text(name));
        }
    }

    /// Schedules a check of the group for its next possible deadline.
    fn set_alarm(&self, name: &str, slot: &mut Slot, at: Instant) {
        if slot.alarm_at.is_some_and(|set| set <= at) {
            return;
        }
        slot.alarm_at = Some(at);
        self.alarms.set(at, text(name));
    }

    /// Handles an alarm of `at`. An alarm that the group has replaced by an earlier one is void.
    fn ring(&self, name: &str, at: Instant, limits: JoinLimits) {
        let mut bucket = self.bucket(name).lock();
        match bucket.slots.get_mut(name) {
            Some(slot) if slot.alarm_at == Some(at) => slot.alarm_at = None,
            _ => return,
        }
        self.visit_in(&mut bucket, name, |visit| {
            if let Some(group) = visit.group {
                group.expire(limits, visit.now, visit.effects);
            }
        });
    }

    pub(crate) fn changed(&self) -> &Arc<ChangedGroups> {
        &self.changed
    }

    /// See [`Group::kept`].
    pub(crate) fn kept(&self, name: &str, level: Level) -> Option<Vec<u8>> {
        let bucket = self.bucket(name).lock();
        let group = bucket.slots.get(name).and_then(|slot| slot.group.as_ref());
        group.map_or(Some(Vec::new()), |group| group.kept(level))
    }

    /// Restores a group that an earlier coordinator stored. Each member has a session timeout to send its next
    /// heartbeat.
    pub fn restore(
        &self,
        name: &str,
        kept: &[u8],
        sessions: SessionTimeouts,
    ) -> Result<(), KeptError> {
        let now = self.now();
        let group = Group::restored(name, kept, sessions, now)?;
        if !self.has_room(name, group.bytes()) {
            return Err(KeptError::NoRoom);
        }
        let mut bucket = self.bucket(name).lock();
        let slot = bucket.slots.entry(text(name)).or_default();
        if slot.group.is_none() {
            self.totals.groups.fetch_add(1, Ordering::Relaxed);
        }
        slot.kept = group.stamp().unwrap_or_default();
        slot.group = Some(group);
        self.settle(name, slot, now);
        Ok(())
    }

    /// Passes every group to `show`, in no order.
    pub fn for_each(&self, mut show: impl FnMut(&str, &Group)) {
        for bucket in &self.buckets {
            for (name, slot) in &bucket.lock().slots {
                if let Some(group) = &slot.group {
                    show(name, group);
                }
            }
        }
    }

    /// The time since which a group has certainly had no members; `None` if it has some. Members before the start
    /// of the node are unknown, so nothing is older than that.
    pub fn empty_since(&self, name: &str) -> Option<Instant> {
        match self.bucket(name).lock().slots.get(name) {
            Some(slot) => slot.empty_since,
            None => Some(self.started),
        }
    }

    /// Groups without state except the time since which they are idle. In no order.
    pub fn idle(&self) -> Vec<Text> {
        let mut idle = Vec::new();
        for bucket in &self.buckets {
            let bucket = bucket.lock();
            let slots = bucket.slots.iter().filter(|(_, slot)| slot.is_idle());
            idle.extend(slots.map(|(name, _)| name.clone()));
        }
        idle
    }

    /// Drops a group if it is still idle.
    pub fn drop_idle(&self, name: &str) {
        let mut bucket = self.bucket(name).lock();
        if bucket.slots.get(name).is_none_or(|slot| !slot.is_idle()) {
            return;
        }
        if let Some(slot) = bucket.slots.remove(name) {
            self.totals.groups.fetch_sub(1, Ordering::Relaxed);
            self.totals.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
        }
    }
}

/// Checks each group when one of its deadlines may have passed, and reads `limits` then. Ends only by
/// cancellation: see [`crate::Coordinator::own`].
pub async fn watch_deadlines(groups: Weak<Registry>, limits: impl Fn() -> JoinLimits) {
    while let Some(alarms) = groups.upgrade().map(|registry| Arc::clone(&registry.alarms)) {
        alarms.due().await;
        let Some(registry) = groups.upgrade() else { break };
        while let Some((at, name)) = alarms.take_due() {
            registry.ring(&name, at, limits());
        }
    }
    // The owner that dropped the groups has cancelled this already.
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::ClassicGroup;

    fn found(name: &str) -> Group {
        Group::Classic(ClassicGroup::new(text(name)))
    }

    #[test]
    fn panic_of_an_event_drops_the_group_and_closes_its_waiters() {
        let registry = Registry::default();
        let names = ["half changed", "another"];
        let mut answers = names
            .map(|name| registry.visit_and_wait(name, |visit, _| *visit.group = Some(found(name))));
        let visit = || registry.visit(names[0], |_| panic!("injected: an event panics"));
        catch_unwind(AssertUnwindSafe(visit)).expect_err("the session that asked ends");
        let is_there = |name| registry.visit(name, |visit| visit.group.is_some());
        assert_eq!([is_there(names[0]), is_there(names[1])], [false, true]);
        let closed = Err(oneshot::error::TryRecvError::Closed);
        let empty = Err(oneshot::error::TryRecvError::Empty);
        assert_eq!(answers[0].try_recv().map(drop), closed);
        assert_eq!(answers[1].try_recv().map(drop), empty);
        assert_eq!(registry.totals.groups.load(Ordering::Relaxed), 1, "the other one is counted");
    }

    #[test]
    fn registry_releases_its_share_of_the_totals_when_dropped() {
        let totals = Arc::<Totals>::default();
        let registries = [(); 2].map(|()| Registry::new(Arc::clone(&totals)));
        for registry in &registries {
            registry.visit("g", |visit| *visit.group = Some(found("g")));
        }
        assert_eq!(totals.groups.load(Ordering::Relaxed), 2);
        drop(registries);
        let left = (&totals.groups, &totals.bytes);
        assert_eq!((left.0.load(Ordering::Relaxed), left.1.load(Ordering::Relaxed)), (0, 0));
    }
}
