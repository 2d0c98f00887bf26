//! One lease group, as the driver knows it while somebody uses it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{HashMap, HashSet, LeaseGroupId, Offset, PartitionId, TopicId};
use dispatch::{
    Assignment, ConsumerId, DeadLetter, Dispatch, Joined, PartitionStart, SessionId, Token,
};
use machine::config::{LeaseGroupConfig, LeaseOrdering};
use machine::{GroupSettle, TopicConfig};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Unavailable;

use super::commit::Waiter;
use super::dead_letter::DeathReason;
use super::error::TakeError;
use super::event::Delivery;
use super::options::TakeOptions;
use super::policy::{is_attentive, policy};
use super::rates::{Counts, GroupMeters};
use super::standings::Standing;
use super::view::{GroupView, start};

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: LeaseGroupId,
    pub(super) topic: TopicId,
    pub(super) name: Arc<str>,
    pub(super) topic_name: Arc<str>,
    pub(super) config: Arc<LeaseGroupConfig>,
    pub(super) topic_config: Arc<TopicConfig>,
    pub(super) dispatch: Dispatch,
    /// Tells this engine from one that the group had before.
    pub(super) engine: u64,
    /// What each partition's log began at when it was last looked at.
    pub(super) log_starts: Vec<Offset>,
    /// So that they can join again should the engine have to be made anew.
    pub(super) consumers: HashMap<ConsumerId, Joined>,
    pub(super) takers: VecDeque<Taker>,
    pub(super) dead: VecDeque<PendingLetter>,
    /// A request that appends some of `dead` is under way.
    pub(super) dead_lettering: bool,
    /// It failed: not tried again before this.
    pub(super) dead_letter_after: Option<Instant>,
    /// Why, if it was not for want of room: rejects are answered so until it works again.
    pub(super) dead_lettering_failed: Option<Unavailable>,
    /// How many records ever joined `dead`, and how many of them were appended.
    pub(super) died: u64,
    pub(super) dead_lettered: u64,
    /// Rejects whose dead letters are not appended yet, with `died` as it was then.
    pub(super) reject_waiters: VecDeque<(u64, Waiter)>,
    /// Records that were rejected because there were too many.
    pub(super) overflowed: HashSet<(u32, Offset)>,
    /// Requests under way, and what they settle, of other groups too.
    pub(super) under_way: Vec<UnderWay>,
    /// Partitions that were sought, to be looked at once nothing is under way.
    pub(super) sought: Vec<u32>,
    pub(super) reads: u32,
    /// Waits in the driver's queue of groups to serve.
    pub(super) queued: bool,
    pub(super) changed: bool,
    pub(super) deadline: Option<i64>,
    pub(super) idle_since: Option<Instant>,
    pub(super) counts: Counts,
    pub(super) meters: GroupMeters,
    /// What the sequencer was told last of what waits.
    pub(super) standing: Option<Standing>,
    /// Where records have priorities: what must be known before the next is pushed.
    pub(super) look_to: Option<Vec<Offset>>,
    /// Bytes of an average record, to read no more than is wanted.
    pub(super) record_bytes: usize,
}

/// The number of a request, and what it settles.
pub(super) type UnderWay = (u64, Arc<[GroupSettle]>);

/// A record on its way to the dead letters.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLetter {
    pub(super) letter: DeadLetter,
    pub(super) reason: DeathReason,
}

/// Somebody who waits for records to take.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) session: SessionId,
    pub(super) options: TakeOptions,
    /// What it has so far, while more is being read.
    pub(super) assigned: Vec<Assignment>,
    pub(super) rounds: u32,
    /// Where records have priorities: what must be known first.
    pub(super) known_to: Vec<Offset>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Vec<Delivery>, TakeError>>,
}

impl Group {
    pub(super) fn new(
        found: &GroupView,
        first_token: Token,
        engine: u64,
        counts: Counts,
        under_way: Vec<UnderWay>,
    ) -> Self {
        let GroupView { group, topic, rows, .. } = found;
        let starts = starts(found, &under_way);
        let mut dispatch = Dispatch::new(policy(&group.config, &topic.config), starts, first_token);
        dispatch.set_paused(group.paused);
        Self {
            id: group.id,
            topic: topic.id,
            name: Arc::clone(&group.name),
            topic_name: Arc::clone(&topic.name),
            config: Arc::clone(&group.config),
            topic_config: Arc::clone(&topic.config),
            dispatch,
            engine,
            log_starts: rows.partitions().map(|(_, partition)| partition.log_start()).collect(),
            consumers: HashMap::default(),
            takers: VecDeque::new(),
            dead: VecDeque::new(),
            dead_lettering: false,
            dead_letter_after: None,
            dead_lettering_failed: None,
            died: 0,
            dead_lettered: 0,
            reject_waiters: VecDeque::new(),
            overflowed: HashSet::default(),
            under_way,
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

    pub(super) fn partition(&self, index: u32) -> PartitionId {
        PartitionId::new(self.topic, index)
    }

    /// The partition's log begins here now, or did before.
    pub(super) fn begins(&mut self, partition: u32, log_start: Offset) {
        if let Some(known) = self.log_starts.get_mut(partition as usize)
            && log_start > *known
        {
            *known = log_start;
            self.dispatch.trimmed(partition, log_start);
        }
    }

    pub(super) fn keyed(&self) -> bool {
        self.config.ordering == LeaseOrdering::Key
    }

    pub(super) fn is_attentive(&self) -> bool {
        is_attentive(&self.config, &self.topic_config)
    }

    /// Nobody needs what is known of it here.
    pub(super) fn is_idle(&self) -> bool {
        self.consumers.is_empty()
            && self.takers.is_empty()
            && self.dead.is_empty()
            && self.under_way.is_empty()
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

/// Where its partitions stand by what is durable, and by what is on its way to be: that will be in the
/// machine, and nobody would tell the engine.
fn starts(found: &GroupView, under_way: &[UnderWay]) -> impl Iterator<Item = PartitionStart> {
    let settles = under_way.iter().flat_map(|(_, settles)| settles.iter());
    let mut of_partitions: HashMap<u32, Vec<&GroupSettle>> = HashMap::default();
    for settle in settles.filter(|settle| settle.group == found.group.id) {
        of_partitions.entry(settle.partition).or_default().push(settle);
    }
    found.rows.partitions().zip(found.progress.progress()).map(
        move |((id, partition), progress)| {
            let mut start = start(progress, partition);
            for settle in of_partitions.get(&id.index).into_iter().flatten() {
                for &(offset, count) in &settle.settled {
                    start.settled.insert(offset, offset + u64::from(count));
                }
                start.attempts.extend(&settle.attempts);
            }
            start
        },
    )
}
