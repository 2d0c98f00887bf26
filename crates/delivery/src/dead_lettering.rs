//! Dead-lettering: a record's copy is appended to its target in the same log entry that settles the record, so
//! that a crash neither loses nor duplicates it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::limits::DEAD_LETTERS_PER_ENTRY;
use base::limits::BATCH_BYTES_DEFAULT;
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use machine::config::LeaseGroupConfig;
use shard::Shard;
use shard::delivery::dead_letter::{DeadLetterRouter, DeadRecord, Routers, topic_for_letters};
use shard::error::AppendError;
use tokio::time::Instant;

use crate::dead_letter_batches::DeadLetterBatches;
use crate::dead_letters::DeadLetterAction;
use crate::groups::Groups;
use crate::groups::group::Group;
use crate::reading::{Reader, RecordLookup};

/// A request in flight that appends the first `count` of a group's dead letters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadLettering {
    pub(crate) group: LeaseGroupId,
    pub(crate) engine: u64,
    pub(crate) count: usize,
}

/// Groups with dead letters to append, and the time of the next retry of failed ones.
pub(crate) struct DeadLetterQueue {
    shard: Arc<Shard>,
    routers: Arc<Routers>,
    groups: BTreeSet<LeaseGroupId>,
    due_at: Option<Instant>,
}

impl DeadLetterQueue {
    pub(crate) fn new(shard: Arc<Shard>, routers: Arc<Routers>) -> Self {
        Self { shard, routers, groups: BTreeSet::new(), due_at: None }
    }

    pub(crate) fn add(&mut self, group: LeaseGroupId) {
        self.groups.insert(group);
    }

    pub(crate) fn remove(&mut self, group: LeaseGroupId) {
        self.groups.remove(&group);
    }

    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    pub(crate) fn on_timer(&mut self, now: Instant) {
        self.due_at = self.due_at.filter(|due| *due > now);
    }

    pub(crate) fn wait_until(&mut self, due: Instant) {
        self.due_at = Some(self.due_at.map_or(due, |at| at.min(due)));
    }

    /// Groups whose dead letters can be appended now.
    pub(crate) fn take_due(&mut self, groups: &Groups) -> Vec<LeaseGroupId> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let (mut due, now) = (Vec::new(), Instant::now());
        let mut later = None;
        self.groups.retain(|&id| {
            match groups.get(id).map_or(DeadLetterAction::Nothing, |group| group.dead.next(now)) {
                DeadLetterAction::Nothing => return false,
                DeadLetterAction::UnderWay => {}
                DeadLetterAction::At(at) => {
                    later = Some(later.map_or(at, |known: Instant| known.min(at)))
                }
                DeadLetterAction::Append => due.push(id),
            }
            true
        });
        if let Some(later) = later {
            self.wait_until(later);
        }
        due
    }

    /// The record cannot be read: a group whose next dead letter it is retries after a delay.
    pub(crate) fn postpone(&self, groups: &mut Groups, partition: PartitionId, offset: Offset) {
        for id in &self.groups {
            let Some(group) = groups.get_mut(*id) else { continue };
            let first = group.dead.pending().next().map(|pending| pending.letter);
            if first
                .is_some_and(|it| group.partition(it.partition) == partition && it.offset == offset)
            {
                group.dead.postpone(Instant::now());
            }
        }
    }

    /// `None` while no router of the route is registered: gateways start after the broker, and appending before
    /// that would drop the record.
    pub(crate) fn target(&self, config: &LeaseGroupConfig) -> Option<DeadLetterTarget> {
        if let Some(named) = &config.dead_letter_route {
            let (route, router) = self.routers.of(named)?;
            return Some(DeadLetterTarget::Routed { route: route.to_owned(), router });
        }
        let topic = config.dead_letter_topic.as_deref().and_then(|name| {
            self.shard.read(|state| {
                let topic = topic_for_letters(state.catalog, name)?;
                Some((topic.id, topic.partition_count()))
            })
        });
        Some(topic.map_or(DeadLetterTarget::Nowhere, |(topic, partitions)| {
            DeadLetterTarget::Topic { topic, partitions }
        }))
    }

    pub(crate) fn routers(&self) -> &Routers {
        &self.routers
    }
}

