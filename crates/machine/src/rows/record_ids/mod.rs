//! Ids of records in topics with `dedup.window.ms`: arrived ids with their arrival times and
//! records in this shard.
//!
//! The leader puts the ids of appended records into the entry that appends them ([`crate::ids`]).
//! The arrival time is the entry's time. An id is unique within its topic, over all partitions of
//! the topic in the shard.
//!
//! Every replica builds the lookup structure while it applies entries, so a new leader reads
//! nothing. An id takes about 38 bytes: 32 in [`ring`] and 4.6 to 9.2 in [`index`]. The work of one
//! change is bounded, even after a window or a limit was lowered.

mod index;
mod ring;

use std::collections::BTreeMap;

use crate::limits::DEDUP_IDS_PER_TOPIC_MAX;
use base::limits::DEDUP_IDS_FORGOTTEN_PER_CHANGE;
use base::{Offset, PartitionId, TopicId};

use crate::entry::Append;
use crate::ids::{IdHash, KnownId, RecordIdsChange, TopicIdsChange};
use crate::outcome::{AppendOutcome, Outcome, Refusal};
use crate::rows::Rows;
use index::Index;
use ring::Ring;

/// The ids of a shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RecordIds {
    pub(crate) topics: BTreeMap<TopicId, TopicIds>,
    /// See [`RecordIds::is_complete`].
    pub(crate) complete: bool,
    /// See [`RecordIds::forgotten_early`].
    pub(crate) forgotten_early: u64,
    /// Ids of all topics.
    held: u64,
}

/// The ids of one topic.
#[derive(Clone, Debug, Default)]
pub struct TopicIds {
    ring: Ring,
    index: Index,
    /// See [`TopicIds::forgotten_to_ms`].
    forgotten_to_ms: Option<i64>,
}

/// The index is a function of the ring.
impl PartialEq for TopicIds {
    fn eq(&self, other: &Self) -> bool {
        self.ring == other.ring && self.forgotten_to_ms == other.forgotten_to_ms
    }
}

/// A topic's ids for a snapshot. Shares its memory with the state.
#[derive(Clone, Debug)]
pub(crate) struct TopicIdsImage {
    ring: Ring,
    pub(crate) forgotten_to_ms: Option<i64>,
}

impl TopicIdsImage {
    pub(crate) fn len(&self) -> u64 {
        self.ring.len()
    }

    /// In the order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KnownId> {
        self.ring.iter()
    }
}

impl RecordIds {
    /// True if nothing was ever stored: snapshots then have the format of earlier levels.
    pub(crate) fn is_unused(&self) -> bool {
        self.topics.is_empty() && !self.complete && self.forgotten_early == 0
    }

