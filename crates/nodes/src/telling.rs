//! What a node tells the others of itself, for as long as it lives.

use broker::Broker;
use bytes::Bytes;
use cluster::Node;
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoints;

/// Travels between nodes as JSON: what a version does not know it passes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    #[serde(flatten)]
    pub(crate) endpoints: Endpoints,
    /// Its disk was given up a moment ago: nobody is to be sent there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unwell: bool,
}

impl Told {
    pub(crate) fn of(endpoints: Endpoints) -> Self {
        Self { endpoints, is_unwell: false }
    }

    /// Tells it from now on, in place of what was told before.
    pub(crate) fn tell(&self, cluster: &Node) {
        // It has a few names and numbers, which are far shorter than gossip may be.
        let told = cluster.tell(self.to_bytes());
        debug_assert!(told.is_ok());
    }

    /// Tells how the node is, if that has changed.
    pub(crate) fn keep_true(&mut self, broker: &Broker, cluster: &Node) {
        let is_unwell = !broker.disk_is_well();
        if std::mem::replace(&mut self.is_unwell, is_unwell) != is_unwell {
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
        let unwell = Told { endpoints: in_rack, is_unwell: true };
        assert_eq!(Told::of_bytes(&unwell.to_bytes()), Some(unwell));
    }
}
