//! Settings of a node: timeouts of groups that fit into the short lives of a run.

use std::time::Duration;

use super::{Client, LifeEnded, overrides};

/// Silence after which a group removes a member.
pub const SESSION: Duration = Duration::from_millis(1_500);
/// How long a group waits for a member to revoke partitions, or to rejoin.
pub const REBALANCE: Duration = Duration::from_millis(2_500);
const REPORT_EVERY_MS: &str = "200";

const SMALL: [(&str, &str); 10] = [
    ("group.min.session.timeout.ms", "1000"),
    ("group.initial.rebalance.delay.ms", "100"),
    ("group.consumer.session.timeout.ms", "1500"),
    ("group.consumer.heartbeat.interval.ms", REPORT_EVERY_MS),
    ("group.share.min.session.timeout.ms", "1000"),
    ("group.share.session.timeout.ms", "1500"),
    ("group.share.min.heartbeat.interval.ms", REPORT_EVERY_MS),
    ("group.share.heartbeat.interval.ms", REPORT_EVERY_MS),
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("group.share.max.delivery.count.limit", ATTEMPTS_UNBOUNDED),
];
/// More than the deliveries of a record in any run.
pub const ATTEMPTS_UNBOUNDED: &str = "32767";

/// Makes sure that the node has the small values.
pub async fn allow(client: &mut Client) -> Result<(), LifeEnded> {
    let wanted = overrides(SMALL.iter());
    while client.broker.catalog().node_config().overrides != wanted {
        let set = client.broker.set_node_config(wanted.clone()).await;
        if let Err(error @ broker::ExecuteError::Refused(_)) = client.changed(set).await? {
            client.refused("the node's configuration", &error);
            return Err(LifeEnded);
        }
    }
    Ok(())
}

/// The same for the values of a group.
pub async fn configure(
    client: &mut Client,
    group: &str,
    values: &[(&str, &str)],
) -> Result<(), LifeEnded> {
    let wanted = overrides(values.iter());
    while client.broker.catalog().group_config(group).overrides != wanted {
        let set = client.broker.set_group_config(group.to_owned(), wanted.clone()).await;
        if let Err(error @ broker::ExecuteError::Refused(_)) = client.changed(set).await? {
            client.refused("a group's configuration", &error);
            return Err(LifeEnded);
        }
    }
    Ok(())
}
