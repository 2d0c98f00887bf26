//! The groups loaded in the driver, and the queue of groups to serve.
//!
//! A group is loaded while it is in use, or while its records change without a consumer. For the others only
//! the durable state exists, except counters and the next token.

pub(crate) mod group;
pub(crate) mod policy;
pub(crate) mod view;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::{HashMap, LeaseGroupId, Offset, PartitionId, TopicId};
use dispatch::{Pools, Token};
use machine::ALL_PARTITIONS;
use shard::Shard;
use shard::delivery::group_backlog::GroupBacklogs;
use shard::delivery::rates::Counts;
use shard::delivery::topic_limit::refuses;
use shard::watch::Watch;
use tokio::time::Instant;

use crate::groups::group::{Group, InFlightSettles};
use crate::groups::policy::is_attentive;
use crate::groups::view::{GroupView, SeenBefore, find};

pub(crate) struct Groups {
    shard: Arc<Shard>,
    watch: Arc<Watch>,
    standings: Arc<GroupBacklogs>,
    /// Whether steps of records are remembered.
    keeps_history: bool,
    by_id: HashMap<LeaseGroupId, Group>,
    by_topic: HashMap<TopicId, Vec<LeaseGroupId>>,
    /// Counters and next token of groups that are not in `by_id` now. Some are from before this term.
    retired: HashMap<LeaseGroupId, (Counts, Token)>,
    next_engine: u64,
    /// First token of this term.
    first_token: Token,
    /// Records that may have been delivered without a counted attempt.
    seen: Option<SeenBefore>,
    /// Groups to serve, each once.
    queue: VecDeque<LeaseGroupId>,
    /// Time of each group's next tick, on the timeline.
    deadlines: BTreeSet<(i64, LeaseGroupId)>,
    take_deadlines: BTreeSet<(Instant, LeaseGroupId)>,
}

/// Effect on a group of a change other than a settle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupEffect {
    Deleted,
    /// A loaded group was changed. `grown`: its consumers must be notified that its topic has more partitions.
    Changed {
        grown: bool,
    },
    /// It was not loaded before.
    Elsewhere,
}

impl Groups {
    /// `counts`: of groups that were used before this term.
    pub(crate) fn new(
        shard: Arc<Shard>,
        watch: Arc<Watch>,
        standings: Arc<GroupBacklogs>,
        keeps_history: bool,
        first_token: Token,
        seen: Option<SeenBefore>,
        counts: HashMap<LeaseGroupId, Counts>,
    ) -> Self {
        let retired = counts.into_iter().map(|(id, counts)| (id, (counts, first_token))).collect();
        Self {
            shard,
            watch,
            standings,
            keeps_history,
            by_id: HashMap::default(),
            by_topic: HashMap::default(),
            retired,
            next_engine: 1,
            first_token,
            seen,
            queue: VecDeque::new(),
            deadlines: BTreeSet::new(),
            take_deadlines: BTreeSet::new(),
        }
    }

    /// The groups in the order of their ids, and the counts of all that were used.
    pub(crate) fn leave(self) -> (Vec<Group>, HashMap<LeaseGroupId, Counts>) {
        let retired = self.retired.into_iter().map(|(id, (counts, _))| (id, counts));
        let mut counts: HashMap<LeaseGroupId, Counts> = retired.collect();
        let mut groups: Vec<Group> = self.by_id.into_values().collect();
        groups.sort_unstable_by_key(|group| group.id);
        for group in &groups {
            counts.insert(group.id, group.counts);
            if group.standing.is_some() {
                self.standings.forget(group.id);
            }
        }
        (groups, counts)
    }

    // ----------------------------------------------------------------------------------- loaded groups

