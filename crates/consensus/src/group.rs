//! The group of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use openraft::BasicNode;

use crate::engine::Membership;
use crate::message::GroupId;
use crate::peers::Peers;
use crate::starvation::Starvation;
use crate::transfer::CatchUpPace;

/// The id of a group, and the way to its other members.
#[derive(Clone)]
pub struct Group {
    pub id: GroupId,
    pub peers: Arc<dyn Peers>,
    /// The node's limit, shared by its groups.
    pub pace: CatchUpPace,
    /// The node's measurement, shared by its groups.
    pub starvation: Starvation,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The members of a group: nodes with their addresses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Members {
    pub voters: BTreeMap<u64, String>,
    /// Learners: they have the log, and neither vote nor count for a majority.
    pub learners: BTreeMap<u64, String>,
}

impl Members {
    pub fn voting(voters: impl IntoIterator<Item = (u64, String)>) -> Self {
        Self { voters: voters.into_iter().collect(), learners: BTreeMap::new() }
    }

    pub(crate) fn of(members: &Membership) -> Self {
        let voters: BTreeSet<u64> = members.voter_ids().collect();
        let nodes = members.nodes().map(|(id, node)| (*id, node.addr.clone()));
        let (voters, learners) = nodes.partition(|(id, _)| voters.contains(id));
        Self { voters, learners }
    }

    pub(crate) fn nodes(&self) -> BTreeMap<u64, BasicNode> {
        let all = self.voters.iter().chain(&self.learners);
        all.map(|(id, address)| (*id, BasicNode { addr: address.clone() })).collect()
    }
}
