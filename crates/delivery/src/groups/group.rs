//! One lease group in the driver, while it is in use.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{HashMap, LeaseGroupId, Offset, PartitionId, Stripe, TopicId};
use dispatch::{Changes, ConsumerId, Dispatch, PartitionStart, Policy, Pools, PushConsumer, Token};
use machine::config::{LeaseGroupConfig, LeaseOrdering, PrioritiesOrder};
use machine::{GroupSettle, TopicConfig};
use record::SharedRecord;
use shard::delivery::dead_letter::DeadRecord;
use shard::delivery::group_backlog::GroupBacklog;
use shard::delivery::rates::{Counts, GroupMeters};
use tokio::time::Instant;

use super::policy::{is_attentive, policy};
use super::view::GroupView;
use crate::dead_letters::{DeadLetters, PendingLetter};
use crate::takes::Taker;

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: LeaseGroupId,
    pub(crate) topic: TopicId,
    pub(crate) name: Arc<str>,
    pub(crate) topic_name: Arc<str>,
    pub(crate) config: Arc<LeaseGroupConfig>,
    pub(crate) topic_config: Arc<TopicConfig>,
    /// The topic's partitions in this shard.
    stripe: Stripe,
    /// Number of the topic's partitions in all shards.
    partitions: u32,
    pub(crate) dispatch: Dispatch,
    /// Distinguishes this engine from earlier ones of the group.
    pub(crate) engine: u64,
    /// Log start offset of each of its partitions here, as last seen.
    log_starts: Vec<Offset>,
    /// Kept so that they can join again if the engine has to be rebuilt.
    pub(crate) consumers: HashMap<ConsumerId, PushConsumer>,
    pub(crate) takers: VecDeque<Taker>,
    pub(crate) dead: DeadLetters,
    /// Requests in flight and their settles, of other groups too.
    pub(crate) in_flight: Vec<InFlightSettles>,
    /// Partitions that were sought, to be reset once nothing is in flight.
    pub(crate) sought: Vec<u32>,
    pub(crate) reads: u32,
    /// Waits in the driver's queue of groups to serve.
    pub(crate) queued: bool,
    pub(crate) changed: bool,
    pub(crate) deadline: Option<i64>,
    pub(crate) idle_since: Option<Instant>,
    pub(crate) counts: Counts,
    pub(crate) meters: GroupMeters,
    /// The standing last reported to the sequencer.
    pub(crate) standing: Option<GroupBacklog>,
    /// For topics with priorities: the facts up to these offsets must be known before the next push.
    pub(crate) look_to: Option<Vec<Offset>>,
    /// Average record size in bytes, to limit reads to the wanted data.
    pub(crate) record_bytes: usize,
}

/// The number of a request, and its settles.
pub(crate) type InFlightSettles = (u64, Arc<[GroupSettle]>);

impl Group {
    pub(crate) fn new(
        found: &GroupView,
        first_token: Token,
        engine: u64,
        counts: Counts,
        in_flight: Vec<InFlightSettles>,
    ) -> Self {
        let GroupView { group, topic, stripe, .. } = found;
        let starts = starts(found, &in_flight);
        let mut dispatch = Dispatch::new(policy_of(found), *stripe, starts, first_token);
        dispatch.set_paused(group.paused);
        Self {
            id: group.id,
            topic: topic.id,
            name: Arc::clone(&group.name),
            topic_name: Arc::clone(&topic.name),
            config: Arc::clone(&group.config),
            topic_config: Arc::clone(&topic.config),
            stripe: *stripe,
            partitions: topic.partition_count(),
            dispatch,
            engine,
            log_starts: found.partitions().map(|(_, partition, _)| partition.log_start()).collect(),
            consumers: HashMap::default(),
            takers: VecDeque::new(),
            dead: DeadLetters::default(),
            in_flight,
            sought: Vec::new(),
            reads: 0,
            queued: false,
            changed: false,
            deadline: None,
            idle_since: None,
            counts,
            meters: GroupMeters::new(counts),
            standing: None,
            look_to: None,
            record_bytes: 1024,
        }
    }