    pub(crate) fn get(&self, id: LeaseGroupId) -> Option<&Group> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LeaseGroupId) -> Option<&mut Group> {
        self.by_id.get_mut(&id)
    }

    /// The group, if its engine is still this one.
    pub(crate) fn with_engine(&mut self, id: LeaseGroupId, engine: u64) -> Option<&mut Group> {
        self.by_id.get_mut(&id).filter(|group| group.engine == engine)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.by_id.values()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Counters of a group that is not loaded.
    pub(crate) fn retired_counts(&self, id: LeaseGroupId) -> Counts {
        self.retired.get(&id).map_or_else(Counts::default, |(counts, _)| *counts)
    }

    /// Loads the groups whose records change without a consumer.
    pub(crate) fn load_attentive(&mut self) {
        let ids: Vec<LeaseGroupId> = self.shard.read(|state| {
            let catalog = &state.catalog;
            let attentive = catalog.lease_groups().filter(|group| {
                let topic = catalog.topic(group.topic);
                topic.is_some_and(|topic| is_attentive(&group.config, &topic.config))
                    && state.rows.lease_group(group.id).is_some()
            });
            attentive.map(|group| group.id).collect()
        });
        for id in ids {
            self.load(id);
            self.enqueue(id);
        }
    }

    fn view(&self, id: LeaseGroupId) -> Option<GroupView> {
        GroupView::of(&self.shard, id).map(|found| found.seen_before(&self.shard, self.seen))
    }

    fn make(
        &self,
        found: &GroupView,
        first_token: Token,
        engine: u64,
        counts: Counts,
        in_flight: Vec<InFlightSettles>,
    ) -> Group {
        let mut group = Group::new(found, first_token, engine, counts, in_flight);
        if !self.keeps_history && found.topic.config.traced_per_million == 0 {
            group.dispatch.disable_steps();
        }
        group
    }

    /// Loads the group. False if it does not exist.
    pub(crate) fn load(&mut self, id: LeaseGroupId) -> bool {
        if self.by_id.contains_key(&id) {
            return true;
        }
        // Watch before the view: appends in between are not missed.
        let topic = self.shard.read(|state| Some(state.catalog.lease_group(id)?.topic));
        let Some(topic) = topic else { return false };
        self.watch.add_topic(topic);
        let unknown = (Counts::default(), self.first_token);
        let (counts, token) = self.retired.remove(&id).unwrap_or(unknown);
        let engine = self.new_engine();
        let Some(found) = self.view(id) else {
            self.unwatch(topic);
            return false;
        };
        let group = self.make(&found, token, engine, counts, Vec::new());
        self.by_topic.entry(topic).or_default().push(id);
        self.by_id.insert(id, group);
        true
    }

    /// The group's engine continues that of an earlier term, under the same number.
    pub(crate) fn resume_engine(&mut self, id: LeaseGroupId, engine: u64) -> Option<&mut Group> {
        self.next_engine = self.next_engine.max(engine + 1);
        let group = self.by_id.get_mut(&id)?;
        group.engine = engine;
        Some(group)
    }

    fn new_engine(&mut self) -> u64 {
        let engine = self.next_engine;
        self.next_engine += 1;
        engine
    }

    fn unwatch(&mut self, topic: TopicId) {
        if !self.by_topic.contains_key(&topic) {
            self.watch.remove_topic(topic);
        }
    }

    /// The group is unused: only its durable state, counters and next token are kept.
    fn unload(&mut self, id: LeaseGroupId) {
        let Some(group) = self.forget(id) else { return };
        self.retired.insert(id, (group.counts, group.dispatch.next_token()));
    }

    /// The group is gone from the catalog.
    pub(crate) fn delete(&mut self, id: LeaseGroupId) -> Option<Group> {
        self.retired.remove(&id);
        self.forget(id)
    }

    fn forget(&mut self, id: LeaseGroupId) -> Option<Group> {
        let group = self.by_id.remove(&id)?;
        if let Some(due) = group.deadline {
            self.deadlines.remove(&(due, id));
        }
        if group.standing.is_some() {
            self.standings.forget(id);
        }
        let topic = group.topic;
        if let Some(of_topic) = self.by_topic.get_mut(&topic) {
            of_topic.retain(|other| *other != id);
            if of_topic.is_empty() {
                self.by_topic.remove(&topic);
                self.unwatch(topic);
            }
        }
        Some(group)
    }

    /// Rebuilds the engine from the durable state and settles in flight: leases are void, consumers stay.
    /// `end_leases` is called with the old group, which is returned if the engine was rebuilt.
    pub(crate) fn renew(
        &mut self,
        id: LeaseGroupId,
        end_leases: impl FnOnce(&mut Group),
    ) -> Option<Group> {
        let mut old = self.by_id.remove(&id)?;
        let engine = self.new_engine();
        let token = old.dispatch.next_token();
        let in_flight = old.in_flight.clone();
        let made =
            self.view(id).map(|found| self.make(&found, token, engine, old.counts, in_flight));
        let joined = old.dispatch.joined();
        end_leases(&mut old);
        let Some(mut group) = made else {
            self.by_id.insert(id, old);
            return None;
        };
        for (consumer, joined) in joined {
            // They were admitted together before.
            let _ = group.dispatch.join(consumer, joined);
        }
        group.consumers = std::mem::take(&mut old.consumers);
        group.takers = std::mem::take(&mut old.takers);
        // The standing reported to the sequencer holds until the group is served again.
        group.standing = old.standing;
        group.meters = old.meters;
        if let Some(due) = old.deadline {
            self.deadlines.remove(&(due, id));
        }
        self.by_id.insert(id, group);
        self.queue.retain(|queued| *queued != id);
        self.enqueue(id);
        Some(old)
    }

    /// Unloads groups that have been unused for so long.
    pub(crate) fn unload_idle(&mut self, idle_max: Duration, now: Instant) {
        let mut unused = Vec::new();
        for (id, group) in &mut self.by_id {
            if !group.is_idle() {
                group.idle_since = None;
            } else if now - *group.idle_since.get_or_insert(now) >= idle_max {
                unused.push(*id);
            }
        }
        for id in unused {
            self.unload(id);
        }
    }

    // ---------------------------------------------------------------------------------------- scheduling

    /// The group will be served in this iteration or a later one.
    pub(crate) fn enqueue(&mut self, id: LeaseGroupId) {
        if let Some(group) = self.by_id.get_mut(&id)
            && !std::mem::replace(&mut group.queued, true)
        {
            self.queue.push_back(id);
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn next_queued(&mut self) -> Option<LeaseGroupId> {
        self.queue.pop_front()
    }

    /// Schedules the group for that time, whatever its engine's deadline.
    pub(crate) fn enqueue_at(&mut self, id: LeaseGroupId, due_ms: i64) {
        self.deadlines.insert((due_ms, id));
    }

    pub(crate) fn note_take(&mut self, id: LeaseGroupId, deadline: Instant) {
        self.take_deadlines.insert((deadline, id));
    }

    pub(crate) fn note_deadline(&mut self, id: LeaseGroupId, now_ms: i64) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        let due = group.dispatch.next_deadline();
        if due != group.deadline {
            if let Some(former) = group.deadline {
                self.deadlines.remove(&(former, id));
            }
            if let Some(due) = due {
                self.deadlines.insert((due, id));
            }
            group.deadline = due;
        }
        // A tick does a bounded amount of work.
        if due.is_some_and(|due| due <= now_ms) {
            self.enqueue(id);
        }
    }

    /// Queues the groups that are due.
    pub(crate) fn on_timer(&mut self, now_ms: i64, now: Instant) {
        while let Some(&(due_ms, id)) = self.deadlines.first()
            && due_ms <= now_ms
        {
            self.deadlines.pop_first();
            if let Some(group) = self.by_id.get_mut(&id) {
                group.deadline = None;
            }
            self.enqueue(id);
        }
        while let Some(&(due, id)) = self.take_deadlines.first()
            && due <= now
        {
            self.take_deadlines.pop_first();
            self.enqueue(id);
        }
    }

    /// Time of the next tick of any group, on the timeline.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.deadlines.first().map(|&(due_ms, _)| due_ms)
    }

    pub(crate) fn next_take_deadline(&self) -> Option<Instant> {
        self.take_deadlines.first().map(|&(due, _)| due)
    }

    /// Reports the group's waiting records to the sequencer, if it refuses records over a limit.
    pub(crate) fn report_backlog(&mut self, id: LeaseGroupId, pools: &Pools) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        if !refuses(&group.topic_config) {
            if group.standing.take().is_some() {
                self.standings.forget(id);
            }
            return;
        }
        let standing = group.backlog(pools);
        if group.standing != Some(standing) {
            group.standing = Some(standing);
            self.standings.note(id, standing);
        }
    }

    // --------------------------------------------------------------------------------- changes of groups

    /// Applies new start offsets and stable ends of partitions since the last call. After this every acknowledged
    /// record is found: the watch is marked before the producer's reply. `serving` is being served, and is not
    /// queued again for it.
    pub(crate) fn on_appended(&mut self, serving: Option<LeaseGroupId>) {
        let ready = self.watch.take_ready();
        let bounds: Vec<(PartitionId, Offset, Offset)> = self.shard.read(|state| {
            let found = ready.into_iter().filter_map(|id| {
                let partition = state.rows.partition(id)?;
                let end = state.rows.transactions().stable_end(id, partition.next_offset());
                Some((id, partition.log_start(), end))
            });
            found.collect()
        });
        for (partition, log_start, end) in bounds {
            let Some(ids) = self.by_topic.get(&partition.topic) else { continue };
            for id in ids.clone() {
                let Some(group) = self.by_id.get_mut(&id) else { continue };
                group.dispatch.extended(partition.index, end);
                group.on_log_start(partition.index, log_start);
                if serving != Some(id) {
                    self.enqueue(id);
                }
            }
        }
    }

    /// The group was created, deleted or changed by something other than a settle, or its topic changed.
    pub(crate) fn on_moved(&mut self, id: LeaseGroupId) -> GroupEffect {
        let known = self.by_id.contains_key(&id);
        let attentive = self.shard.read(|state| {
            let (group, topic) = find(state.catalog, id)?;
            let is_here = state.rows.lease_group(id).is_some();
            Some(is_here && is_attentive(&group.config, &topic.config))
        });
        match attentive {
            None => GroupEffect::Deleted,
            Some(_) if known => {
                let found = GroupView::of(&self.shard, id);
                let group = self.by_id.get_mut(&id);
                let grown = found.zip(group).is_some_and(|(found, group)| group.configure(&found));
                GroupEffect::Changed { grown }
            }
            Some(attentive) => {
                if attentive {
                    self.load(id);
                }
                GroupEffect::Elsewhere
            }
        }
    }

    /// A partition, or all, was sought. Returns whether the reset can be done now: settles in flight precede
    /// the seek, and the reset must come after them.
    pub(crate) fn on_sought(&mut self, id: LeaseGroupId, partition: u32) -> bool {
        let Some(group) = self.by_id.get_mut(&id) else { return false };
        match partition {
            ALL_PARTITIONS => group.sought.extend(group.dispatch.partitions()),
            partition => group.sought.push(partition),
        }
        group.in_flight.is_empty()
    }

    /// Resets the group to the positions that it was sought to.
    pub(crate) fn seek(&mut self, id: LeaseGroupId) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        group.seek(GroupView::of(&self.shard, id).as_ref());
    }

    /// Applies new log start offsets of a partition, or of all.
    pub(crate) fn refresh_log_starts(&mut self, id: LeaseGroupId, partition: u32) {
        let Some(group) = self.by_id.get_mut(&id) else { return };
        let topic = group.topic;
        let Some(topic) = self.shard.read(|state| state.rows.shared_topic(topic)) else { return };
        if partition != ALL_PARTITIONS {
            if let Some(found) = topic.partition(partition) {
                group.on_log_start(partition, found.log_start());
            }
            return;
        }
        for (id, found) in topic.partitions() {
            group.on_log_start(id.index, found.log_start());
        }
    }
}
