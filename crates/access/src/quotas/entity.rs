//! Entities and kinds of quotas, and the selection of the quota that applies to a client.
//!
//! The most specific one applies, separately for each kind of quota (KIP-13, KIP-257):
//!
//! ```text
//! user and client   user, default client   user   default user and client   default user and default client
//! default user   client   default client
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::limits::QUOTA_NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::{QuotaError, Table};

/// Kind of a part of an entity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum EntityType {
    #[serde(rename = "user")]
    User,
    #[serde(rename = "client-id")]
    ClientId,
    /// An address that clients connect from.
    #[serde(rename = "ip")]
    Address,
}

impl EntityType {
    pub const ALL: [Self; 3] = [Self::User, Self::ClientId, Self::Address];

    /// Kafka's name of it.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ClientId => "client-id",
            Self::Address => "ip",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }
}

/// The entity that a quota applies to: a user, a client, a client of a user, or an address. `None` is the default for
/// all without a quota of their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Entity(pub BTreeMap<EntityType, Option<String>>);

impl Entity {
    pub fn of(parts: impl IntoIterator<Item = (EntityType, Option<String>)>) -> Self {
        Self(parts.into_iter().collect())
    }

    pub fn name(&self, of: EntityType) -> Option<Option<&str>> {
        self.0.get(&of).map(Option::as_deref)
    }

    fn is_of_address(&self) -> bool {
        self.0.contains_key(&EntityType::Address)
    }

    fn check(&self) -> Result<(), QuotaError> {
        let invalid = |text: String| Err(QuotaError::Invalid(text));
        if self.0.is_empty() {
            return invalid("a quota is of a user, a client-id or an ip".to_owned());
        }
        if self.is_of_address() && self.0.len() > 1 {
            return invalid("an ip goes with neither a user nor a client-id".to_owned());
        }
        for (of, name) in &self.0 {
            let Some(name) = name else { continue };
            let word = of.word();
            if name.is_empty() || name.len() > QUOTA_NAME_BYTES_MAX {
                return invalid(format!("a {word} has 1 to {QUOTA_NAME_BYTES_MAX} bytes"));
            }
            if *of == EntityType::Address && name.parse::<IpAddr>().is_err() {
                return invalid(format!("{name:?} is no address"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (of, name)) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{} {}", of.word(), name.as_deref().unwrap_or("(default)"))?;
        }
        Ok(())
    }
}

/// Limited quantity, per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Quota {
    /// Produced bytes.
    #[serde(rename = "producer_byte_rate")]
    ProducerByteRate,
    /// Consumed bytes.
    #[serde(rename = "consumer_byte_rate")]
    ConsumerByteRate,
    /// Created and deleted partitions.
    #[serde(rename = "controller_mutation_rate")]
    ControllerMutationRate,
    /// Opened connections.
    #[serde(rename = "connection_creation_rate")]
    ConnectionCreationRate,
}

impl Quota {
    pub const ALL: [Self; 4] = [
        Self::ProducerByteRate,
        Self::ConsumerByteRate,
        Self::ControllerMutationRate,
        Self::ConnectionCreationRate,
    ];

    /// Kafka's name of it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ProducerByteRate => "producer_byte_rate",
            Self::ConsumerByteRate => "consumer_byte_rate",
            Self::ControllerMutationRate => "controller_mutation_rate",
            Self::ConnectionCreationRate => "connection_creation_rate",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }

    /// Index in [`Quota::ALL`].
    pub(crate) fn place(self) -> usize {
        self as usize
    }

    fn is_of_address(self) -> bool {
        self == Self::ConnectionCreationRate
    }

    /// Whether its values are whole numbers.
    fn is_whole(self) -> bool {
        self != Self::ControllerMutationRate
    }
}

/// Quotas of one entity, per second.
pub type Values = BTreeMap<Quota, f64>;

/// Kafka's quota of thread time. Not supported: requests share the threads of a node, and their cost is not measured.
const REQUEST_PERCENTAGE: &str = "request_percentage";