    pub(crate) fn partition(&self, index: u32) -> PartitionId {
        PartitionId::new(self.topic, index)
    }

    /// Number of the topic's partitions in this shard, and in all.
    pub(crate) fn partitions_here(&self) -> (usize, u32) {
        (self.log_starts.len(), self.partitions)
    }

    /// Takes the changes since the last call: settles are added, dead letters are returned, and the changes of
    /// active consumers are left in `changes`.
    pub(crate) fn take_changes(
        &mut self,
        changes: &mut Changes,
        settles: &mut Vec<GroupSettle>,
    ) -> Vec<PendingLetter> {
        self.changed = false;
        self.dispatch.drain(changes);
        for change in changes.partitions.drain(..) {
            self.counts.settled +=
                change.settled.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
            settles.push(GroupSettle {
                group: self.id,
                partition: change.partition,
                settled: change.settled,
                attempts: change.attempts,
            });
        }
        changes.dead.drain(..).map(|letter| self.dead.letter_of(letter)).collect()
    }

    /// The first `count` of its dead letters are in the log, and their records are settled.
    pub(crate) fn on_dead_lettered(&mut self, count: usize) {
        for PendingLetter { letter, .. } in self.dead.on_appended(count) {
            self.dispatch.ended(letter.partition, letter.offset);
        }
        self.counts.dead_letters += count as u64;
        self.counts.settled += count as u64;
    }

    /// Dead letters that are not in `dead` went into the log with the entry that settled their records.
    pub(crate) fn on_letters_appended(&mut self, letters: &[PendingLetter]) {
        for PendingLetter { letter, .. } in letters {
            self.dispatch.ended(letter.partition, letter.offset);
        }
        self.counts.dead_letters += letters.len() as u64;
        self.counts.settled += letters.len() as u64;
    }

    /// The log entry of these withheld records (partition and offset) took effect: they are settled.
    pub(crate) fn on_withheld_settled(&mut self, records: &[(u32, Offset)]) {
        for &(partition, offset) in records {
            self.dispatch.ended(partition, offset);
        }
        self.counts.settled += records.len() as u64;
    }

    /// The records are not settled, and are available again.
    pub(crate) fn release_withheld(&mut self, records: &[(u32, Offset)]) {
        for &(partition, offset) in records {
            self.dispatch.give_back(partition, offset);
        }
    }

    pub(crate) fn dead_record(
        &self,
        PendingLetter { letter, reason }: PendingLetter,
        record: SharedRecord,
        time_ms: i64,
    ) -> DeadRecord {
        DeadRecord {
            group: self.id,
            group_name: self.name.clone(),
            topic: self.topic,
            topic_name: self.topic_name.clone(),
            partition: letter.partition,
            offset: letter.offset,
            reason,
            attempts: letter.attempts,
            time_ms,
            record,
        }
    }

    /// The group's waiting records, for the sequencer.
    pub(crate) fn backlog(&self, pools: &Pools) -> GroupBacklog {
        let counters = self.dispatch.counters();
        let (bytes, known) = self.dispatch.waiting_bytes();
        GroupBacklog {
            bytes,
            known,
            waiting: counters.ready + counters.blocked,
            delayed: counters.delayed,
            credit: self.dispatch.spare_credit(pools, u64::from(u32::MAX)),
            ends: self.dispatch.ends_sum(),
        }
    }

    /// Whether the best record may be another one than the first.
    pub(crate) fn is_ranked(&self) -> bool {
        let config = &self.topic_config;
        config.priorities_max > 0 || config.priorities_order == PrioritiesOrder::TwoToOne
    }

