//! The changes of the catalog that shards with rows take over. A shard has a version of the catalog; it
//! takes over all changes since then in one entry of its own log. An adoption states what exists now, not
//! each change, so it does not grow with the time that a shard was away.

use std::collections::VecDeque;

use base::limits::REMOVALS_REMEMBERED;
use base::{HashMap, LeaseGroupId, Offset, ShardId, SharedMap, Stripe, TopicId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::topic::Topic;

/// The changes that a shard takes over. Its fields are persisted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Adoption {
    /// The version of the catalog that the shard has so far: the adoption is refused if it has another.
    pub from: u64,
    /// The one that it has then.
    pub to: u64,
    /// Topics and groups that are not named are gone.
    pub all: bool,
    pub topics: Vec<AdoptedTopic>,
    pub groups: Vec<AdoptedGroup>,
    pub topics_gone: Vec<TopicId>,
    pub groups_gone: Vec<LeaseGroupId>,
}

/// A topic of which the shard has each `step`th partition from the `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedTopic {
    pub topic: TopicId,
    pub first: u32,
    pub step: u32,
    /// In all shards together.
    pub partitions: u32,
    pub deletes_settled: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdoptedGroup {
    pub group: LeaseGroupId,
    pub topic: TopicId,
    /// Where it begins in each of the topic's partitions, from the first on; one that is missing begins at
    /// its start.
    pub starts: Vec<Offset>,
}

impl Adoption {
    /// It says no more than that the shard has seen a version.
    pub fn is_empty(&self) -> bool {
        let named = self.topics.len() + self.groups.len();
        !self.all && named + self.topics_gone.len() + self.groups_gone.len() == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Changed {
    Topic(TopicId),
    LeaseGroup(LeaseGroupId),
    TopicGone(TopicId),
    LeaseGroupGone(LeaseGroupId),
}

impl Changed {
    fn is_removal(self) -> bool {
        matches!(self, Self::TopicGone(_) | Self::LeaseGroupGone(_))
    }
}

/// The last change of each thing that is there, and of many that are gone.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Feed {
    version: u64,
    /// Removals up to this version may be forgotten.
    forgotten: u64,
    pub(crate) changes: SharedMap<u64, Changed>,
    version_of: HashMap<Changed, u64>,
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

    /// As a snapshot has it; `None` if its changes are not in order.
    pub(crate) fn restored(
        version: u64,
        forgotten: u64,
        changes: impl Iterator<Item = (u64, Changed)>,
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

    pub(crate) fn note(&mut self, changed: Changed) {
        let former = match changed {
            Changed::TopicGone(id) => Changed::Topic(id),
            Changed::LeaseGroupGone(id) => Changed::LeaseGroup(id),
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

    fn insert(&mut self, changed: Changed) {
        self.changes.insert(self.version, changed);
        self.version_of.insert(changed, self.version);
        if changed.is_removal() {
            self.removals.push_back(self.version);
        }
    }

    /// Goes on from this version, if it is a later one: what shards know of those before cannot be followed.
    pub(crate) fn skip(&mut self, version: u64) {
        if version > self.version {
            (self.version, self.forgotten) = (version, version);
        }
    }

    /// A topic that goes takes its lease groups along: they are not named as gone.
    pub(crate) fn drop_group(&mut self, group: LeaseGroupId) {
        if let Some(at) = self.version_of.remove(&Changed::LeaseGroup(group)) {
            self.changes.remove(&at);
        }
    }
}

impl Catalog {
    /// Rows get a log of their own. The first shard has all that there is by now.
    pub(crate) fn begin_feed(&mut self) {
        (self.shards, self.slot_shards) = (1, 1);
        let topics = self.topics.keys().map(|id| Changed::Topic(*id));
        let groups = self.lease_groups.iter().map(|group| Changed::LeaseGroup(group.id));
        for changed in topics.chain(groups).collect::<Vec<_>>() {
            self.feed.note(changed);
        }
    }

    /// The version that shards are fed up to.
    pub fn version(&self) -> u64 {
        self.feed.version()
    }

    /// The changes after version `from` that concern a shard, out of at most `changes_max`. `None` if the
    /// shard is up to date.
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
                Changed::Topic(id) => {
                    if let Some(topic) = self.topic(id) {
                        self.adopt_topic(shard, topic, &mut adoption);
                    }
                }
                Changed::LeaseGroup(id) => self.adopt_group(shard, id, &mut adoption),
                Changed::TopicGone(id) => adoption.topics_gone.push(id),
                Changed::LeaseGroupGone(id) => adoption.groups_gone.push(id),
            }
        }
        // One that is new with its topic was found twice.
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

    /// With its lease groups: the shard may not have had any of its partitions before.
    fn adopt_topic(&self, shard: ShardId, topic: &Topic, adoption: &mut Adoption) {
        let stripe = topic.placement.stripe_of(shard);
        let stripe = stripe.filter(|it| it.rows_of(topic.partition_count) > 0);
        // What came from elsewhere may be all that the shard has of it.
        let comes = || topic.has_or_gets(shard).then_some(Stripe::NONE);
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
