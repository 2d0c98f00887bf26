//! Forgets the committed offsets of groups that nobody uses any more.
//!
//! A group without members is forgotten when it has been so for the retention time, as in Kafka
//! (KIP-211). Since membership is volatile, the time counts from the node's start at the earliest:
//! offsets are rather kept too long than lost to a consumer that is slow to come back. Only offsets
//! that were committed with an expiry of their own go by the clock alone.

use std::sync::Arc;
use std::time::Duration;

use base::limits::OFFSETS_RETENTION_CHECK_INTERVAL;
use kafka_protocol::protocol::StrBytes;
use machine::Command;
use tracing::{info, warn};

use crate::groups::registry::Registry;

/// Groups that are looked at under one lock: an append waits for it.
const GROUPS_PER_LOOK: usize = 200;

/// What is to go of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// All that was committed before the retention time, and what expired by itself.
    Old,
    /// Only what expired by itself.
    Expired,
}

pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(OFFSETS_RETENTION_CHECK_INTERVAL).await;
        expire(&registry).await;
        let broker = registry.broker();
        registry.drop_idle(|name| broker.read(|state| state.group(name).is_some()));
    }
}

/// Looks at every group once.
async fn expire(registry: &Registry) {
    let broker = registry.broker();
    let now_ms = broker.timeline().unstepped_ms();
    let retention_ms = broker.read(|state| state.node_config().own.offsets_retention_ms);
    let mut last = String::new();
    loop {
        let names: Vec<String> = broker.read(|state| {
            let groups = state.groups_after(&last).take(GROUPS_PER_LOOK);
            groups.map(|(name, _)| name.to_owned()).collect()
        });
        let Some(end) = names.last() else { return };
        last.clone_from(end);
        let (mut old, mut expired) = (Vec::new(), Vec::new());
        for name in names {
            let Some(since) = registry.empty_since(&StrBytes::from_string(name.clone())) else {
                continue;
            };
            let empty_for = registry.now().duration_since(since);
            let due =
                broker.read(|state| due(state.group(&name)?, empty_for, now_ms, retention_ms));
            match due {
                Some(Due::Old) => old.push(name),
                Some(Due::Expired) => expired.push(name),
                None => {}
            }
        }
        forget(registry, old, now_ms.saturating_sub(retention_ms)).await;
        forget(registry, expired, i64::MIN).await;
        tokio::task::yield_now().await;
    }
}

/// What is to go of a group that has had no members for so long.
fn due(group: &machine::Group, empty_for: Duration, now_ms: i64, retention_ms: i64) -> Option<Due> {
    let retention = Duration::from_millis(u64::try_from(retention_ms).unwrap_or(u64::MAX));
    let before_ms = now_ms.saturating_sub(retention_ms);
    let mut offsets = group.offsets.values();
    if empty_for >= retention && offsets.clone().any(|offset| offset.commit_ms < before_ms) {
        return Some(Due::Old);
    }
    let has_expired = offsets.any(|offset| offset.expire_ms.is_some_and(|at| at <= now_ms));
    has_expired.then_some(Due::Expired)
}

async fn forget(registry: &Registry, groups: Vec<String>, before_ms: i64) {
    if groups.is_empty() {
        return;
    }
    let command = Command::ExpireOffsets { groups: groups.clone(), before_ms };
    match registry.broker().execute(command).await {
        Ok(_) => info!(?groups, "committed offsets expired"),
        // Looked at again after the interval.
        Err(error) => warn!(%error, "committed offsets could not be expired"),
    }
}

#[cfg(test)]
mod tests {
    use base::{PartitionId, TopicId};
    use machine::CommittedOffset;

    use super::*;

    const RETENTION_MS: i64 = 1000;
    const RETENTION: Duration = Duration::from_millis(1000);

    fn group(offsets: &[(i64, Option<i64>)]) -> machine::Group {
        let mut group = machine::Group::default();
        for (index, &(commit_ms, expire_ms)) in offsets.iter().enumerate() {
            let partition = PartitionId::new(TopicId(0), index as u32);
            let metadata = String::new();
            let offset =
                CommittedOffset { offset: 0, leader_epoch: -1, metadata, commit_ms, expire_ms };
            group.offsets.insert(partition, offset);
        }
        group
    }

    #[test]
    fn offsets_go_when_they_are_old_and_the_group_has_been_empty_for_as_long() {
        let due = |group: &machine::Group, empty_for| due(group, empty_for, 5000, RETENTION_MS);
        let old = group(&[(3999, None), (4500, None)]);
        assert_eq!(due(&old, RETENTION), Some(Due::Old));
        assert_eq!(due(&old, RETENTION / 2), None, "its members may come back");
        assert_eq!(due(&group(&[(4000, None)]), RETENTION), None);
    }

    #[test]
    fn an_expiry_of_its_own_needs_no_idle_group() {
        let due = |group: &machine::Group| due(group, Duration::ZERO, 5000, RETENTION_MS);
        assert_eq!(due(&group(&[(0, None), (0, Some(5000))])), Some(Due::Expired));
        assert_eq!(due(&group(&[(0, None), (0, Some(5001))])), None);
    }
}
