//! The live connections of a node, whatever their protocol.
//!
//! Each has a number that no other connection of the node has had since its start: logs, sessions and
//! operators mean the same one by it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// All of them. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Live>);

#[derive(Debug, Default)]
struct Live {
    last_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Connection>>,
}

/// One of them. Clones are the same.
#[derive(Clone, Debug)]
pub struct Connection(Arc<State>);

#[derive(Debug)]
struct State {
    id: u64,
    protocol: &'static str,
    peer: SocketAddr,
}

/// While this is held a connection is among the live ones.
#[derive(Debug)]
pub struct Registered {
    connection: Connection,
    connections: Connections,
}

impl Connections {
    /// Adds one, with a number of its own.
    pub fn register(&self, protocol: &'static str, peer: SocketAddr) -> Registered {
        let id = self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Connection(Arc::new(State { id, protocol, peer }));
        self.0.by_id.lock().insert(id, connection.clone());
        Registered { connection, connections: self.clone() }
    }

    /// In the order in which they came.
    pub fn list(&self) -> Vec<Connection> {
        self.0.by_id.lock().values().cloned().collect()
    }
}

impl Connection {
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub fn protocol(&self) -> &'static str {
        self.0.protocol
    }

    pub fn peer(&self) -> SocketAddr {
        self.0.peer
    }
}

impl Registered {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.0.by_id.lock().remove(&self.connection.id());
    }
}
