//! Dividing partitions among members, where the group does it (KIP-848, KIP-932).
//!
//! An assignor is a function of who wants what and who has had what; the same input gives the same
//! output, in whatever order the members are known.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::groups::assignment::Assignment;

mod range;
pub(crate) mod simple;
#[cfg(test)]
mod tests;
mod uniform;

/// Where a member comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscriber<'a> {
    pub(crate) id: &'a StrBytes,
    pub(crate) instance_id: Option<&'a StrBytes>,
    /// Topics that it wants; those that do not exist have been left out.
    pub(crate) topics: &'a BTreeSet<Uuid>,
    /// What it was to have so far.
    pub(crate) target: &'a Assignment,
}

/// The assignors that a client may ask for, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Assignor {
    /// As many partitions for each member as possible, and as few moves.
    #[default]
    Uniform,
    /// The same partitions of each topic for the same member, as far as they go.
    Range,
}

impl Assignor {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// Divides the partitions of all topics that anybody wants; `partitions` has how many each of
    /// them has. One assignment for each subscriber, in their order.
    pub(crate) fn assign(
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
