//! Which groups the driver knows, and how it notices that one changed: it was moved, its topic
//! grew, records were appended.

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::ALL_PARTITIONS;

use crate::error::Unavailable;

use super::commit::Waiter;
use super::driver::Driver;
use super::error::TakeError;
use super::event::GoneReason;
use super::group::Group;
use super::policy::{drops_oldest, is_attentive, policy};
use super::rates::Counts;
use super::view::{GroupView, find};

impl Driver {
    /// Groups to whose records something happens though nobody consumes.
    pub(super) fn load_attentive(&mut self) {
        let ids: Vec<LeaseGroupId> = self.shard.read(|state| {
            let catalog = &state.catalog;
            let attentive = catalog.lease_groups().filter(|group| {
                let topic = catalog.topic(group.topic);
                topic.is_some_and(|topic| is_attentive(&group.config, &topic.config))
            });
            attentive.map(|group| group.id).collect()
        });
        for id in ids {
            self.load(id);
            self.enqueue(id);
        }
    }

    /// Makes the group known here. False when there is none.
    pub(super) fn load(&mut self, id: LeaseGroupId) -> bool {
        if self.groups.contains_key(&id) {
            return true;
        }
        // First the watch, then the look: nothing that is appended in between is missed.
        let topic = self.shard.read(|state| Some(state.catalog.lease_group(id)?.topic));
        let Some(topic) = topic else { return false };
        self.watch.add_topic(topic);
        let unknown = (Counts::default(), self.first_token);
        let (counts, token) = self.retired.remove(&id).unwrap_or(unknown);
        let engine = self.next_engine;
        self.next_engine += 1;
        let Some(found) = GroupView::of(&self.shard, id) else {
            self.unwatch(topic);
            return false;
        };
        let group = Group::new(&found, token, engine, counts, Vec::new());
        self.by_topic.entry(topic).or_default().push(id);
        self.groups.insert(id, group);
        true
    }

    fn unwatch(&mut self, topic: TopicId) {
        if !self.by_topic.contains_key(&topic) {
            self.watch.remove_topic(topic);
        }
    }

    /// Nobody uses it: what is durable is all that is kept.
    pub(super) fn unload(&mut self, id: LeaseGroupId) {
        let Some(group) = self.forget(id) else { return };
        self.retired.insert(id, (group.counts, group.dispatch.next_token()));
    }

    fn forget(&mut self, id: LeaseGroupId) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        if let Some(due) = group.deadline {
            self.deadlines.remove(&(due, id));
        }
        if group.standing.is_some() {
            self.standings.forget(id);
        }
        self.groups_with_dead.remove(&id);
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

    /// Makes the engine anew from what is durable or will be: leases are void, consumers stay.
    pub(super) fn reload(&mut self, id: LeaseGroupId) {
        let Some(mut old) = self.groups.remove(&id) else { return };
        let engine = self.next_engine;
        self.next_engine += 1;
        let token = old.dispatch.next_token();
        let under_way = old.under_way.clone();
        let made = GroupView::of(&self.shard, id)
            .map(|found| Group::new(&found, token, engine, old.counts, under_way));
        let joined = old.dispatch.joined();
        self.give_back_pools(&mut old);
        let Some(mut group) = made else {
            self.groups.insert(id, old);
            return;
        };
        for (consumer, joined) in joined {
            // They were there together before.
            let _ = group.dispatch.join(consumer, joined);
        }
        group.consumers = old.consumers;
        group.takers = old.takers;
        // What the sequencer was told holds until the next time that the group is served.
        group.standing = old.standing;
        group.meters = old.meters;
        if let Some(due) = old.deadline {
            self.deadlines.remove(&(due, id));
        }
        let waiters = old.reject_waiters;
        self.groups.insert(id, group);
        self.queue.retain(|queued| *queued != id);
        self.changed.retain(|changed| *changed != id);
        self.enqueue(id);
        // What they settled went with the engine, also where it was not yet under way.
        let (unsent, others) =
            std::mem::take(&mut self.waiters).into_iter().partition(|it| it.groups.contains(&id));
        self.waiters = others;
        let unsent: Vec<Waiter> = unsent;
        for waiter in waiters.into_iter().map(|(_, waiter)| waiter).chain(unsent) {
            waiter.fail(&Unavailable::NotLeader);
        }
    }

