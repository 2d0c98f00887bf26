//! Where a queue's dead letters go, as its lease group's `dead.letter.route` says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What these routes begin with, and a colon. It is kept in the configuration of lease groups, so it
/// stays what it was when only one protocol had such routes.
pub const SCHEME: &str = "amqp";

/// Written as JSON behind the scheme.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    pub vhost: Box<str>,
    pub queue: Box<str>,
    pub exchange: Box<str>,
    /// `None`: the message's own routing keys.
    #[serde(rename = "routing-key", skip_serializing_if = "Option::is_none", default)]
    pub routing_key: Option<Box<str>>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}:{}", serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_stays_as_it_is_written() {
        let route = Route {
            vhost: "/".into(),
            queue: "q".into(),
            exchange: "dead".into(),
            routing_key: None,
        };
        let text = r#"amqp:{"vhost":"/","queue":"q","exchange":"dead"}"#;
        assert_eq!(route.to_string(), text);
        let keyed = Route { routing_key: Some("k".into()), ..route };
        let text = r#"amqp:{"vhost":"/","queue":"q","exchange":"dead","routing-key":"k"}"#;
        assert_eq!(keyed.to_string(), text);
    }
}
