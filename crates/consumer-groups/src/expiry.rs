//! Expires the committed offsets of unused groups.
//!
//! A group's offsets expire once it has been without members for the retention time, as in Kafka (KIP-211).
//! The start of that time is not stored, so it counts from when the node began to coordinate the group:
//! offsets are rather kept too long than lost to a consumer that is slow to return. Only offsets committed
//! with an expiry of their own go by the clock alone.

use std::sync::Weak;
use std::time::Duration;

use crate::limits::OFFSETS_RETENTION_CHECK_INTERVAL;
use broker::{Broker, OffsetAges, Unavailable};
use coordinator::Text;
use tracing::{info, warn};

use crate::Coordinators;

/// Groups per query: it delays appends meanwhile.
const GROUPS_PER_LOOK: usize = 200;

/// The offsets of a group that expire now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpiryScope {
    /// Those committed before the retention time, and those past their own expiry.
    Old,
    /// Only those past their own expiry.
    Expired,
}

/// Runs until it is cancelled.
pub(crate) async fn run(broker: Broker, coordinators: Weak<Coordinators>) {
    loop {
        tokio::time::sleep(OFFSETS_RETENTION_CHECK_INTERVAL).await;
        // Dropping the groups cancels this task too.
        let Some(coordinators) = coordinators.upgrade() else { continue };
        if let Err(unavailable) = sweep(&broker, &coordinators).await {
            // Retried after the interval.
            warn!(%unavailable, "groups could not be looked at for offsets that expire");
        }
    }
}

async fn sweep(broker: &Broker, coordinators: &Coordinators) -> Result<(), Unavailable> {
    expire(broker, coordinators).await?;
    drop_unused(broker, coordinators).await
}

/// Returns for how long a group of this node has certainly had no members. `None`: it has some, or another
/// node coordinates it.
fn empty_for(coordinators: &Coordinators, name: &str) -> Option<Duration> {
    let groups = coordinators.of(name).ok()?;
    let since = groups.empty_since(name)?;
    Some(groups.now().duration_since(since))
}

/// Checks every group with offsets that this node coordinates.
async fn expire(broker: &Broker, coordinators: &Coordinators) -> Result<(), Unavailable> {
    let now_ms = broker.timeline().unstepped_ms();
    let retention_ms = broker.catalog().node_config().own.offsets_retention_ms;
    let mut last = String::new();
    loop {
        let mut names = broker.shards().coordinated_groups_after(&last, GROUPS_PER_LOOK);
        let Some(end) = names.last() else { return Ok(()) };
        last.clone_from(end);
        names.retain(|name| empty_for(coordinators, name).is_some());
        let ages = broker.shards().offset_ages(&names).await?;
        let (mut old, mut expired) = (Vec::new(), Vec::new());
        for (name, ages) in names.into_iter().zip(ages) {
            // Checked again, because a member may have joined meanwhile.
            let Some((empty_for, ages)) = empty_for(coordinators, &name).zip(ages) else {
                continue;
            };
            match due(&ages, empty_for, now_ms, retention_ms) {
                Some(ExpiryScope::Old) => old.push(name),
                Some(ExpiryScope::Expired) => expired.push(name),
                None => {}
            }
        }
        forget(broker, old, now_ms.saturating_sub(retention_ms)).await;
        forget(broker, expired, i64::MIN).await;
        tokio::task::yield_now().await;
    }
}

/// Drops groups without any state worth keeping.
async fn drop_unused(broker: &Broker, coordinators: &Coordinators) -> Result<(), Unavailable> {
    let idle: Vec<Text> = coordinators.all().iter().flat_map(|groups| groups.idle()).collect();
    for names in idle.chunks(GROUPS_PER_LOOK) {
        let asked: Vec<&str> = names.iter().map(|name| &**name).collect();
        let have_offsets = broker.shards().have_offsets(&asked).await?;
        for (name, _) in names.iter().zip(have_offsets).filter(|(_, has_offsets)| !has_offsets) {
            if let Ok(groups) = coordinators.of(name) {
                groups.drop_idle(name);
            }
        }
    }
    Ok(())
}

/// Returns the offsets to expire of a group that has been empty for so long.
fn due(
    ages: &OffsetAges,
    empty_for: Duration,
    now_ms: i64,
    retention_ms: i64,
) -> Option<ExpiryScope> {
    let retention = Duration::from_millis(u64::try_from(retention_ms).unwrap_or(u64::MAX));
    let before_ms = now_ms.saturating_sub(retention_ms);
    if empty_for >= retention && ages.oldest_commit_ms.is_some_and(|at| at < before_ms) {
        return Some(ExpiryScope::Old);
    }
    ages.next_expire_ms.is_some_and(|at| at <= now_ms).then_some(ExpiryScope::Expired)
}

async fn forget(broker: &Broker, groups: Vec<String>, before_ms: i64) {
    if groups.is_empty() {
        return;
    }
    match broker.shards().expire_offsets(groups.clone(), before_ms).await {
        Ok(_) => info!(?groups, "committed offsets expired"),
        // Retried after the interval.
        Err(error) => warn!(%error, "committed offsets could not be expired"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION_MS: i64 = 1000;
    const RETENTION: Duration = Duration::from_millis(1000);

    fn ages(oldest_commit_ms: i64, next_expire_ms: Option<i64>) -> OffsetAges {
        OffsetAges { oldest_commit_ms: Some(oldest_commit_ms), next_expire_ms }
    }

    #[test]
    fn offsets_expire_once_old_and_the_group_was_empty_as_long() {
        let due = |ages: OffsetAges, empty_for| due(&ages, empty_for, 5000, RETENTION_MS);
        let old = ages(3999, None);
        assert_eq!(due(old, RETENTION), Some(ExpiryScope::Old));
        assert_eq!(due(old, RETENTION / 2), None, "its members may come back");
        assert_eq!(due(ages(4000, None), RETENTION), None);
    }

    #[test]
    fn explicit_expiry_applies_to_a_group_in_use() {
        let due = |ages: OffsetAges| due(&ages, Duration::ZERO, 5000, RETENTION_MS);
        assert_eq!(due(ages(0, Some(5000))), Some(ExpiryScope::Expired));
        assert_eq!(due(ages(0, Some(5001))), None);
    }
}
