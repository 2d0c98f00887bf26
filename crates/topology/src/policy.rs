//! Policies: settings for all queues or exchanges whose names match a pattern. The matching policy with the highest
//! priority applies, and one operator policy beside it, which may only tighten.

use std::sync::Arc;

use broker::config::{ConfigError, LeaseGroupConfig, NodeConfig, Overrides, TopicConfig};
use operations::amqp::{ApplyTo, Definition, PolicyDefinition};
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use values::Table;

use crate::arguments::{EXPIRY_MS_MAX, max_age_ms};
use crate::queue::{PolicyMatch, QueueKind, QueueSettings};

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PolicyScope {
    User,
    Operator,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("pattern should be regular expression but is invalid: {0}")]
    Pattern(regex::Error),
    #[error("no policy provided")]
    Empty,
    #[error("{0:?} is not recognised as a policy setting")]
    Unknown(String),
    #[error("{value} is not a valid {what}")]
    Invalid { what: &'static str, value: Value },
    #[error("no queue can have that: {0}")]
    Setting(#[from] ConfigError),
    #[error("there is no policy '{0}'")]
    NotFound(String),
    #[error("{0}")]
    VirtualHost(String),
    #[error("it could not be stored: {0}")]
    Storage(#[from] documents::StoreError),
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub name: Arc<str>,
    pub set: PolicyDefinition,
    pattern: Regex,
    /// Version of its document.
    pub(crate) version: u64,
}

/// The entity whose policies are sought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    Queue(&'a str, QueueKind),
    Exchange(&'a str),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Policies {
    /// Highest priority first, equal ones by name.
    user: Vec<Policy>,
    operator: Vec<Policy>,
}

impl Policy {
    pub(crate) fn new(
        scope: PolicyScope,
        name: &str,
        set: PolicyDefinition,
    ) -> Result<Self, PolicyError> {
        // RabbitMQ's patterns are PCRE: here look-around and back-references are not supported, which makes matching
        // linear in the name.
        let pattern = RegexBuilder::new(&set.pattern)
            .size_limit(PATTERN_COMPILED_BYTES_MAX)
            .build()
            .map_err(PolicyError::Pattern)?;
        if set.definition.is_empty() {
            return Err(PolicyError::Empty);
        }
        for (setting, value) in &set.definition {
            check(scope, setting, value)?;
        }
        check_effects(&set.definition)?;
        Ok(Self { name: Arc::from(name), set, pattern, version: 0 })
    }

    fn holds_for(&self, subject: Subject<'_>) -> bool {
        let (name, applies) = match subject {
            Subject::Exchange(name) => {
                (name, matches!(self.set.apply_to, ApplyTo::All | ApplyTo::Exchanges))
            }
            Subject::Queue(name, kind) => {
                let applies = match self.set.apply_to {
                    ApplyTo::All | ApplyTo::Queues => true,
                    ApplyTo::ClassicQueues => kind == QueueKind::Classic,
                    ApplyTo::QuorumQueues => kind == QueueKind::Quorum,
                    ApplyTo::Streams => kind == QueueKind::Stream,
                    ApplyTo::Exchanges => false,
                };
                // If the queue type lacks one of the settings, none of them applies.
                let all = || self.set.definition.keys().all(|name| supports(kind, name));
                (name, applies && all())
            }
        };
        applies && self.pattern.is_match(name)
    }
}

impl Policies {
    pub(crate) fn list(&self, scope: PolicyScope) -> &[Policy] {
        match scope {
            PolicyScope::User => &self.user,
            PolicyScope::Operator => &self.operator,
        }
    }

    fn list_mut(&mut self, scope: PolicyScope) -> &mut Vec<Policy> {
        match scope {
            PolicyScope::User => &mut self.user,
            PolicyScope::Operator => &mut self.operator,
        }
    }

    pub(crate) fn set(&mut self, scope: PolicyScope, policy: Policy) {
        let list = self.list_mut(scope);
        list.retain(|known| known.name != policy.name);
        list.push(policy);
        list.sort_by(|a, b| (-a.set.priority, &a.name).cmp(&(-b.set.priority, &b.name)));
    }

    pub(crate) fn remove(&mut self, scope: PolicyScope, name: &str) -> Option<Policy> {
        let list = self.list_mut(scope);
        let place = list.iter().position(|known| *known.name == *name)?;
        Some(list.remove(place))
    }

    pub(crate) fn find(&self, subject: Subject<'_>) -> PolicyMatch {
        let first =
            |list: &'_ [Policy]| list.iter().find(|policy| policy.holds_for(subject)).cloned();
        let (user, operator) = (first(&self.user), first(&self.operator));
        let mut definition = user.as_ref().map(|p| p.set.definition.clone()).unwrap_or_default();
        for (name, value) in operator.iter().flat_map(|policy| &policy.set.definition) {
            let merged = match definition.get(name) {
                Some(user) => merge(name, user, value),
                None => value.clone(),
            };
            definition.insert(name.clone(), merged);
        }
        PolicyMatch {
            policy: user.map(|policy| policy.name),
            operator_policy: operator.map(|policy| policy.name),
            definition,
        }
    }
}

/// Merges the values of a policy and an operator policy (`rabbit_policies:merge_policy_value`).
fn merge(name: &str, user: &Value, operator: &Value) -> Value {
    let (Some(a), Some(b)) = (user.as_i64(), operator.as_i64()) else { return operator.clone() };
    match name {
        "queue-version" => b.into(),
        "delivery-limit" if a < 0 || b < 0 => a.max(b).into(),
        "target-group-size" => a.max(b).into(),
        _ => a.min(b).into(),
    }
}

/// Returns whether a type of queue has a setting of this name.
fn supports(kind: QueueKind, name: &str) -> bool {
    const STREAM: [&str; 3] = ["max-age", "stream-max-segment-size-bytes", "initial-cluster-size"];
    let lacks: &[&str] = match kind {
        QueueKind::Classic => &[
            "delivery-limit",
            "dead-letter-strategy",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "target-group-size",
        ],
        QueueKind::Quorum => &["queue-mode", "queue-master-locator"],
        QueueKind::Stream => &[
            "expires",
            "message-ttl",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "overflow",
            "queue-mode",
            "delivery-limit",
            "queue-master-locator",
            "dead-letter-strategy",
            "target-group-size",
        ],
    };
    !(lacks.contains(&name) || kind != QueueKind::Stream && STREAM.contains(&name))
}

/// Checks that topics and lease groups accept the resulting configuration: once a policy is stored, no client is left
/// to receive an error.
fn check_effects(definition: &Definition) -> Result<(), ConfigError> {
    let policies = PolicyMatch { definition: definition.clone(), ..PolicyMatch::default() };
    let node = NodeConfig::parse(&Overrides::new())?;
    for kind in QueueKind::ALL {
        let settings = QueueSettings::new(kind, &Table::new(), &policies);
        TopicConfig::parse(&node, &settings.topic_config(kind, true))?;
        LeaseGroupConfig::parse(&settings.lease_config("", ""))?;
    }
    Ok(())
}

/// Checks that a policy may have this value (`rabbit_policies:validate_policy0`).
fn check(scope: PolicyScope, name: &str, value: &Value) -> Result<(), PolicyError> {
    const OPERATORS: [&str; 11] = [
        "expires",
        "message-ttl",
        "max-length",
        "max-length-bytes",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "delivery-limit",
        "queue-version",
        "overflow",
        "queue-master-locator",
        "target-group-size",
    ];
    if scope == PolicyScope::Operator && !OPERATORS.contains(&name) {
        return Err(PolicyError::Unknown(name.to_owned()));
    }
    let number = value.as_i64();
    let text = value.as_str();
    let at_least = |least: i64| number.is_some_and(|number| number >= least);
    let time_from = |least: i64| number.is_some_and(|ms| (least..=EXPIRY_MS_MAX).contains(&ms));
    let one_of = |names: &[&str]| text.is_some_and(|text| names.contains(&text));
    let (valid, what) = match name {
        "alternate-exchange" => (text.is_some(), "alternate exchange name"),
        "consumer-timeout" => (at_least(0), "consumer timeout"),
        "dead-letter-exchange" => (text.is_some(), "dead letter exchange name"),
        "dead-letter-routing-key" => (text.is_some(), "dead letter routing key"),
        "dead-letter-strategy" => {
            (one_of(&["at-most-once", "at-least-once"]), "dead letter strategy")
        }
        "message-ttl" => (time_from(0), "message TTL"),
        "expires" => (time_from(1), "queue expiry"),
        "max-length" => (at_least(0), "maximum length"),
        "max-length-bytes" => (at_least(0), "maximum length in bytes"),
        "max-in-memory-length" | "max-in-memory-bytes" => (at_least(0), "maximum memory in bytes"),
        "queue-mode" => (one_of(&["default", "lazy"]), "queue-mode value"),
        "queue-version" => (matches!(number, Some(1 | 2)), "queue-version value"),
        "overflow" => {
            (one_of(&["drop-head", "reject-publish", "reject-publish-dlx"]), "overflow value")
        }
        "delivery-limit" => (number.is_some(), "delivery limit"),
        "max-age" => (text.and_then(max_age_ms).is_some(), "max age"),
        "queue-leader-locator" => (
            one_of(&["client-local", "balanced", "random", "least-leaders"]),
            "queue leader locator value",
        ),
        "queue-master-locator" => {
            (one_of(&["min-masters", "client-local", "random"]), "queue master locator value")
        }
        "initial-cluster-size" => (at_least(0), "cluster size"),
        "target-group-size" => (at_least(1), "qq target count value"),
        "stream-max-segment-size-bytes" => {
            (number.is_some_and(|n| (0..=3_000_000_000).contains(&n)), "segment size")
        }
        "stream-filter-size-bytes" => {
            (number.is_some_and(|n| (16..=255).contains(&n)), "filter size. Valid range is 16-255")
        }
        _ => return Err(PolicyError::Unknown(name.to_owned())),
    };
    if valid { Ok(()) } else { Err(PolicyError::Invalid { what, value: value.clone() }) }
}
