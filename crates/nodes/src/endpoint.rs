//! Client endpoints of a node, and its rack.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host that clients can resolve, and a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Client endpoints by protocol, as advertised to clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoints {
    pub kafka: Endpoint,
    /// `None`: not offered.
    #[serde(default)]
    pub amqp: Option<Endpoint>,
    /// For Kafka clients that use TLS. `None`: not offered.
    #[serde(default)]
    pub kafka_tls: Option<Endpoint>,
    /// Rack of the node, for Kafka clients that fetch from a near replica; `None`: not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
}

impl Endpoints {
    /// Kafka's endpoint, with or without TLS.
    pub fn kafka_at(&self, encrypted: bool) -> Option<&Endpoint> {
        if encrypted { self.kafka_tls.as_ref() } else { Some(&self.kafka) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_tls_is_not_offered_to_tls_clients() {
        let [plain, tls] = [9092, 9093].map(|port| Endpoint { host: "one".into(), port });
        let mut endpoints =
            Endpoints { kafka: plain.clone(), amqp: None, kafka_tls: None, rack: None };
        assert_eq!((endpoints.kafka_at(false), endpoints.kafka_at(true)), (Some(&plain), None));
        endpoints.kafka_tls = Some(tls.clone());
        assert_eq!(endpoints.kafka_at(true), Some(&tls));
    }

    #[test]
    fn ipv6_host_is_bracketed() {
        let endpoint = |host: &str| Endpoint { host: host.into(), port: 1 }.to_string();
        assert_eq!((endpoint("::1"), endpoint("a")), ("[::1]:1".into(), "a:1".into()));
    }
}
