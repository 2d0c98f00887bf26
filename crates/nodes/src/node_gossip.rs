//! Status of a node, which it sends to the others while it runs.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use base::{Level, ShardId};
use broker::{Broker, ReportedGroup, WeakBroker};
use bytes::Bytes;
use cluster::Node;
use links::NodeId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::endpoint::Endpoints;

/// Interval between two checks of the node's status: other nodes learn of a new leader from it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Sends the node's status whenever it changes, while the broker exists.
pub(crate) async fn send_changes(broker: WeakBroker, cluster: Weak<Node>, mut told: NodeGossip) {
    while let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) {
        told.send_if_changed(&broker, &cluster);
        drop((broker, cluster));
        sleep(LOOK_EVERY).await;
    }
}

/// Passes the groups led by other nodes to the broker, while both exist.
pub(crate) async fn receive_changes(
    broker: WeakBroker,
    mut heard: watch::Receiver<BTreeMap<NodeId, Bytes>>,
) {
    let mut known: BTreeMap<NodeId, Bytes> = BTreeMap::new();
    loop {
        let now = heard.borrow_and_update().clone();
        let Some(broker) = broker.upgrade() else { return };
        let is_new = |(node, told): &(&NodeId, &Bytes)| known.get(node) != Some(told);
        for (node, told) in now.iter().filter(is_new) {
            let Some(NodeGossip { leads, is_full, .. }) = NodeGossip::decode(told) else {
                continue;
            };
            broker.note_disk_report(node.0, is_full);
            let had = known.get(node).and_then(|had| NodeGossip::decode(had));
            // Below the level no node sends the groups it leads.
            if !leads.is_empty() || had.is_some_and(|had| !had.leads.is_empty()) {
                broker.receive_led_groups(
                    node.0,
                    leads.into_iter().map(ReportedGroup::from).collect(),
                );
            }
        }
        drop(broker);
        known = now;
        if heard.changed().await.is_err() {
            return;
        }
    }
}

/// Status of a node, sent as JSON: receivers ignore unknown fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NodeGossip {
    #[serde(flatten)]
    pub(crate) endpoints: Endpoints,
    /// Its disk was found stuck recently: do not send clients there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unwell: bool,
    /// The node rejects records until its disk has room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_full: bool,
    /// Shards that it leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leads: Vec<GroupGossip>,
    /// Removed replicas whose files it still has.
    #[serde(rename = "given_up", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) removed_replicas: Vec<u32>,
    /// SHA-256 of its operator token, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) operator_token: Option<String>,
}

/// A group, as sent by its leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GroupGossip {
    pub(crate) shard: u32,
    pub(crate) term: u64,
    pub(crate) voters: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) learners: Vec<u64>,
}

impl From<ReportedGroup> for GroupGossip {
    fn from(ReportedGroup { shard, term, voters, learners }: ReportedGroup) -> Self {
        Self { shard: shard.0, term, voters, learners }
    }
}

impl From<GroupGossip> for ReportedGroup {
    fn from(GroupGossip { shard, term, voters, learners }: GroupGossip) -> Self {
        Self { shard: ShardId(shard), term, voters, learners }
    }
}

impl NodeGossip {
    pub(crate) fn of(endpoints: Endpoints) -> Self {
        let (leads, removed_replicas) = (Vec::new(), Vec::new());
        let (is_unwell, is_full, operator_token) = (false, false, None);
        Self { endpoints, is_unwell, is_full, leads, removed_replicas, operator_token }
    }

    /// Sends this status from now on, replacing the former one.
    pub(crate) fn tell(&self, cluster: &Node) {
        // It is far shorter than the limit on gossip, even with the maximum number of shards and nodes.
        if let Err(error) = cluster.send_gossip(self.to_bytes()) {
            debug_assert!(false, "{error}");
            tracing::warn!(%error, "the other nodes are not told how this one is");
        }
    }

    /// Sends the node's status if it has changed.
    pub(crate) fn send_if_changed(&mut self, broker: &Broker, cluster: &Node) {
        let (is_unwell, is_full) = (!broker.disk_is_well(), broker.disk_is_full());
        // Below that level every node is in each group, and learns its leader there.
        let spreads = broker.level().now() >= Level::REPLICAS;
        let led = if spreads { broker.led_groups() } else { Vec::new() };
        let leads = led.into_iter().map(GroupGossip::from).collect();
        let removed_replicas = broker.removed_replicas().into_iter().map(|shard| shard.0).collect();
        let now = Self { is_unwell, is_full, leads, removed_replicas, ..self.clone() };
        if *self != now {
            *self = now;
            self.tell(cluster);
        }
    }

    fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("what is told can be written").into()
    }

    pub(crate) fn decode(told: &[u8]) -> Option<Self> {
        serde_json::from_slice(told).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    #[test]
    fn status_of_earlier_and_later_versions_is_decoded() {
        let kafka = Endpoint { host: "one".into(), port: 9092 };
        let endpoints = Endpoints { kafka, amqp: None, kafka_tls: None, rack: None };
        let well = NodeGossip::of(endpoints.clone());
        assert_eq!(NodeGossip::decode(&well.to_bytes()), Some(well.clone()));
        let later = br#"{"kafka":{"host":"one","port":9092,"tls":true},"mqtt":{}}"#;
        assert_eq!(NodeGossip::decode(later), Some(well));
        assert_eq!(NodeGossip::decode(b"{}"), None);
        let in_rack = Endpoints { rack: Some("r1".into()), ..endpoints };
        let group = GroupGossip { shard: 3, term: 7, voters: vec![1, 2, 4], learners: vec![5] };
        let (leads, removed_replicas) = (vec![group], vec![2]);
        let operator_token = Some("00ff".to_owned());
        let (is_unwell, is_full) = (true, true);
        let unwell = NodeGossip {
            endpoints: in_rack,
            is_unwell,
            is_full,
            leads,
            removed_replicas,
            operator_token,
        };
        assert_eq!(NodeGossip::decode(&unwell.to_bytes()), Some(unwell));
    }
}
