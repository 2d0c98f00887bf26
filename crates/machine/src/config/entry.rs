//! One entry of a configuration table: its name, kind, valid values and effect.

use super::{ConfigError, ConfigSource, DescribedSetting};
use crate::topic_name::validate_topic_name;

/// Kinds of DescribeConfigs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigKind {
    Boolean,
    String,
    Int,
    Long,
    Double,
    List,
}

/// A value of the right syntax for its kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    Boolean(bool),
    Whole(i64),
    Real(f64),
    Text(&'a str),
    List(Vec<&'a str>),
}

impl<'a> Value<'a> {
    /// Parses a value as Kafka's `ConfigDef` does: surrounding spaces are ignored.
    fn parse(kind: ConfigKind, raw: &'a str) -> Option<Self> {
        let raw = raw.trim();
        match kind {
            ConfigKind::Boolean if raw.eq_ignore_ascii_case("true") => Some(Self::Boolean(true)),
            ConfigKind::Boolean if raw.eq_ignore_ascii_case("false") => Some(Self::Boolean(false)),
            ConfigKind::Boolean => None,
            ConfigKind::String => Some(Self::Text(raw)),
            ConfigKind::Int => raw.parse::<i32>().ok().map(|n| Self::Whole(n.into())),
            ConfigKind::Long => raw.parse().ok().map(Self::Whole),
            ConfigKind::Double => raw.parse().ok().map(Self::Real),
            ConfigKind::List if raw.is_empty() => Some(Self::List(Vec::new())),
            ConfigKind::List => Some(Self::List(raw.split(',').map(str::trim).collect())),
        }
    }

    pub(super) fn boolean(&self) -> bool {
        matches!(self, Self::Boolean(true))
    }

    pub(super) fn whole(&self) -> i64 {
        if let Self::Whole(n) = self { *n } else { 0 }
    }

    pub(super) fn real(&self) -> f64 {
        if let Self::Real(n) = self { *n } else { 0.0 }
    }

    pub(super) fn text(&self) -> &'a str {
        if let Self::Text(text) = self { text } else { "" }
    }

    pub(super) fn items(&self) -> &[&'a str] {
        if let Self::List(items) = self { items } else { &[] }
    }
}

/// Effect of a configuration.
#[derive(Debug)]
pub enum Effect<T> {
    /// Sets a field of the typed configuration.
    Sets(fn(&mut T, &Value<'_>)),
    /// Every value has the same, inherent effect; its documentation explains it.
    Inherent,
    /// Configures something that does not exist here: refused unless it has its default.
    OnlyDefault { why: &'static str },
}

#[derive(Debug)]
pub struct ConfigEntry<T: 'static> {
    pub name: &'static str,
    pub kind: ConfigKind,
    pub default: &'static str,
    /// Name under which the node sets the default.
    pub node_name: Option<&'static str>,
    pub documentation: &'static str,
    /// Description of valid values.
    pub expected: &'static str,
    pub effect: Effect<T>,
    accepts: fn(&Value<'_>) -> bool,
}

impl<T> ConfigEntry<T> {
    /// An entry whose kind alone decides validity; the methods below refine it.
    pub(super) const fn new(
        name: &'static str,
        kind: ConfigKind,
        default: &'static str,
        effect: Effect<T>,
        documentation: &'static str,
    ) -> Self {
        let expected = match kind {
            ConfigKind::Boolean => "true or false",
            ConfigKind::String => "a text",
            ConfigKind::Int => "a whole number of 32 bits",
            ConfigKind::Long => "a whole number of 64 bits",
            ConfigKind::Double => "a number",
            ConfigKind::List => "a list, separated by commas",
        };
        let accepts = |_: &Value<'_>| true;
        Self { name, kind, default, node_name: None, documentation, expected, effect, accepts }
    }

    pub(super) const fn valid(
        mut self,
        expected: &'static str,
        accepts: fn(&Value<'_>) -> bool,
    ) -> Self {
        self.expected = expected;
        self.accepts = accepts;
        self
    }

    pub(super) const fn on_node(mut self, node_name: &'static str) -> Self {
        self.node_name = Some(node_name);
        self
    }

    /// Validates a value and, if this configuration has a field, sets it.
    pub(super) fn apply(&self, raw: &str, config: &mut T) -> Result<(), ConfigError> {
        let invalid = || ConfigError::Invalid {
            name: self.name.into(),
            value: raw.to_owned(),
            expected: self.expected.into(),
        };
        let value = Value::parse(self.kind, raw).ok_or_else(invalid)?;
        match self.effect {
            Effect::OnlyDefault { why } => {
                if Value::parse(self.kind, self.default).as_ref() != Some(&value) {
                    return Err(ConfigError::NotOffered {
                        name: self.name.into(),
                        value: raw.to_owned(),
                        default: self.default.into(),
                        why: why.into(),
                    });
                }
            }
            _ if !(self.accepts)(&value) => return Err(invalid()),
            Effect::Sets(set) => set(config, &value),
            Effect::Inherent => {}
        }
        Ok(())
    }

    pub(super) fn describe<'a>(
        &self,
        own: Option<&'a String>,
        node: Option<&'a String>,
    ) -> DescribedSetting<'a> {
        let (value, source) = match (own, node) {
            (Some(own), _) => (own.as_str(), ConfigSource::Own),
            (None, Some(node)) => (node.as_str(), ConfigSource::Node),
            (None, None) => (self.default, ConfigSource::Default),
        };
        DescribedSetting {
            name: self.name,
            kind: self.kind,
            value,
            source,
            default: self.default,
            node_name: self.node_name,
            node_value: node.map(String::as_str),
            documentation: self.documentation,
        }
    }
}

// ------------------------------------------------------------------ common validity checks

pub(super) const fn zero_or_more(value: &Value<'_>) -> bool {
    matches!(value, Value::Whole(0..))
}

pub(super) const fn one_or_more(value: &Value<'_>) -> bool {
    matches!(value, Value::Whole(1..))
}

pub(super) const fn ids_per_topic(value: &Value<'_>) -> bool {
    const MOST: i64 = crate::limits::DEDUP_IDS_PER_TOPIC_MAX as i64;
    matches!(value, Value::Whole(1..=MOST))
}

pub(super) const fn minus_one_or_more(value: &Value<'_>) -> bool {
    matches!(value, Value::Whole(-1..))
}

/// A topic's name, or empty.
pub(super) fn topic_or_none(value: &Value<'_>) -> bool {
    value.text().is_empty() || validate_topic_name(value.text()).is_ok()
}

/// A gateway's scheme, a colon and a route for that gateway; or empty.
pub(super) fn route_or_none(value: &Value<'_>) -> bool {
    let scheme = value.text().split_once(':').map(|(scheme, _)| scheme);
    value.text().is_empty() || scheme.is_some_and(|scheme| !scheme.is_empty())
}
