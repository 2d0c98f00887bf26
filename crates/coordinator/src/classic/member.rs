//! A member of a classic group.

use std::time::Duration;

use crate::Text;
use base::HashSet;
use bytes::Bytes;
use world::Instant;

use crate::classic::Waiter;
use crate::client::Client;

/// An assignment protocol that a member supports, with its metadata for the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    pub name: Text,
    pub metadata: Bytes,
}

#[derive(Debug)]
pub struct Member {
    pub id: Text,
    pub instance_id: Option<Text>,
    pub client: Client,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    /// In the order of its preference.
    pub protocols: Vec<Protocol>,
    pub assignment: Bytes,
    /// Has not been part of a generation yet.
    pub(super) is_new: bool,
    pub(super) awaiting_join: Option<Waiter>,
    pub(super) awaiting_sync: Option<Waiter>,
    /// Has not fetched its assignment of this generation yet.
    pub(super) owes_sync: bool,
    /// `None` after it passed while the member was waiting for the group, which counts as a sign of life until the
    /// wait ends.
    pub(super) heartbeat_deadline: Option<Instant>,
}

impl Member {
    pub(super) fn is_static(&self) -> bool {
        self.instance_id.is_some()
    }

    /// Whether it needs no heartbeat because the group makes it wait. Not for a new member: its client may be gone
    /// without having received its id.
    pub(super) fn is_kept_waiting(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// Its metadata for a protocol.
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|known| known.name.as_ref() == protocol);
        found.map(|known| known.metadata.clone()).unwrap_or_default()
    }

    /// The protocol among `candidates` that it prefers.
    pub(super) fn vote(&self, candidates: &HashSet<&Text>) -> Option<&Text> {
        self.protocols.iter().map(|known| &known.name).find(|name| candidates.contains(*name))
    }

    /// Approximate memory, for the limit of all groups.
    pub(super) fn bytes(&self) -> usize {
        protocols_bytes(&self.protocols) + self.assignment.len() + MEMBER_BYTES
    }
}

/// Fixed part of [`Member::bytes`]: the struct, its ids and its entries in the maps.
const MEMBER_BYTES: usize = 512;

pub(super) fn protocols_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|known| known.name.len() + known.metadata.len()).sum()
}
