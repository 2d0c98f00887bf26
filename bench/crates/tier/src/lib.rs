//! Durability tiers. They have a crate of their own, so that the installer of brokers depends on
//! nothing else of the suite.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// State of a message when its sender gets the confirmation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Tier {
    /// It is in the memory of a process.
    T0,
    /// It was written to one node's page cache: survives the process, not the machine.
    T1,
    /// It was written to the page cache of a majority of nodes.
    T2,
    /// It was synced to one node's disk.
    T3,
    /// It was synced to the disks of a majority of nodes.
    T4,
}

impl Tier {
    pub const ALL: [Self; 5] = [Self::T0, Self::T1, Self::T2, Self::T3, Self::T4];

    pub fn meaning(self) -> &'static str {
        match self {
            Self::T0 => "in memory",
            Self::T1 => "in one node's page cache",
            Self::T2 => "in the page cache of a majority",
            Self::T3 => "synced to one node's disk",
            Self::T4 => "synced to the disks of a majority",
        }
    }

    pub fn is_synced(self) -> bool {
        matches!(self, Self::T3 | Self::T4)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|tier| tier.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is no tier: there are T0, T1, T2, T3 and T4"))
    }
}
