//! Bytes of deliveries that were sent to sessions and not read yet: per session, per connection, and per node.
//! They bound the memory for a client that requests everything and reads nothing.
//!
//! A connection is read as a whole: one socket carries all its channels, so its sessions share one limit. The
//! node's limit holds back the connections with the most unread bytes. A connection with few unread bytes
//! always gets deliveries.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::limits::{
    LEASE_CONNECTION_UNREAD_BYTES_ALWAYS, LEASE_CONNECTION_UNREAD_BYTES_MAX,
    LEASE_NODE_UNREAD_BYTES_MAX,
};
use base::HashMap;
use parking_lot::Mutex;

/// Unread deliveries of all sessions that this node's drivers and relays send to.
#[derive(Debug, Default)]
pub struct NodeUnread {
    bytes: AtomicUsize,
    connections: Mutex<HashMap<u64, Weak<ConnectionUnread>>>,
}

/// Unread deliveries of the sessions of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionUnread {
    node: Arc<NodeUnread>,
    /// 0: a single session without a connection.
    number: u64,
    bytes: AtomicUsize,
    /// Drivers hold deliveries back; the reader that makes room notifies them.
    held_back: AtomicBool,
}

/// Unread deliveries of a session.
#[derive(Debug)]
pub struct UnreadDeliveries {
    connection: Arc<ConnectionUnread>,
    bytes: AtomicUsize,
}

impl NodeUnread {
    /// The node's total that these count in, for tests.
    pub fn of(unread: &UnreadDeliveries) -> Arc<Self> {
        Arc::clone(&unread.connection.node)
    }

    pub fn used_and_max(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Acquire) as u64, LEASE_NODE_UNREAD_BYTES_MAX as u64)
    }

    /// The count of a new session. `connection`: the node's number of it; 0: none.
    pub fn unread_of(self: &Arc<Self>, connection: u64) -> Arc<UnreadDeliveries> {
        let new = || {
            let (bytes, held_back) = (AtomicUsize::new(0), AtomicBool::new(false));
            Arc::new(ConnectionUnread {
                node: Arc::clone(self),
                number: connection,
                bytes,
                held_back,
            })
        };
        let connection = match connection {
            0 => new(),
            number => {
                let mut connections = self.connections.lock();
                let known = connections.get(&number).and_then(Weak::upgrade);
                known.unwrap_or_else(|| {
                    let new = new();
                    connections.insert(number, Arc::downgrade(&new));
                    new
                })
            }
        };
        Arc::new(UnreadDeliveries { connection, bytes: AtomicUsize::new(0) })
    }
}

impl Drop for ConnectionUnread {
    fn drop(&mut self) {
        if self.number != 0 {
            let mut connections = self.node.connections.lock();
            // The number may be in use again already.
            if connections.get(&self.number).is_some_and(|it| it.strong_count() == 0) {
                connections.remove(&self.number);
            }
        }
    }
}

impl UnreadDeliveries {
    /// The number of its connection; 0: none.
    #[inline]
    pub fn connection(&self) -> u64 {
        self.connection.number
    }

    #[inline]
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.connection.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.connection.node.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.connection.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.connection.node.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn is_node_full(&self) -> bool {
        self.connection.node.bytes.load(Ordering::Acquire) > LEASE_NODE_UNREAD_BYTES_MAX
    }

    /// Whether its connection must be held back.
    #[inline]
    pub fn is_too_much(&self) -> bool {
        let bytes = self.connection.bytes.load(Ordering::Acquire);
        bytes > LEASE_CONNECTION_UNREAD_BYTES_MAX
            || (bytes > LEASE_CONNECTION_UNREAD_BYTES_ALWAYS && self.is_node_full())
    }

    /// Whether its connection can resume. The threshold is below the limit, to avoid flapping.
    #[inline]
    pub fn has_room(&self) -> bool {
        let bytes = self.connection.bytes.load(Ordering::Acquire);
        bytes <= LEASE_CONNECTION_UNREAD_BYTES_MAX / 2
            && (bytes <= LEASE_CONNECTION_UNREAD_BYTES_ALWAYS / 2 || !self.is_node_full())
    }

    /// Requests a notification when there is room again.
    pub fn hold_back(&self) {
        self.connection.held_back.store(true, Ordering::Release);
    }

    /// True if drivers wait for room and there is room now.
    pub fn read(&self, bytes: usize) -> bool {
        self.subtract(bytes);
        let held_back = &self.connection.held_back;
        held_back.load(Ordering::Acquire)
            && self.has_room()
            && held_back.swap(false, Ordering::AcqRel)
    }
}

impl Drop for UnreadDeliveries {
    /// Subtracts the unread bytes of a session that ends.
    fn drop(&mut self) {
        self.subtract(self.bytes.load(Ordering::Acquire));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_connection_share_one_limit_without_affecting_others() {
        let node = Arc::<NodeUnread>::default();
        let (one, two) = (node.unread_of(7), node.unread_of(7));
        let (other, alone) = (node.unread_of(8), node.unread_of(0));
        one.add(LEASE_CONNECTION_UNREAD_BYTES_MAX);
        assert!(!two.is_too_much());
        two.add(1);
        assert!(one.is_too_much() && two.is_too_much());
        assert!(!other.is_too_much() && !alone.is_too_much());
        two.hold_back();
        assert!(!one.read(LEASE_CONNECTION_UNREAD_BYTES_MAX / 2));
        assert!(one.read(1), "half of the bound is left");
        assert!(!one.read(1), "it was reported");
        drop((one, two));
        assert_eq!(node.used_and_max().0, 0);
        drop(other);
        assert!(node.connections.lock().is_empty());
    }

    #[test]
    fn full_node_holds_back_only_connections_with_much_unread() {
        let node = Arc::<NodeUnread>::default();
        let unread: Vec<_> = (1..=33).map(|number| node.unread_of(number)).collect();
        unread.iter().for_each(|it| it.add(LEASE_CONNECTION_UNREAD_BYTES_MAX));
        assert!(unread.iter().all(|it| it.is_too_much()));
        let reads = node.unread_of(99);
        reads.add(LEASE_CONNECTION_UNREAD_BYTES_ALWAYS);
        assert!(!reads.is_too_much());
        reads.add(1);
        assert!(reads.is_too_much());
        reads.hold_back();
        assert!(reads.read(LEASE_CONNECTION_UNREAD_BYTES_ALWAYS / 2 + 1));
        assert!(reads.has_room() && !unread[0].has_room());
    }
}
