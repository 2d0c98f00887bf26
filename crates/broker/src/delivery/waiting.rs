//! What waits in the lease groups of topics that refuse records when they are full.
//!
//! A limit counts what waits to be handed out, and only the driver knows what is leased; it is the
//! sequencer that refuses. So the driver notes here where each such group stands, with the ends up
//! to which that was counted: what the sequencer has given a place since comes on top.

use base::LeaseGroupId;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// Where a group stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Records that could be handed out, known or not.
    pub(super) waiting: u64,
    /// Records whose time has not come: nobody takes those.
    pub(super) delayed: u64,
    /// So many more would be handed out at once, and never wait.
    pub(super) credit: u64,
    /// The sum of the partitions' ends.
    pub(super) ends: u64,
}

impl Standing {
    /// How many records wait once the topic's ends come to `ends`.
    pub(super) fn held_at(&self, ends: u64) -> u64 {
        let waiting = self.waiting + ends.saturating_sub(self.ends);
        self.delayed + waiting.saturating_sub(self.credit)
    }
}

/// Only of groups that the driver knows at the moment: of the others nothing is leased.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    groups: Mutex<HashMap<LeaseGroupId, Standing>>,
}

impl Standings {
    pub(super) fn note(&self, group: LeaseGroupId, standing: Standing) {
        self.groups.lock().insert(group, standing);
    }

    pub(super) fn forget(&self, group: LeaseGroupId) {
        self.groups.lock().remove(&group);
    }

    pub(super) fn of(&self, group: LeaseGroupId) -> Option<Standing> {
        self.groups.lock().get(&group).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_consumers_would_take_at_once_does_not_wait() {
        let standing = Standing { waiting: 2, delayed: 1, credit: 0, ends: 100 };
        assert_eq!((standing.held_at(100), standing.held_at(103)), (3, 6));
        let standing = Standing { waiting: 0, credit: 5, ..standing };
        assert_eq!((standing.held_at(104), standing.held_at(107)), (1, 3));
    }
}
