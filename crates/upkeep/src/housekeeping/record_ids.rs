//! Forgets record ids (`dedup.window.ms`) of topics without appends. In other topics the sequencer forgets old ids
//! with each append.

use std::time::Duration;

use base::limits::DEDUP_IDS_FORGOTTEN_PER_CHANGE;
use base::{ShardId, TopicId};
use machine::{Command, RecordIdsChange, TopicIdsChange};
use shard::LocalShard;
use shard::View;
use shard::state_machine::record_id_memory::Memory;
use tokio::time::Instant;

/// Interval of checks of a shard.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of topics in one command.
const TOPICS_PER_COMMAND: usize = 1_000;
/// Fraction of the window by which its ids may outlive it, so that many are forgotten at a time.
const PART_OF_WINDOW: i64 = 16;
const LATE_AT_LEAST_MS: i64 = 1_000;

#[derive(Debug, Default)]
pub(super) struct RecordIds {
    looked: Option<Instant>,
}

impl RecordIds {
    pub(super) async fn forget(&mut self, shard: &LocalShard, now: Instant) {
        let is_due = self.looked.is_none_or(|last| now.duration_since(last) >= CHECK_INTERVAL);
        if shard.id() == ShardId::CATALOG || !is_due || !shard.is_led_here() {
            return;
        }
        self.looked = Some(now);
        let now_ms = shard.timeline().unstepped_ms();
        let memory = shard.shard.record_ids_of_node();
        let topics = shard.read(|view| {
            let mut topics = expired(view, now_ms);
            if topics.is_empty() {
                topics.extend(surplus(view, memory, now_ms));
            }
            topics
        });
        if topics.is_empty() {
            return;
        }
        let command = Command::RecordIds(RecordIdsChange { topics, complete: false });
        if let Err(error) = shard.execute(command).await {
            tracing::debug!(%error, "ids of records could not be forgotten");
        }
    }
}

/// Returns a change of the topic with the oldest ids, where the node has too many ids.
fn surplus(view: &View<'_>, memory: Memory, now_ms: i64) -> Option<TopicIdsChange> {
    let stored = view.rows.record_ids();
    let budget = view.catalog.node_config().own.dedup_memory_bytes_max;
    let surplus = memory.surplus(stored.len(), budget).min(DEDUP_IDS_FORGOTTEN_PER_CHANGE as u64);
    let (topic, ids) = stored.oldest().filter(|_| surplus > 0)?;
    let config = &view.catalog.topic(topic)?.config;
    let before_ms = now_ms.saturating_sub(config.dedup_window_ms);
    Some(TopicIdsChange::new(topic, before_ms, ids.len().saturating_sub(surplus)))
}

/// Returns changes of topics whose oldest ids are outside their window.
pub(super) fn expired(view: &View<'_>, now_ms: i64) -> Vec<TopicIdsChange> {
    let stored = view.rows.record_ids();
    let change_of = |topic: TopicId| match view.catalog.topic(topic).map(|topic| &topic.config) {
        Some(config) if config.dedup_window_ms > 0 => {
            let before_ms = now_ms.saturating_sub(config.dedup_window_ms);
            let late = LATE_AT_LEAST_MS.max(config.dedup_window_ms / PART_OF_WINDOW);
            Some((TopicIdsChange::new(topic, before_ms, config.dedup_ids_max), late))
        }
        // A topic that is newer than this node's copy of the catalog may have a window.
        None if !view.catalog.is_deleted(topic) => None,
        Some(_) | None => Some((TopicIdsChange::new(topic, i64::MAX, 0), 0)),
    };
    let changes = stored.topics().filter_map(|(id, topic)| {
        let (change, late) = change_of(id)?;
        let before_ms = change.expire_before_ms;
        let is_over = match topic.oldest_ms() {
            Some(oldest_ms) => oldest_ms.saturating_add(late) < before_ms,
            None => topic.forgotten_to_ms() < Some(before_ms),
        };
        (is_over || topic.len() > change.at_most).then_some(change)
    });
    changes.take(TOPICS_PER_COMMAND).collect()
}
