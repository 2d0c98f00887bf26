//! Limits of a shard's record ids: `dedup.ids.max` of a topic, and the shard's share of the node's
//! `dedup.memory.max.bytes`. Beyond either limit the oldest arrivals are forgotten first. The leader decides this and
//! writes it into the entry, so that replicas agree.

use std::collections::BTreeMap;
use std::time::Duration;

use base::TopicId;
use base::limits::DEDUP_IDS_FORGOTTEN_PER_CHANGE;
use machine::ids::AppendedIds;
use machine::{RecordIdsChange, TopicIdsChange};
use tokio::time::Instant;

use super::Dedup;
use crate::state_machine::View;
use crate::state_machine::record_id_memory::Memory;

/// Time of the last log message about ids forgotten early.
#[derive(Debug, Default)]
pub(super) struct EarlyNotice(Option<Instant>);

impl EarlyNotice {
    const EVERY: Duration = Duration::from_secs(60);

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.0.is_none_or(|last| now.duration_since(last) >= Self::EVERY);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Returns a topic's change, still without ids; `None` where the topic has no window.
fn topic_change(topic: TopicId, view: &View<'_>, now_ms: i64) -> Option<TopicIdsChange> {
    let config = &view.catalog.topic(topic)?.config;
    let before_ms = now_ms.saturating_sub(config.dedup_window_ms);
    let has_window = config.dedup_window_ms > 0;
    has_window.then(|| TopicIdsChange::new(topic, before_ms, config.dedup_ids_max))
}

impl Dedup {
    /// Notes at the start of a proposal whether its entry may carry ids.
    pub(crate) fn begin_proposal(&mut self, permits: bool, view: &View<'_>) {
        let is_complete = view.rows.record_ids().is_complete();
        self.replicates = permits || is_complete;
        if is_complete {
            self.learned = None;
        }
    }

    /// Whether some learned ids are not yet in a proposal that stores them.
    pub(crate) fn seeds(&self) -> bool {
        let learned = self.learned.as_ref();
        learned.is_some_and(|it| !it.is_empty()) && !self.seeding.is_over()
    }

    /// Returns the command for an entry with these ids. `concerns_ids`: the entry appends to a topic with a window,
    /// even if without ids, or changes ids by another command.
    pub(crate) fn change(
        &mut self,
        appended: Vec<(TopicId, AppendedIds)>,
        concerns_ids: bool,
        view: &View<'_>,
        now_ms: i64,
        memory: impl Fn() -> Memory,
    ) -> RecordIdsChange {
        let stored = view.rows.record_ids();
        let mut changes: BTreeMap<TopicId, TopicIdsChange> = BTreeMap::new();
        for (topic, ids) in appended {
            if let Some(change) = changes.get_mut(&topic) {
                change.appended.push(ids);
            } else if let Some(mut change) = topic_change(topic, view, now_ms) {
                change.appended.push(ids);
                changes.insert(topic, change);
            }
        }
        let mut complete = false;
        if self.replicates && !stored.is_complete() && (concerns_ids || self.seeds()) {
            let new = |topic| topic_change(topic, view, now_ms);
            complete = match &self.learned {
                Some(learned) => self.seeding.next(learned, &mut changes, new),
                None => true,
            };
        }
        if changes.values().any(|change| !change.is_empty()) {
            self.limit(&mut changes, view, now_ms, memory());
        }
        RecordIdsChange { topics: changes.into_values().collect(), complete }
    }

    /// Lowers the limits so that the oldest ids are forgotten where the node has too many.
    fn limit(
        &mut self,
        changes: &mut BTreeMap<TopicId, TopicIdsChange>,
        view: &View<'_>,
        now_ms: i64,
        memory: Memory,
    ) {
        let stored = view.rows.record_ids();
        let in_flight = self.in_flight.len();
        let memory = Memory { ids: memory.ids + in_flight, ..memory };
        let budget = view.catalog.node_config().own.dedup_memory_bytes_max;
        let surplus = memory.surplus(stored.len() + in_flight, budget);
        let surplus = surplus.min(DEDUP_IDS_FORGOTTEN_PER_CHANGE as u64);
        if surplus > 0
            && let Some((topic, of_oldest)) = stored.oldest()
        {
            let change = topic_change(topic, view, now_ms)
                .unwrap_or_else(|| TopicIdsChange::new(topic, i64::MIN, u64::MAX));
            let change = changes.entry(topic).or_insert(change);
            let kept = (of_oldest.len() + change.len() as u64).saturating_sub(surplus);
            change.at_most = change.at_most.min(kept);
        }
        let displaces = |change: &&TopicIdsChange| {
            let known = stored.topic(change.topic);
            known.is_some_and(|known| {
                known.len() + change.len() as u64 > change.at_most
                    && known.oldest_ms().is_some_and(|oldest| oldest >= change.expire_before_ms)
            })
        };
        if let Some(change) = changes.values().find(displaces)
            && self.early.is_due()
        {
            let name = view.catalog.topic(change.topic).map_or("", |topic| &topic.name);
            let (ids, forgotten) = (stored.len(), stored.forgotten_early());
            tracing::warn!(
                topic = name,
                shard = %view.shard,
                ids,
                forgotten,
                "ids of records are forgotten before dedup.window.ms is over: raise dedup.ids.max of the topic or \
                 dedup.memory.max.bytes, or make the window shorter"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::DEDUP_BYTES_PER_ID;

    use super::*;

    #[test]
    fn shard_within_its_share_forgets_nothing_for_others() {
        let budget = 1_000 * DEDUP_BYTES_PER_ID;
        let memory = Memory { ids: 1_200, shards: 4 };
        assert_eq!(memory.surplus(250, budget), 0);
        assert_eq!(memory.surplus(300, budget), 50);
        assert_eq!(memory.surplus(950, budget), 200);
        assert_eq!(Memory { ids: 1_000, shards: 4 }.surplus(950, budget), 0);
    }
}
