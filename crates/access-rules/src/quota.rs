//! Entities and kinds of quotas, by Kafka's names (KIP-13, KIP-257, KIP-546, KIP-599, KIP-612).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

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

    /// Whether one of its parts is an address.
    pub fn is_of_address(&self) -> bool {
        self.0.contains_key(&EntityType::Address)
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
    pub fn place(self) -> usize {
        self as usize
    }

    /// Whether it limits an address rather than a user or a client.
    pub fn is_of_address(self) -> bool {
        self == Self::ConnectionCreationRate
    }

    /// Whether its values are whole numbers.
    pub fn is_whole(self) -> bool {
        self != Self::ControllerMutationRate
    }
}

/// Quotas of one entity, per second.
pub type Values = BTreeMap<Quota, f64>;
