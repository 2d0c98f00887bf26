//! The route of a queue's dead letters, in its lease group's `dead.letter.route`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Scheme of these routes, followed by a colon. It is stored in the configuration of lease groups. So it keeps its
/// name from the time when only one protocol had such routes.
pub const SCHEME: &str = "amqp";

/// Written as JSON after the scheme.
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
    fn route_is_written_as_stored_json() {
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