/// Target of a group's dead letters.
pub(crate) enum DeadLetterTarget {
    Routed { route: String, router: Arc<dyn DeadLetterRouter> },
    Topic { topic: TopicId, partitions: u32 },
    Nowhere,
}

impl DeadLetterTarget {
    pub(crate) fn add(&self, letters: &mut DeadLetterBatches, dead: DeadRecord) {
        match self {
            Self::Routed { route, router } => letters.routed(router.route(route, &dead)),
            Self::Topic { topic, partitions } => {
                letters.add(PartitionId::new(*topic, dead.partition % partitions), &dead);
            }
            Self::Nowhere => {
                tracing::warn!(group = %dead.group_name, topic = %dead.topic_name,
                    offset = dead.offset, reason = dead.reason.name(),
                    "there is no place for a dead letter; it is dropped");
            }
        }
    }
}

/// The first of a group's dead letters: those in memory, up to the byte limit of one entry.
#[derive(Default)]
pub(crate) struct FirstLetters {
    pub(crate) batches: DeadLetterBatches,
    /// Partition and offset of the letters in `batches`, and of those whose records are gone.
    pub(crate) settled: Vec<(u32, Offset)>,
    /// This letter has to be read before the next can be appended.
    pub(crate) unread: Option<(PartitionId, Offset)>,
}

impl FirstLetters {
    pub(crate) fn of(
        group: &Group,
        target: &DeadLetterTarget,
        reader: &mut Reader,
        time_ms: i64,
    ) -> Self {
        let mut first = Self::default();
        for pending in group.dead.pending().take(DEAD_LETTERS_PER_ENTRY) {
            let letter = pending.letter;
            let partition = group.partition(letter.partition);
            let at = (letter.partition, letter.offset);
            match reader.find(partition, letter.offset) {
                RecordLookup::Gone => first.settled.push(at),
                RecordLookup::Unread => {
                    first.unread = Some((partition, letter.offset));
                    break;
                }
                RecordLookup::Here(record) => {
                    let dead = group.dead_record(*pending, record, time_ms);
                    target.add(&mut first.batches, dead);
                    first.settled.push(at);
                    if first.batches.bytes() >= BATCH_BYTES_DEFAULT as usize {
                        break;
                    }
                }
            }
        }
        first
    }
}

/// Why a unit was refused, found in the replies of its rows: the error that is not only
/// [`AppendError::UnitRefused`].
pub(crate) fn cause<R>(rows: Vec<Result<R, AppendError>>) -> Option<AppendError> {
    let mut refused = rows.into_iter().filter_map(Result::err);
    let first = refused.next()?;
    match first {
        AppendError::UnitRefused => {
            refused.find(|it| *it != AppendError::UnitRefused).or(Some(AppendError::UnitRefused))
        }
        cause => Some(cause),
    }
}

#[cfg(test)]
mod tests {
    use shard::append::AppendedBatch;

    use super::*;

    #[test]
    fn cause_of_a_refused_unit_is_its_first_specific_error() {
        let taken = || Ok(AppendedBatch { base_offset: 0, log_start: 0, duplicate: false });
        let full = || AppendError::Full { limit: "limit.records".into() };
        assert_eq!(cause(vec![taken(), taken()]), None);
        assert_eq!(cause(vec![taken(), Err(full())]), Some(full()));
        let beside = || Err::<(), _>(AppendError::UnitRefused);
        assert_eq!(cause(vec![beside(), Err(full()), beside()]), Some(full()));
        assert_eq!(cause(vec![beside(), beside()]), Some(AppendError::UnitRefused));
    }
}