    /// Applies configuration and new partitions. Returns whether consumers must be notified of more partitions:
    /// the shard with the first partition does that.
    pub(crate) fn configure(&mut self, found: &GroupView) -> bool {
        let GroupView { group, topic, .. } = found;
        let policy = policy_of(found);
        if *self.dispatch.policy() != policy {
            self.dispatch.set_policy(policy);
        }
        self.config = group.config.clone();
        self.topic_config = topic.config.clone();
        if self.topic_config.traced_per_million > 0 {
            self.dispatch.enable_steps();
        }
        self.dispatch.set_paused(group.paused);
        for row in self.log_starts.len()..found.row_count() {
            let Some(start) = found.start(self.stripe.partition(row)) else { break };
            self.log_starts.push(start.log_start);
            self.dispatch.grow(start);
        }
        let before = std::mem::replace(&mut self.partitions, topic.partition_count());
        let is_first = self.stripe.first() == 0 && self.stripe.step() > 1;
        is_first && self.partitions > before
    }

    /// Resets the sought partitions to their new positions. Their dead letters are void.
    pub(crate) fn seek(&mut self, found: Option<&GroupView>) {
        let mut sought = std::mem::take(&mut self.sought);
        sought.sort_unstable();
        sought.dedup();
        if let Some(found) = found {
            for &index in &sought {
                let Some(start) = found.start(index) else { continue };
                if let Some(log_start) = self.log_start_mut(index) {
                    *log_start = start.log_start;
                }
                self.dispatch.reset_partition(index, start);
            }
        }
        self.dead.forget(&sought);
    }

    /// The partition's log start offset is now at least this.
    pub(crate) fn on_log_start(&mut self, partition: u32, log_start: Offset) {
        if let Some(known) = self.log_start_mut(partition)
            && log_start > *known
        {
            *known = log_start;
            self.dispatch.trimmed(partition, log_start);
        }
    }

    fn log_start_mut(&mut self, partition: u32) -> Option<&mut Offset> {
        self.log_starts.get_mut(self.stripe.row(partition)?)
    }

    pub(crate) fn keyed(&self) -> bool {
        self.config.ordering == LeaseOrdering::Key
    }

    pub(crate) fn is_attentive(&self) -> bool {
        is_attentive(&self.config, &self.topic_config)
    }

    /// Whether its volatile state is not needed.
    pub(crate) fn is_idle(&self) -> bool {
        self.consumers.is_empty()
            && self.takers.is_empty()
            && self.dead.is_empty()
            && self.in_flight.is_empty()
            && self.reads == 0
            && !self.changed
            && !self.queued
            && !self.is_attentive()
            && {
                let counters = self.dispatch.counters();
                counters.leased == 0 && counters.delayed == 0 && counters.dead == 0
            }
    }
}

/// Only the engine of the group's first shard selects the active consumer. The others follow, since only that
/// consumer has credit there.
fn policy_of(found: &GroupView) -> Policy {
    let mut policy = policy(&found.group.config, &found.topic.config);
    policy.single_active &= found.stripe.first() == 0;
    policy
}

/// State of its partitions including settles in flight: these will be in the machine, and the engine is not
/// notified of them.
fn starts(
    found: &GroupView,
    in_flight: &[InFlightSettles],
) -> impl Iterator<Item = PartitionStart> {
    let settles = in_flight.iter().flat_map(|(_, settles)| settles.iter());
    let mut of_partitions: HashMap<u32, Vec<&GroupSettle>> = HashMap::default();
    for settle in settles.filter(|settle| settle.group == found.group.id) {
        of_partitions.entry(settle.partition).or_default().push(settle);
    }
    found.starts().map(move |(id, mut start)| {
        for settle in of_partitions.get(&id.index).into_iter().flatten() {
            for &(offset, count) in &settle.settled {
                start.settled.insert(offset, offset + u64::from(count));
            }
            start.attempts.extend(&settle.attempts);
        }
        start
    })
}
