//! What a node tells the others of itself, for as long as it lives.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use base::{Level, ShardId};
use broker::{Broker, HeardGroup, WeakBroker};
use bytes::Bytes;
use cluster::Node;
use links::NodeId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::endpoint::Endpoints;

/// The pause between two looks at what this node has to tell: others look for a new leader by that.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Keeps true what the node tells, for as long as the broker is there.
pub(crate) async fn tell(broker: WeakBroker, cluster: Weak<Node>, mut told: Told) {
    while let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) {
        told.keep_true(&broker, &cluster);
        drop((broker, cluster));
        sleep(LOOK_EVERY).await;
    }
}

/// Tells the broker which groups others lead, for as long as both are there.
pub(crate) async fn hear(broker: WeakBroker, mut heard: watch::Receiver<BTreeMap<NodeId, Bytes>>) {
    let mut known: BTreeMap<NodeId, Bytes> = BTreeMap::new();
    loop {
        let now = heard.borrow_and_update().clone();
        let Some(broker) = broker.upgrade() else { return };
        let is_new = |(node, told): &(&NodeId, &Bytes)| known.get(node) != Some(told);
        for (node, told) in now.iter().filter(is_new) {
            let Some(Told { leads, is_full, .. }) = Told::of_bytes(told) else { continue };
            broker.hear_of_disk(node.0, is_full);
            let had = known.get(node).and_then(|had| Told::of_bytes(had));
            // Nobody leads anything that is told of below the level.
            if !leads.is_empty() || had.is_some_and(|had| !had.leads.is_empty()) {
                broker.hear_of_groups(node.0, leads.into_iter().map(HeardGroup::from).collect());
            }
        }
        drop(broker);
        known = now;
        if heard.changed().await.is_err() {
            return;
        }
    }
}

/// Travels between nodes as JSON: what a version does not know it passes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    #[serde(flatten)]
    pub(crate) endpoints: Endpoints,
    /// Its disk was given up a moment ago: nobody is to be sent there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unwell: bool,
    /// The node rejects records until its disk has room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_full: bool,
    /// Of shards that it leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) leads: Vec<ToldGroup>,
    /// Shards that it has given up, and whose files it still has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) given_up: Vec<u32>,
}

/// A group, as its leader tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ToldGroup {
    pub(crate) shard: u32,
    pub(crate) term: u64,
    pub(crate) voters: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) learners: Vec<u64>,
}

impl From<HeardGroup> for ToldGroup {
    fn from(HeardGroup { shard, term, voters, learners }: HeardGroup) -> Self {
        Self { shard: shard.0, term, voters, learners }
    }
}

impl From<ToldGroup> for HeardGroup {
    fn from(ToldGroup { shard, term, voters, learners }: ToldGroup) -> Self {
        Self { shard: ShardId(shard), term, voters, learners }
    }
}

impl Told {
    pub(crate) fn of(endpoints: Endpoints) -> Self {
        let (leads, given_up) = (Vec::new(), Vec::new());
        Self { endpoints, is_unwell: false, is_full: false, leads, given_up }
    }

    /// Tells it from now on, in place of what was told before.
    pub(crate) fn tell(&self, cluster: &Node) {
        // It is far shorter than gossip may be, with as many shards and nodes as there may be, too.
        if let Err(error) = cluster.send_gossip(self.to_bytes()) {
            debug_assert!(false, "{error}");
            tracing::warn!(%error, "the other nodes are not told how this one is");
        }
    }

    /// Tells how the node is, if that has changed.
    pub(crate) fn keep_true(&mut self, broker: &Broker, cluster: &Node) {
        let (is_unwell, is_full) = (!broker.disk_is_well(), broker.disk_is_full());
        // Below that every node is in each group, and hears of its leader there.
        let spreads = broker.level().now() >= Level::REPLICAS;
        let led = if spreads { broker.led_groups() } else { Vec::new() };
        let leads = led.into_iter().map(ToldGroup::from).collect();
        let given_up = broker.given_up().into_iter().map(|shard| shard.0).collect();
        let now = Self { endpoints: self.endpoints.clone(), is_unwell, is_full, leads, given_up };
        if *self != now {
            *self = now;
            self.tell(cluster);
        }
    }

    fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).expect("what is told can be written").into()
    }

    pub(crate) fn of_bytes(told: &[u8]) -> Option<Self> {
        serde_json::from_slice(told).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;

    #[test]
    fn what_is_told_is_read_also_of_an_earlier_and_a_later_version() {
        let kafka = Endpoint { host: "one".into(), port: 9092 };
        let endpoints = Endpoints { kafka, amqp: None, kafka_tls: None, rack: None };
        let well = Told::of(endpoints.clone());
        assert_eq!(Told::of_bytes(&well.to_bytes()), Some(well.clone()));
        let later = br#"{"kafka":{"host":"one","port":9092,"tls":true},"mqtt":{}}"#;
        assert_eq!(Told::of_bytes(later), Some(well));
        assert_eq!(Told::of_bytes(b"{}"), None);
        let in_rack = Endpoints { rack: Some("r1".into()), ..endpoints };
        let group = ToldGroup { shard: 3, term: 7, voters: vec![1, 2, 4], learners: vec![5] };
        let (leads, given_up) = (vec![group], vec![2]);
        let unwell = Told { endpoints: in_rack, is_unwell: true, is_full: true, leads, given_up };
        assert_eq!(Told::of_bytes(&unwell.to_bytes()), Some(unwell));
    }
}
