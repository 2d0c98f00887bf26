//! Server-side assignors: the group divides the partitions among its members (KIP-848, KIP-932).
//!
//! An assignor is a function of the members' subscriptions and previous targets. The same input gives the same
//! output, whatever the order of the members.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use uuid::Uuid;

use crate::assignment::Assignment;

mod range;
pub mod simple;
#[cfg(test)]
mod tests;
mod uniform;

/// A member as an assignor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber<'a> {
    pub id: &'a Text,
    pub instance_id: Option<&'a Text>,
    /// Existing topics that it subscribes to.
    pub topics: &'a BTreeSet<Uuid>,
    /// Its previous target assignment.
    pub target: &'a Assignment,
}

/// Topics grouped by their subscribers, as places in `subscribers`: topics of one list can be divided together.
/// Members are sorted by id, so that ties do not depend on the input order.
fn topics_by_members(subscribers: &[Subscriber<'_>]) -> BTreeMap<Vec<usize>, Vec<Uuid>> {
    let mut members: Vec<_> = (0..subscribers.len()).collect();
    members.sort_by_key(|&member| subscribers[member].id);
    let mut wanted_by: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
    for member in members {
        for topic in subscribers[member].topics {
            wanted_by.entry(*topic).or_default().push(member);
        }
    }
    let mut topics_of: BTreeMap<Vec<usize>, Vec<Uuid>> = BTreeMap::new();
    for (topic, members) in wanted_by {
        topics_of.entry(members).or_default().push(topic);
    }
    topics_of
}

/// The assignors that a client can select by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Assignor {
    /// Balances the partitions of the members as far as possible, with few moves.
    #[default]
    Uniform,
    /// Gives a member the same partitions of each topic, as far as possible.
    Range,
}

impl Assignor {
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// Divides the partitions of all topics with a subscriber; `partitions` has the partition count of each.
    /// Returns one assignment for each subscriber, in their order.
    pub fn assign(
        self,
        subscribers: &[Subscriber<'_>],
        partitions: &BTreeMap<Uuid, u32>,
    ) -> Vec<Assignment> {
        match self {
            Self::Uniform => uniform::assign(subscribers, partitions),
            Self::Range => range::assign(subscribers, partitions),
        }
    }
}
