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

/// Groups in one command, so that none holds up the log.
const GROUPS_PER_COMMAND: usize = 1_000;

pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(OFFSETS_RETENTION_CHECK_INTERVAL).await;
        expire(&registry).await;
        let broker = registry.broker();
        registry.drop_idle(|name| broker.read(|state| state.group(name).is_some()));
    }
}

/// Looks at every group once.
pub(crate) async fn expire(registry: &Registry) {
    let now_ms = registry.broker().clock().now_ms();
    let retention_ms = registry.broker().read(|state| state.node_config().own.offsets_retention_ms);
    let before_ms = now_ms.saturating_sub(retention_ms);
    let names: Vec<String> =
        registry.broker().read(|state| state.groups().map(|(name, _)| name.to_owned()).collect());
    let (mut idle, mut own_expiry) = (Vec::new(), Vec::new());
    for name in names {
        let Some(since) = registry.empty_since(&StrBytes::from_string(name.clone())) else {
            continue;
        };
        // Nothing to ask for if nothing would go.
        let (has_old, has_expired) = registry.broker().read(|state| match state.group(&name) {
            Some(group) => (
                group.offsets.values().any(|offset| offset.commit_ms < before_ms),
                group
                    .offsets
                    .values()
                    .any(|offset| offset.expire_ms.is_some_and(|at| at <= now_ms)),
            ),
            None => (false, false),
        });
        let retention = Duration::from_millis(u64::try_from(retention_ms).unwrap_or(u64::MAX));
        if has_old && registry.now().duration_since(since) >= retention {
            idle.push(name);
        } else if has_expired {
            own_expiry.push(name);
        }
    }
    forget(registry, idle, before_ms).await;
    forget(registry, own_expiry, i64::MIN).await;
}

async fn forget(registry: &Registry, groups: Vec<String>, before_ms: i64) {
    for groups in groups.chunks(GROUPS_PER_COMMAND) {
        let command = Command::ExpireOffsets { groups: groups.to_vec(), before_ms };
        match registry.broker().execute(command).await {
            Ok(_) => info!(?groups, "committed offsets expired"),
            // Looked at again after the interval.
            Err(error) => warn!(%error, "committed offsets could not be expired"),
        }
    }
}