    /// Whether all ids within the windows are here. Some are missing until the first leader at
    /// [`base::Level::RECORD_IDS`] has stored those recovered from the log.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of ids, of all topics.
    pub fn len(&self) -> u64 {
        self.held
    }

    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.topics.values().map(TopicIds::bytes).sum()
    }

    /// Number of ids that a limit displaced within their window.
    pub fn forgotten_early(&self) -> u64 {
        self.forgotten_early
    }

    /// By number.
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &TopicIds)> {
        self.topics.iter().map(|(id, topic)| (*id, topic))
    }

    pub fn topic(&self, topic: TopicId) -> Option<&TopicIds> {
        self.topics.get(&topic)
    }

    /// The record with this id that arrived in the topic at `from_ms` or later.
    pub fn find(&self, topic: TopicId, hash: IdHash, from_ms: i64) -> Option<KnownId> {
        self.topics.get(&topic)?.find(hash, from_ms)
    }

    /// The topic whose oldest id is the oldest of all.
    pub fn oldest(&self) -> Option<(TopicId, &TopicIds)> {
        let with_time = self.topics().filter_map(|it| Some((it.1.oldest_ms()?, it)));
        with_time.min_by_key(|(at_ms, (id, _))| (*at_ms, *id)).map(|(_, it)| it)
    }

    /// Stores the ids of the accepted appends, and expires old ones. Topics unknown to the shard
    /// are skipped.
    pub(crate) fn change(
        &mut self,
        change: &RecordIdsChange,
        appends: &[Append],
        outcomes: &[AppendOutcome],
        now_ms: i64,
        has_topic: impl Fn(TopicId) -> bool,
    ) {
        for of_topic in change.topics.iter().filter(|it| has_topic(it.topic)) {
            self.change_topic(of_topic, appends, outcomes, now_ms);
        }
        self.complete |= change.complete;
    }

    /// Stores the ids of a partition that moves here.
    pub(crate) fn inherit(&mut self, change: &TopicIdsChange) {
        self.change_topic(change, &[], &[], 0);
    }

    fn change_topic(
        &mut self,
        change: &TopicIdsChange,
        appends: &[Append],
        outcomes: &[AppendOutcome],
        now_ms: i64,
    ) {
        let TopicIdsChange { topic: id, expire_before_ms, at_most, appended, inherited } = change;
        let topic = self.topics.entry(*id).or_default();
        let before = topic.ring.len();
        let at_most = (*at_most).min(DEDUP_IDS_PER_TOPIC_MAX);
        let mut room = topic.expire(*expire_before_ms);
        let mut early = 0;
        for known in inherited {
            // A full topic drops its oldest ids first: this would be one of them.
            let is_oldest = topic.oldest_ms().is_some_and(|oldest| known.at_ms < oldest);
            if topic.ring.len() >= at_most && is_oldest && known.at_ms >= *expire_before_ms {
                topic.note_early(known.at_ms);
                early += 1;
            } else if let Some(known) = known.checked() {
                topic.insert(known, *expire_before_ms);
            }
        }
        for of_append in appended {
            let place = of_append.append as usize;
            let (Some(append), Some(AppendOutcome::Taken { base_offset })) =
                (appends.get(place), outcomes.get(place))
            else {
                continue;
            };
            if append.partition.topic != *id {
                continue;
            }
            for (delta, hash) in of_append.ids.iter() {
                let offset = base_offset.saturating_add(u64::from(delta));
                let partition = append.partition.index;
                let known = KnownId { hash, at_ms: now_ms, partition, offset };
                if let Some(known) = known.checked() {
                    topic.insert(known, *expire_before_ms);
                }
            }
        }
        while topic.ring.len() > at_most && room > 0 {
            let Some(forgotten) = topic.ring.pop() else { break };
            room -= 1;
            if forgotten.at_ms >= *expire_before_ms {
                topic.note_early(forgotten.at_ms);
                early += 1;
            }
        }
        if topic.ring.is_empty() {
            topic.index = Index::default();
            if topic.forgotten_to_ms.is_none_or(|to_ms| to_ms < *expire_before_ms) {
                let topic = self.topics.remove(id);
                debug_assert!(topic.is_some_and(|topic| topic.ring.is_empty()));
            }
        }
        let after = self.topics.get(id).map_or(0, |topic| topic.ring.len());
        self.held = self.held - before + after;
        self.forgotten_early = self.forgotten_early.saturating_add(early);
    }

    pub(crate) fn drop_topic(&mut self, topic: TopicId) {
        if let Some(gone) = self.topics.remove(&topic) {
            self.held -= gone.ring.len();
        }
    }

    pub(crate) fn image(&self) -> Vec<(TopicId, TopicIdsImage)> {
        let of = |topic: &TopicIds| TopicIdsImage {
            ring: topic.ring.clone(),
            forgotten_to_ms: topic.forgotten_to_ms,
        };
        self.topics.iter().map(|(id, topic)| (*id, of(topic))).collect()
    }

    /// Adds a topic of a snapshot. `None` if it exists already, or an id is invalid.
    pub(crate) fn restore_topic(
        &mut self,
        topic: TopicId,
        forgotten_to_ms: Option<i64>,
        ids: impl Iterator<Item = KnownId>,
    ) -> Option<()> {
        if self.topics.contains_key(&topic) {
            return None;
        }
        let mut restored = TopicIds { forgotten_to_ms, ..TopicIds::default() };
        for known in ids {
            if restored.ring.len() >= DEDUP_IDS_PER_TOPIC_MAX {
                return None;
            }
            // The later one of two ids with the same hash is found.
            restored.insert(known.checked()?, i64::MAX);
        }
        self.held += restored.ring.len();
        self.topics.insert(topic, restored);
        Some(())
    }
}

