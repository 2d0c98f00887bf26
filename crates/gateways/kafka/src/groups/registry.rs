//! Where groups live: maps behind locks, one clock for all deadlines, and the answers that are due.
//!
//! The groups themselves are pure ([`super::classic`], [`super::consumer`], [`super::share`]). This shell locks one,
//! hands it an event, and carries out what follows. One task watches the deadlines of all groups:
//! each has at most one alarm in the heap that counts, for the earliest deadline it may have.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::HashMap;
use base::collections::HashState;
use base::limits::{GROUPS_BYTES_MAX, GROUPS_MAX};
use broker::Broker;
use broker::config::GroupValues;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tasks::Task;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tracing::warn;
use world::Instant;

use crate::groups::classic::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, JoinLimits};
use crate::groups::consumer::ConsumerGroup;
use crate::groups::expiry;
use crate::groups::member::{Effects, Reply, Waiter, own};
use crate::groups::share::ShareGroup;
use crate::groups::streams::StreamsGroup;

/// Locks over all groups. A lock is held for one event of one group.
const SHARDS: usize = 16;

/// What all sessions share about groups.
#[derive(Debug)]
pub(crate) struct Groups {
    registry: Arc<Registry>,
    tasks: [JoinHandle<()>; 2],
}

impl Groups {
    /// Must be called within a runtime: two tasks look after deadlines and old offsets.
    pub(crate) fn new(broker: &Broker) -> Self {
        let registry = Arc::new(Registry::new(broker.clone()));
        let timing = broker.vital(Task::KafkaGroupTimers, watch_deadlines(Arc::clone(&registry)));
        let expiring = broker.vital(Task::KafkaOffsetExpiry, expiry::run(Arc::clone(&registry)));
        Self { registry, tasks: [timing, expiring] }
    }
}

impl std::ops::Deref for Groups {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Registry {
    broker: Broker,
    hasher: HashState,
    shards: [Mutex<Shard>; SHARDS],
    alarms: Mutex<BinaryHeap<Reverse<(Instant, StrBytes)>>>,
    /// Rings when an alarm was set before all others.
    sooner: Notify,
    last_waiter: AtomicU64,
    /// Groups, and what their members weigh.
    groups: AtomicUsize,
    bytes: AtomicUsize,
    started: Instant,
}

#[derive(Debug, Default)]
struct Shard {
    slots: HashMap<StrBytes, Slot>,
    waiting: HashMap<Waiter, Waiting>,
}

/// Who waits for an answer of a group.
#[derive(Debug)]
struct Waiting {
    group: StrBytes,
    answer: oneshot::Sender<Reply>,
}

#[derive(Debug, Default)]
struct Slot {
    /// `None` only while an event makes or ends the group.
    group: Option<Group>,
    alarm_at: Option<Instant>,
    /// As last added to the registry's sum.
    bytes: usize,
    /// Since when it has had no members.
    empty_since: Option<Instant>,
}

impl Slot {
    /// Whether nothing is lost with it but since when it has had no members.
    fn is_idle(&self) -> bool {
        self.group.as_ref().is_none_or(Group::is_idle)
    }
}

/// A group whose members are known here.
#[derive(Debug)]
pub(crate) enum Group {
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
    Share(ShareGroup),
    Streams(StreamsGroup),
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.is_empty(),
            Self::Share(group) => group.is_empty(),
            Self::Streams(group) => group.is_empty(),
        }
    }

    /// Whether nothing is lost with it.
    fn is_idle(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_idle(),
            Self::Consumer(group) => group.is_empty(),
            Self::Share(group) => group.is_empty(),
            Self::Streams(group) => group.is_empty(),
        }
    }

    fn check_at(&self) -> Option<Instant> {
        match self {
            Self::Classic(group) => group.check_at(),
            Self::Consumer(group) => group.check_at(),
            Self::Share(group) => group.check_at(),
            Self::Streams(group) => group.check_at(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Classic(group) => group.bytes(),
            Self::Consumer(group) => group.bytes(),
            Self::Share(group) => group.bytes(),
            Self::Streams(group) => group.bytes(),
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.phase().name(),
            Self::Consumer(group) => group.state_name(),
            Self::Share(group) => group.state_name(),
            Self::Streams(group) => group.state_name(),
        }
    }

    /// As ListGroups filters by it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => CLASSIC_TYPE_NAME,
            Self::Consumer(_) => "consumer",
            Self::Share(_) => SHARE_TYPE_NAME,
            Self::Streams(_) => STREAMS_TYPE_NAME,
        }
    }

    pub(crate) fn protocol_type(&self) -> StrBytes {
        match self {
            Self::Classic(group) => group.protocol_type().cloned().unwrap_or_default(),
            Self::Consumer(_) => StrBytes::from_static_str(CONSUMER_PROTOCOL_TYPE),
            Self::Share(_) => StrBytes::from_static_str(SHARE_TYPE_NAME),
            Self::Streams(_) => StrBytes::from_static_str(STREAMS_TYPE_NAME),
        }
    }

    fn expire(&mut self, values: &GroupValues, now: Instant, effects: &mut Effects) {
        match self {
            Self::Classic(group) => group.expire(join_limits(values), now, effects),
            Self::Consumer(group) => group.expire(now),
            Self::Share(group) => group.expire(now),
            Self::Streams(group) => group.expire(now),
        }
    }
}