/// Change of an entity's quotas, by Kafka's names; `None` removes a quota.
#[derive(Clone, PartialEq, Debug)]
pub struct Alteration {
    pub entity: Entity,
    pub values: Vec<(String, Option<f64>)>,
}

impl Alteration {
    pub(super) fn check(&self) -> Result<(), QuotaError> {
        self.entity.check()?;
        for (key, value) in &self.values {
            self.check_value(key, *value).map_err(QuotaError::Invalid)?;
        }
        Ok(())
    }

    fn check_value(&self, key: &str, value: Option<f64>) -> Result<(), String> {
        let Some(quota) = Quota::from_word(key) else {
            return match (key, value) {
                // Removing it is allowed: it is never set.
                (REQUEST_PERCENTAGE, None) => Ok(()),
                (REQUEST_PERCENTAGE, Some(_)) => Err(format!(
                    "{REQUEST_PERCENTAGE} is not offered: clients share this broker's threads, and the time that \
                     one of them takes is not measured"
                )),
                _ => Err(format!("there is no quota {key:?}")),
            };
        };
        if quota.is_of_address() != self.entity.is_of_address() {
            let of = if quota.is_of_address() { "an ip" } else { "a user or a client-id" };
            return Err(format!("{key} is a quota of {of}"));
        }
        let Some(value) = value else { return Ok(()) };
        if !value.is_finite() || value <= 0.0 {
            return Err(format!("{key} must be greater than 0"));
        }
        if quota.is_whole() && value.fract() != 0.0 {
            return Err(format!("{key} is a whole number"));
        }
        let max = if quota.is_of_address() { f64::from(i32::MAX) } else { i64::MAX as f64 };
        if value > max {
            return Err(format!("{key} is {max} at most"));
        }
        Ok(())
    }

    pub(super) fn apply(&self, table: &mut Table) {
        let values = table.entry(self.entity.clone()).or_default();
        for (key, value) in &self.values {
            let Some(quota) = Quota::from_word(key) else { continue };
            match value {
                Some(value) => values.insert(quota, *value),
                None => values.remove(&quota),
            };
        }
        if values.is_empty() {
            table.remove(&self.entity);
        }
    }
}

/// A part of an entity: absent, the default, or a name.
type EntityName = Option<Option<String>>;

/// The rate that applies to a client, and whether it is specific to the user and to the client.
pub(super) fn resolve(
    table: &Table,
    quota: Quota,
    user: &str,
    client: &str,
) -> Option<(f64, bool, bool)> {
    let named = |name: &str| Some(Some(name.to_owned()));
    let (is_default, none) = (Some(None), None);
    let order: [(EntityName, EntityName); 8] = [
        (named(user), named(client)),
        (named(user), is_default.clone()),
        (named(user), none.clone()),
        (is_default.clone(), named(client)),
        (is_default.clone(), is_default.clone()),
        (is_default.clone(), none.clone()),
        (none.clone(), named(client)),
        (none, is_default),
    ];
    order.into_iter().find_map(|(user, client)| {
        let (of_user, of_client) = (user.is_some(), client.is_some());
        let user = user.map(|name| (EntityType::User, name));
        let client = client.map(|name| (EntityType::ClientId, name));
        let entity = Entity::of(user.into_iter().chain(client));
        Some((*table.get(&entity)?.get(&quota)?, of_user, of_client))
    })
}

/// Connection rate of an address, per second.
pub(super) fn resolve_address(table: &Table, address: IpAddr) -> Option<f64> {
    let of = |entity: &Entity| match entity.name(EntityType::Address) {
        Some(Some(name)) => name.parse::<IpAddr>().is_ok_and(|it| it.to_canonical() == address),
        _ => false,
    };
    let quota = |values: &super::Values| values.get(&Quota::ConnectionCreationRate).copied();
    let own = table.iter().find(|(entity, _)| of(entity)).and_then(|(_, values)| quota(values));
    own.or_else(|| quota(table.get(&Entity::of([(EntityType::Address, None)]))?))
}