    /// What its leases used of the sessions' pools is free again.
    fn give_back_pools(&mut self, group: &mut Group) {
        let now_ms = self.timeline.now_ms();
        let holding: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.groups.contains(&group.id))
            .map(|(id, _)| *id)
            .collect();
        for session in holding {
            group.dispatch.end_session(session, now_ms);
        }
        group.dispatch.return_to(&mut self.pools);
    }

    /// The group changed by something other than a settle, or its topic did, or it is new or gone.
    pub(super) fn moved(&mut self, id: LeaseGroupId, partition: u32, sought: bool) {
        let known = self.groups.contains_key(&id);
        let attentive = self.shard.read(|state| {
            let (group, topic) = find(&state.catalog, id)?;
            Some(is_attentive(&group.config, &topic.config))
        });
        match attentive {
            None => self.deleted(id),
            Some(true) if !known => {
                self.load(id);
            }
            Some(_) if known => {
                self.configure(id);
                if sought {
                    self.sought(id, partition);
                } else {
                    self.look_at_starts(id, partition);
                }
            }
            Some(_) => {}
        }
        self.enqueue(id);
    }

    fn deleted(&mut self, id: LeaseGroupId) {
        self.retired.remove(&id);
        let Some(mut group) = self.forget(id) else { return };
        self.give_back_pools(&mut group);
        self.changed.retain(|changed| *changed != id);
        for (consumer, joined) in group.consumers {
            self.gone(joined.session, consumer, GoneReason::Deleted);
        }
        for taker in group.takers {
            let _ = taker.reply.send(Err(TakeError::UnknownGroup(id)));
        }
        // With the group all of it is settled, in a way.
        for (_, waiter) in group.reject_waiters {
            self.answer(waiter);
        }
        for session in self.sessions.values_mut() {
            session.groups.remove(&id);
        }
    }

    /// Takes over the group's configuration, and partitions that are new.
    fn configure(&mut self, id: LeaseGroupId) {
        let Some(known) = self.groups.get_mut(&id) else { return };
        let Some(found) = GroupView::of(&self.shard, id) else { return };
        let GroupView { group, topic, .. } = &found;
        let former = known.dispatch.policy();
        let policy = policy(&group.config, &topic.config);
        if *former != policy {
            known.dispatch.set_policy(policy);
        }
        known.config = group.config.clone();
        known.topic_config = topic.config.clone();
        known.dispatch.set_paused(group.paused);
        for index in known.log_starts.len() as u32..topic.partition_count() {
            let Some(start) = found.start(index) else { break };
            known.log_starts.push(start.log_start);
            known.dispatch.grow(start);
        }
    }

    fn sought(&mut self, id: LeaseGroupId, partition: u32) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        match partition {
            ALL_PARTITIONS => group.sought.extend(0..group.log_starts.len() as u32),
            partition => group.sought.push(partition),
        }
        // What is under way was settled before the seek; the look must come after it.
        if group.under_way.is_empty() {
            self.seek_now(id);
        }
    }

    pub(super) fn seek_now(&mut self, id: LeaseGroupId) {
        let Some(known) = self.groups.get_mut(&id) else { return };
        let mut sought = std::mem::take(&mut known.sought);
        sought.sort_unstable();
        sought.dedup();
        if let Some(found) = GroupView::of(&self.shard, id) {
            for &index in &sought {
                let Some(start) = found.start(index) else { continue };
                if let Some(log_start) = known.log_starts.get_mut(index as usize) {
                    *log_start = start.log_start;
                }
                known.dispatch.reset_partition(index, start);
            }
        }
        let dead_before = known.dead.len();
        known.dead.retain(|pending| !sought.contains(&pending.letter.partition));
        // Their rejects are answered: the seek came after them.
        known.dead_lettered += (dead_before - known.dead.len()) as u64;
        known.overflowed.retain(|(partition, _)| !sought.contains(partition));
        self.answer_dead_lettered(id);
        self.enqueue(id);
    }

    fn look_at_starts(&mut self, id: LeaseGroupId, partition: u32) {
        let Some(known) = self.groups.get_mut(&id) else { return };
        let topic = known.topic;
        let Some(topic) = self.shard.read(|state| state.rows.shared_topic(topic)) else { return };
        let partitions = known.log_starts.len() as u32;
        let asked = match partition {
            ALL_PARTITIONS => 0..partitions,
            partition => partition..partition.saturating_add(1).min(partitions),
        };
        for index in asked {
            let Some(found) = topic.partition(index) else { break };
            known.begins(index, found.log_start());
        }
    }

    /// Takes over where partitions end and begin that changed since this was last called. After this
    /// every record is found whose producer was answered: the watch is marked before the answer.
    /// `serving` is being served, and need not be served again for it.
    pub(super) fn appended(&mut self, serving: Option<LeaseGroupId>) {
        let ready = self.watch.take_ready();
        let bounds: Vec<(PartitionId, Offset, Offset)> = self.shard.read(|state| {
            let found = ready.into_iter().filter_map(|id| {
                let partition = state.rows.partition(id)?;
                Some((id, partition.log_start(), partition.next_offset()))
            });
            found.collect()
        });
        for (partition, log_start, end) in bounds {
            let Some(ids) = self.by_topic.get(&partition.topic) else { continue };
            for id in ids.clone() {
                let Some(group) = self.groups.get_mut(&id) else { continue };
                group.dispatch.extended(partition.index, end);
                group.begins(partition.index, log_start);
                if serving != Some(id) {
                    self.enqueue(id);
                }
            }
        }
    }

    /// Makes room where a topic holds more than it may: the oldest records go.
    pub(super) fn drop_overflow(&mut self, id: LeaseGroupId, now_ms: i64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if !drops_oldest(&group.topic_config) {
            return;
        }
        super::overflow::drop_oldest(group, now_ms);
    }
}