impl TopicIds {
    /// Number of ids.
    pub fn len(&self) -> u64 {
        self.ring.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.ring.bytes() + self.index.bytes()
    }

    /// Arrival time of the id that expires next.
    pub fn oldest_ms(&self) -> Option<i64> {
        self.ring.get(self.ring.first()).map(|known| known.at_ms)
    }

    /// Latest arrival time of an id that a limit displaced within its window. Only later arrivals
    /// are still detected.
    pub fn forgotten_to_ms(&self) -> Option<i64> {
        self.forgotten_to_ms
    }

    /// The record with this id that arrived at `from_ms` or later.
    pub fn find(&self, hash: IdHash, from_ms: i64) -> Option<KnownId> {
        let place = self.index.find(hash, &self.ring)?;
        self.ring.get(place).filter(|known| known.at_ms >= from_ms)
    }

    /// Ids of one partition in the order of arrival, from a place on, among at most `look_at` ids
    /// of the topic; and the place after those. Places are specific to this replica, and valid
    /// until it restarts.
    pub fn partition_ids(
        &self,
        partition: PartitionId,
        from: u64,
        look_at: usize,
    ) -> (Vec<KnownId>, u64) {
        let from = from.max(self.ring.first());
        let to = from.saturating_add(look_at as u64).min(self.ring.end());
        let known = (from..to).filter_map(|place| self.ring.get(place));
        (known.filter(|known| known.partition == partition.index).collect(), to)
    }

    /// Place after the last id.
    pub fn end(&self) -> u64 {
        self.ring.end()
    }

    fn insert(&mut self, known: KnownId, expire_before_ms: i64) {
        if self.ring.len() >= DEDUP_IDS_PER_TOPIC_MAX {
            self.ring.pop();
        }
        match self.index.find(known.hash, &self.ring) {
            Some(place) => {
                let former = self.ring.get(place);
                if former.is_some_and(|former| former.at_ms >= expire_before_ms) {
                    return;
                }
                let now_at = self.ring.push(known);
                self.index.replace(known.hash, place, now_at, &self.ring);
            }
            None => {
                let place = self.ring.push(known);
                self.index.insert(known.hash, place, &self.ring);
            }
        }
    }

    /// Removes ids that arrived before. Returns how many more the same change may remove.
    fn expire(&mut self, before_ms: i64) -> usize {
        let mut room = DEDUP_IDS_FORGOTTEN_PER_CHANGE;
        while room > 0 && self.oldest_ms().is_some_and(|at_ms| at_ms < before_ms) {
            self.ring.pop();
            room -= 1;
        }
        room
    }

    fn note_early(&mut self, at_ms: i64) {
        self.forgotten_to_ms = self.forgotten_to_ms.max(Some(at_ms));
    }
}

impl Rows {
    pub(crate) fn change_record_ids(
        &mut self,
        change: &RecordIdsChange,
        appends: &[Append],
        outcomes: &[AppendOutcome],
        now_ms: i64,
    ) {
        let topics = &self.topics;
        let has_topic = |topic| topics.contains_key(&topic);
        self.record_ids.change(change, appends, outcomes, now_ms, has_topic);
    }

    /// Stores ids of a partition that this shard imports by this move.
    pub(super) fn import_ids(
        &mut self,
        partition: PartitionId,
        id: u64,
        ids: &TopicIdsChange,
    ) -> Result<Outcome, Refusal> {
        let is_imported = self.import(partition).is_some_and(|import| import.id == id);
        if !is_imported || ids.topic != partition.topic {
            return Err(Refusal::MoveOutOfTurn { partition });
        }
        self.record_ids.inherit(ids);
        Ok(Outcome::Done)
    }
}

impl KnownId {
    /// `None` if no record can have this time or place.
    fn checked(self) -> Option<Self> {
        let fits = (0..ring::TIME_END).contains(&self.at_ms)
            && u64::from(self.partition) < ring::PARTITION_END
            && self.offset <= Offset::MAX >> 1;
        fits.then_some(self)
    }
}

#[cfg(test)]
mod tests;
