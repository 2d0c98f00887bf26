//! The changes of the catalog that shards with rows adopt. A shard has a version of the catalog; it
//! adopts all later changes in one entry of its own log. An adoption contains the current state,
//! not each change, so its size does not depend on how long a shard lagged.

use std::collections::VecDeque;

use crate::limits::REMOVALS_REMEMBERED;
use base::{HashMap, LeaseGroupId, ShardId, SharedMap, Stripe, TopicId};

use super::Catalog;
use super::topic::Topic;

pub use crate::command::{AdoptedGroup, AdoptedTopic, Adoption};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CatalogChange {
    Topic(TopicId),
    LeaseGroup(LeaseGroupId),
    TopicGone(TopicId),
    LeaseGroupGone(LeaseGroupId),
}

impl CatalogChange {
    fn is_removal(self) -> bool {
        matches!(self, Self::TopicGone(_) | Self::LeaseGroupGone(_))
    }
}

/// The last change of each existing thing, and of many deleted ones.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Feed {
    version: u64,
    /// Removals up to this version may be dropped from the feed.
    forgotten: u64,
    pub(crate) changes: SharedMap<u64, CatalogChange>,
    version_of: HashMap<CatalogChange, u64>,
    /// Versions of the removals among them, ascending.
    removals: VecDeque<u64>,
}

impl Feed {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// A feed of a snapshot; `None` if its changes are not in order.
    pub(crate) fn restored(
        version: u64,
        forgotten: u64,
        changes: impl Iterator<Item = (u64, CatalogChange)>,
    ) -> Option<Self> {
        let mut feed = Self { forgotten, ..Self::default() };
        for (at, changed) in changes {
            if at <= feed.version || feed.version_of.contains_key(&changed) {
                return None;
            }
            feed.version = at;
            feed.insert(changed);
        }
        (feed.version <= version && forgotten <= version).then(|| Self { version, ..feed })
    }

    pub(crate) fn note(&mut self, changed: CatalogChange) {
        let former = match changed {
            CatalogChange::TopicGone(id) => CatalogChange::Topic(id),
            CatalogChange::LeaseGroupGone(id) => CatalogChange::LeaseGroup(id),
            there => there,
        };
        if let Some(former) = self.version_of.remove(&former) {
            self.changes.remove(&former);
        }
        self.version += 1;
        self.insert(changed);
        if self.removals.len() > REMOVALS_REMEMBERED
            && let Some(oldest) = self.removals.pop_front()
        {
            self.forgotten = oldest;
            if let Some(removal) = self.changes.remove(&oldest) {
                self.version_of.remove(&removal);
            }
        }
    }

    fn insert(&mut self, changed: CatalogChange) {
        self.changes.insert(self.version, changed);
        self.version_of.insert(changed, self.version);
        if changed.is_removal() {
            self.removals.push_back(self.version);
        }
    }

    /// Continues from this version if it is later. Shards cannot catch up from earlier versions by
    /// changes.
    pub(crate) fn skip(&mut self, version: u64) {
        if version > self.version {
            (self.version, self.forgotten) = (version, version);
        }
    }

    /// Deleting a topic also deletes its lease groups: they are not listed as deleted.
    pub(crate) fn drop_group(&mut self, group: LeaseGroupId) {
        if let Some(at) = self.version_of.remove(&CatalogChange::LeaseGroup(group)) {
            self.changes.remove(&at);
        }
    }
}

impl Catalog {
    /// Gives rows a log of their own. The first shard already has everything that exists now.
    pub(crate) fn begin_feed(&mut self) {
        (self.shards, self.slot_shards) = (1, 1);
        let topics = self.topics.keys().map(|id| CatalogChange::Topic(*id));
        let groups = self.lease_groups.iter().map(|group| CatalogChange::LeaseGroup(group.id));
        for changed in topics.chain(groups).collect::<Vec<_>>() {
            self.feed.note(changed);
        }
    }

    /// The newest version that shards can adopt.
    pub fn version(&self) -> u64 {
        self.feed.version()
    }

    /// The changes after version `from` that concern a shard, from at most `changes_max`. `None` if
    /// the shard is up to date.
    pub fn adoption(&self, shard: ShardId, from: u64, changes_max: usize) -> Option<Adoption> {
        if from >= self.version() {
            return None;
        }
        if from < self.feed.forgotten() {
            return Some(self.adoption_of_all(shard, from));
        }
        let mut adoption = Adoption { from, to: self.version(), ..Adoption::default() };
        for (count, (&at, &changed)) in self.feed.changes.range(from + 1..).enumerate() {
            if count >= changes_max {
                adoption.to = at - 1;
                break;
            }
            match changed {
                CatalogChange::Topic(id) => {
                    if let Some(topic) = self.topic(id) {
                        self.adopt_topic(shard, topic, &mut adoption);
                    }
                }
                CatalogChange::LeaseGroup(id) => self.adopt_group(shard, id, &mut adoption),
                CatalogChange::TopicGone(id) => adoption.topics_gone.push(id),
                CatalogChange::LeaseGroupGone(id) => adoption.groups_gone.push(id),
            }
        }
        // A group that is new with its topic was found twice.
        adoption.groups.sort_by_key(|group| group.group);
        adoption.groups.dedup_by_key(|group| group.group);
        Some(adoption)
    }

    fn adoption_of_all(&self, shard: ShardId, from: u64) -> Adoption {
        let mut adoption = Adoption { from, to: self.version(), all: true, ..Adoption::default() };
        for topic in self.topics.values() {
            self.adopt_topic(shard, topic, &mut adoption);
        }
        adoption
    }

    /// Includes its lease groups: the shard may not have owned any of its partitions before.
    fn adopt_topic(&self, shard: ShardId, topic: &Topic, adoption: &mut Adoption) {
        let stripe = topic.placement.stripe_of(shard);
        let stripe = stripe.filter(|it| it.rows_of(topic.partition_count) > 0);
        // Partitions moved from other shards may be all that the shard owns of it.
        let comes = || topic.owns_or_receives(shard).then_some(Stripe::NONE);
        let Some(stripe) = stripe.or_else(comes) else { return };
        adoption.topics.push(AdoptedTopic {
            topic: topic.id,
            first: stripe.first(),
            step: stripe.step(),
            partitions: topic.partition_count,
            deletes_settled: topic.config.retention_settled,
        });
        for &group in self.lease_groups.ids_of(topic.id) {
            self.adopt_group(shard, group, adoption);
        }
    }

    fn adopt_group(&self, shard: ShardId, id: LeaseGroupId, adoption: &mut Adoption) {
        let Some(group) = self.lease_group(id) else { return };
        let has_rows = self.topic(group.topic).is_some_and(|topic| {
            let stripe = topic.placement.stripe_of(shard);
            stripe.is_some_and(|stripe| stripe.rows_of(topic.partition_count) > 0)
        });
        if !has_rows {
            return;
        }
        let starts = group.starts.as_deref().unwrap_or_default().to_vec();
        adoption.groups.push(AdoptedGroup { group: id, topic: group.topic, starts });
    }
}
