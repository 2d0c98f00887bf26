//! Dividing partitions among members, where the group does it (KIP-848, KIP-932).
//!
//! An assignor is a function of who wants what and who has had what; the same input gives the same
//! output, in whatever order the members are known.

use std::collections::{BTreeMap, BTreeSet};

use crate::Text;
use uuid::Uuid;

use crate::assignment::Assignment;

mod range;
pub mod simple;
#[cfg(test)]
mod tests;
mod uniform;

/// Where a member comes in.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber<'a> {
    pub id: &'a Text,
    pub instance_id: Option<&'a Text>,
    /// Topics that it wants; those that do not exist have been left out.
    pub topics: &'a BTreeSet<Uuid>,
    /// What it was to have so far.
    pub target: &'a Assignment,
}

/// Topics by the members that want them, as places in `subscribers`: topics of one list can be divided
/// together. Members are by id, so that ties do not depend on the order in which they are known.
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

/// The assignors that a client may ask for, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Assignor {
    /// As many partitions for each member as possible, and as few moves.
    #[default]
    Uniform,
    /// The same partitions of each topic for the same member, as far as they go.
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

    /// Divides the partitions of all topics that anybody wants; `partitions` has how many each of
    /// them has. One assignment for each subscriber, in their order.
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