pub(crate) const CLASSIC_TYPE_NAME: &str = "classic";
/// Also what the members' protocol is called.
pub(crate) const SHARE_TYPE_NAME: &str = "share";
/// Likewise.
const STREAMS_TYPE_NAME: &str = "streams";

pub(crate) fn join_limits(values: &GroupValues) -> JoinLimits {
    JoinLimits {
        initial_delay: millis(values.initial_rebalance_delay_ms),
        members_max: values.members_max,
    }
}

/// A time in a request or a configuration; less than none is none.
pub(crate) fn millis(ms: i32) -> std::time::Duration {
    std::time::Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// What an event may do to a group.
pub(crate) struct Visit<'a> {
    /// `None` if there is none, or to be none after the visit.
    pub(crate) group: &'a mut Option<Group>,
    pub(crate) now: Instant,
    pub(crate) effects: &'a mut Effects,
}

impl Registry {
    fn new(broker: Broker) -> Self {
        Self {
            broker,
            hasher: HashState::default(),
            shards: Default::default(),
            alarms: Mutex::default(),
            sooner: Notify::new(),
            last_waiter: AtomicU64::new(0),
            groups: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    /// What the node's configuration says about groups now.
    pub(crate) fn values(&self) -> GroupValues {
        self.broker.catalog().node_config().own.groups
    }

    /// Whether so many more bytes of a member fit, and the group itself if there is none yet.
    pub(crate) fn has_room(&self, name: &StrBytes, bytes: usize) -> bool {
        let groups = self.groups.load(Ordering::Relaxed);
        let held = self.bytes.load(Ordering::Relaxed);
        let fits = held.saturating_add(bytes) <= GROUPS_BYTES_MAX
            && (groups < GROUPS_MAX || self.shard(name).lock().slots.contains_key(name));
        if !fits {
            warn!(groups, bytes = held, "no room for more groups or members");
        }
        fits
    }

    /// Shows a group an event, and carries out what follows from it.
    pub(crate) fn visit<R>(&self, name: &StrBytes, event: impl FnOnce(Visit<'_>) -> R) -> R {
        let mut shard = self.shard(name).lock();
        self.visit_in(&mut shard, name, event)
    }

    /// As [`Registry::visit`], for an event whose answer may come later: it is sent to the
    /// receiver.
    pub(crate) fn visit_and_wait(
        &self,
        name: &StrBytes,
        event: impl FnOnce(Visit<'_>, Waiter),
    ) -> oneshot::Receiver<Reply> {
        let waiter = Waiter(self.last_waiter.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, receiver) = oneshot::channel();
        let mut shard = self.shard(name).lock();
        shard.waiting.insert(waiter, Waiting { group: own(name), answer });
        self.visit_in(&mut shard, name, |visit| event(visit, waiter));
        receiver
    }

    fn shard(&self, name: &StrBytes) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(name.as_str());
        &self.shards[hash as usize % SHARDS]
    }

    fn visit_in<R>(
        &self,
        shard: &mut Shard,
        name: &StrBytes,
        event: impl FnOnce(Visit<'_>) -> R,
    ) -> R {
        let now = Instant::now();
        let mut effects = Effects::default();
        let mut fresh = Slot::default();
        let (slot, was_there) = match shard.slots.get_mut(name) {
            Some(slot) => (slot, true),
            None => (&mut fresh, false),
        };
        let visit = Visit { group: &mut slot.group, now, effects: &mut effects };
        // The panic is the session's; a group that is half changed would be all its members'.
        let result = catch_unwind(AssertUnwindSafe(|| event(visit)));
        if result.is_err() {
            slot.group = None;
        }
        let is_there = slot.group.is_some();
        self.settle(name, slot, now);
        match (was_there, is_there) {
            (false, true) => {
                self.groups.fetch_add(1, Ordering::Relaxed);
                shard.slots.insert(own(name), fresh);
            }
            (true, false) => {
                self.groups.fetch_sub(1, Ordering::Relaxed);
                shard.slots.remove(name);
            }
            _ => {}
        }
        for (waiter, reply) in effects.replies {
            if let Some(Waiting { answer, .. }) = shard.waiting.remove(&waiter) {
                // Whoever asked may be gone: the group will notice by its silence.
                let _ = answer.send(reply);
            }
        }
        result.unwrap_or_else(|panic| {
            // Nobody is left who would answer them: members join again, and find a new group.
            shard.waiting.retain(|_, waiting| waiting.group != *name);
            resume_unwind(panic)
        })
    }

    /// Brings what is known about a group up to what an event has made of it.
    fn settle(&self, name: &StrBytes, slot: &mut Slot, now: Instant) {
        let bytes = slot.group.as_ref().map_or(0, Group::bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(std::mem::replace(&mut slot.bytes, bytes), Ordering::Relaxed);
        if slot.group.as_ref().is_some_and(Group::is_empty) {
            slot.empty_since.get_or_insert(now);
        } else {
            slot.empty_since = None;
        }
        if let Some(at) = slot.group.as_ref().and_then(Group::check_at) {
            self.set_alarm(name, slot, at);
        }
    }

    /// Sees to it that the group is looked at when its next deadline may have come.
    fn set_alarm(&self, name: &StrBytes, slot: &mut Slot, at: Instant) {
        if slot.alarm_at.is_some_and(|set| set <= at) {
            return;
        }
        slot.alarm_at = Some(at);
        let mut alarms = self.alarms.lock();
        let is_first = alarms.peek().is_none_or(|Reverse((first, _))| at < *first);
        alarms.push(Reverse((at, own(name))));
        drop(alarms);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// An alarm of `at` has gone off. One that the group has replaced by an earlier one is void.
    fn ring(&self, name: &StrBytes, at: Instant) {
        let values = self.values();
        let mut shard = self.shard(name).lock();
        match shard.slots.get_mut(name) {
            Some(slot) if slot.alarm_at == Some(at) => slot.alarm_at = None,
            _ => return,
        }
        self.visit_in(&mut shard, name, |visit| {
            if let Some(group) = visit.group {
                group.expire(&values, visit.now, visit.effects);
            }
        });
    }

    /// Shows every group, in no order.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&StrBytes, &Group)) {
        for shard in &self.shards {
            for (name, slot) in &shard.lock().slots {
                if let Some(group) = &slot.group {
                    show(name, group);
                }
            }
        }
    }

    /// Since when a group has certainly had no members; `None` if it has some. Who were members
    /// before the node started is not known, so nothing is older than that.
    pub(crate) fn empty_since(&self, name: &StrBytes) -> Option<Instant> {
        match self.shard(name).lock().slots.get(name) {
            Some(slot) => slot.empty_since,
            None => Some(self.started),
        }
    }

    /// Groups of which nothing needs to be remembered but since when they are so. In no order.
    pub(crate) fn idle(&self) -> Vec<StrBytes> {
        let mut idle = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let slots = shard.slots.iter().filter(|(_, slot)| slot.is_idle());
            idle.extend(slots.map(|(name, _)| name.clone()));
        }
        idle
    }

    /// Drops a group if it is idle still.
    pub(crate) fn drop_idle(&self, name: &StrBytes) {
        let mut shard = self.shard(name).lock();
        if shard.slots.get(name).is_none_or(|slot| !slot.is_idle()) {
            return;
        }
        if let Some(slot) = shard.slots.remove(name) {
            self.groups.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
        }
    }
}

async fn watch_deadlines(registry: Arc<Registry>) {
    loop {
        let first = registry.alarms.lock().peek().map(|Reverse((at, _))| *at);
        match first {
            Some(at) => tokio::select! {
                biased;
                () = sleep_until(at) => {}
                () = registry.sooner.notified() => continue,
            },
            None => {
                registry.sooner.notified().await;
                continue;
            }
        }
        while let Some((at, name)) = registry.take_due() {
            registry.ring(&name, at);
        }
    }
}

impl Registry {
    fn take_due(&self) -> Option<(Instant, StrBytes)> {
        let mut alarms = self.alarms.lock();
        match alarms.peek() {
            Some(Reverse((at, _))) if *at <= Instant::now() => alarms.pop().map(|Reverse(due)| due),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::BrokerOptions;
    use world::{SimulatedDisk, World};

    use super::*;

    async fn registry() -> Registry {
        let disk = Arc::new(SimulatedDisk::new());
        let opened =
            Broker::open(World::on(disk), Path::new("/data"), BrokerOptions::default()).await;
        Registry::new(opened.expect("an empty disk opens"))
    }

    fn found(name: &StrBytes) -> Group {
        Group::Classic(ClassicGroup::new(name.clone()))
    }

    #[tokio::test]
    async fn a_group_in_which_an_event_panics_is_forgotten_and_its_waiters_are_told() {
        let registry = registry().await;
        let names = ["half changed", "another"].map(StrBytes::from_static_str);
        let mut answers = names.clone().map(|name| {
            registry.visit_and_wait(&name, |visit, _| *visit.group = Some(found(&name)))
        });
        let visit = || registry.visit(&names[0], |_| panic!("injected: an event panics"));
        catch_unwind(AssertUnwindSafe(visit)).expect_err("the session that asked ends");
        let is_there = |name| registry.visit(name, |visit| visit.group.is_some());
        assert_eq!([is_there(&names[0]), is_there(&names[1])], [false, true]);
        let closed = Err(oneshot::error::TryRecvError::Closed);
        let empty = Err(oneshot::error::TryRecvError::Empty);
        assert_eq!(answers[0].try_recv().map(drop), closed);
        assert_eq!(answers[1].try_recv().map(drop), empty);
        assert_eq!(registry.groups.load(Ordering::Relaxed), 1, "the other one is counted");
        registry.broker.clone().shutdown().await;
    }
}
