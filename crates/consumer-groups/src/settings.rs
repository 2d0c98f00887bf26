//! The configuration of groups, as the state machines of the group protocols need it: a group's own settings, and the
//! node's where the group has none.

use std::time::Duration;

use broker::config::GroupValues;
use broker::{Broker, CatalogView};
use coordinator::classic::JoinLimits;
use coordinator::consumer::ConsumerLimits;
use coordinator::share::ShareLimits;
use coordinator::streams::StreamsLimits;

/// The node's current configuration of groups.
pub fn group_values(broker: &Broker) -> GroupValues {
    broker.catalog().node_config().own.groups
}

/// The limits of joins to a classic group.
pub fn join_limits(values: &GroupValues) -> JoinLimits {
    JoinLimits {
        initial_delay: millis(values.initial_rebalance_delay_ms),
        members_max: values.members_max,
    }
}

/// The limits of a consumer group (KIP-848), and the heartbeat interval of its members.
pub fn consumer_limits(catalog: &CatalogView<'_>, name: &str) -> (ConsumerLimits, i32) {
    let node = &catalog.node_config().own.groups;
    let group = catalog.group_config(name);
    let session = group.session_timeout_ms.unwrap_or(node.consumer_session_timeout_ms);
    let interval = group.heartbeat_interval_ms.unwrap_or(node.consumer_heartbeat_interval_ms);
    let limits =
        ConsumerLimits { members_max: node.consumer_members_max, session_timeout: millis(session) };
    (limits, interval)
}

/// The limits of a share group, and the heartbeat interval of its members.
pub fn share_limits(catalog: &CatalogView<'_>, name: &str) -> (ShareLimits, i32) {
    let node = &catalog.node_config().own.share;
    let group = &catalog.group_config(name).share;
    let session_ms = node.session_timeout_ms.holds(group.session_timeout_ms);
    let limits = ShareLimits { members_max: node.members_max, session_timeout: millis(session_ms) };
    (limits, node.heartbeat_interval_ms.holds(group.heartbeat_interval_ms))
}

/// The limits of a streams group, and the heartbeat interval of its members.
pub fn streams_limits(catalog: &CatalogView<'_>, name: &str) -> (StreamsLimits, i32) {
    let node = &catalog.node_config().own.streams;
    let own = &catalog.group_config(name).streams;
    let delay = own.initial_rebalance_delay_ms.unwrap_or(node.initial_rebalance_delay_ms);
    let limits = StreamsLimits {
        members_max: node.members_max,
        session_timeout: millis(node.session_timeout_ms.holds(own.session_timeout_ms)),
        standbys: usize::try_from(node.standby_replicas.holds(own.standby_replicas)).unwrap_or(0),
        initial_delay: millis(delay),
    };
    (limits, node.heartbeat_interval_ms.holds(own.heartbeat_interval_ms))
}

/// A time in a request or a configuration; a negative one counts as zero.
pub fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
