//! Share sessions (KIP-932): the broker remembers a member's partitions and leases between its requests.
//!
//! Each session has one [`LeaseSession`]. When the session ends, so does the lease session, and all records
//! leased to the member are available again. A session ends when the member closes it, when the member opens
//! a new one, and when its connection is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{HashMap, HashSet};
use broker::LeaseSession;
use broker::delivery::SessionUser;
use gateway::Connection;
use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tokio::sync::{Mutex as SessionMutex, OwnedMutexGuard};
use uuid::Uuid;

use crate::errors::Fault;
use crate::state::fetch_sessions::next_epoch;

/// `share_session_epoch` of a request that ends its session.
pub(crate) const FINAL_EPOCH: i32 = -1;
/// `share_session_epoch` of a fetch that begins a session.
pub(crate) const INITIAL_EPOCH: i32 = 0;

/// Limit of partitions over all sessions: each takes some 30 bytes.
const PARTITIONS_MAX: usize = 1_000_000;

/// The member that owns a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ShareKey {
    pub(crate) group: StrBytes,
    pub(crate) member: StrBytes,
}

/// A member's partitions of one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareTopic {
    pub(crate) partitions: BTreeSet<i32>,
    /// The topic's fault that the member received last.
    pub(crate) told: Option<ResponseError>,
}

#[derive(Debug)]
pub(crate) struct ShareSession {
    /// Epoch that the next request must have.
    epoch: i32,
    pub(crate) topics: BTreeMap<Uuid, ShareTopic>,
    /// Index of the topic that the next fetch reads first, so that topics take turns.
    pub(crate) turn: usize,
    pub(crate) leases: LeaseSession,
    partitions: usize,
    /// Total over all sessions.
    all_partitions: Arc<AtomicUsize>,
}

/// The user of a session on this connection, as the history of a record shows it.
pub(crate) fn session_user(connection: &Connection) -> SessionUser {
    SessionUser {
        protocol: connection.protocol().into(),
        user: connection.user().into(),
        client: connection.client().into(),
        peer: connection.peer().to_string().into(),
        connection: connection.id(),
    }
}

impl ShareSession {
    fn new(leases: LeaseSession, all_partitions: Arc<AtomicUsize>) -> Self {
        let topics = BTreeMap::new();
        let epoch = INITIAL_EPOCH + 1;
        Self { epoch, topics, turn: 0, leases, partitions: 0, all_partitions }
    }

    /// Adds a partition, whether it exists or not; therefore their number is bounded.
    pub(crate) fn add(&mut self, topic: Uuid, partition: i32) -> Result<(), Fault> {
        if self.all_partitions.load(Ordering::Relaxed) >= PARTITIONS_MAX {
            return Err(Fault::new(
                ResponseError::ShareSessionLimitReached,
                format!("share sessions have {PARTITIONS_MAX} partitions, which is the limit"),
            ));
        }
        if self.topics.entry(topic).or_default().partitions.insert(partition) {
            self.partitions += 1;
            self.all_partitions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn forget(&mut self, topic: Uuid, partition: i32) {
        if let Some(known) = self.topics.get_mut(&topic) {
            if known.partitions.remove(&partition) {
                self.partitions -= 1;
                self.all_partitions.fetch_sub(1, Ordering::Relaxed);
            }
            if known.partitions.is_empty() {
                self.topics.remove(&topic);
            }
        }
    }

    /// Checks a request's epoch, and advances it.
    fn advance(&mut self, epoch: i32) -> Result<(), Fault> {
        if epoch == FINAL_EPOCH {
            return Ok(());
        }
        if epoch != self.epoch {
            return Err(Fault::plain(ResponseError::InvalidShareSessionEpoch));
        }
        self.epoch = next_epoch(epoch);
        Ok(())
    }
}

impl Drop for ShareSession {
    fn drop(&mut self) {
        self.all_partitions.fetch_sub(self.partitions, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct SessionEntry {
    /// The connection that began it.
    connection: u64,
    session: Arc<SessionMutex<ShareSession>>,
}

/// All share sessions of the node.
#[derive(Debug, Default)]
pub(crate) struct ShareSessions {
    known: Mutex<HashMap<ShareKey, SessionEntry>>,
    partitions: Arc<AtomicUsize>,
}

impl ShareSessions {
    /// Begins a member's session, and ends its former one. Returns `None` if there are too many sessions.
    pub(crate) fn begin(
        &self,
        key: ShareKey,
        connection: u64,
        sessions_max: usize,
        leases: impl FnOnce() -> LeaseSession,
    ) -> Option<OwnedMutexGuard<ShareSession>> {
        let mut sessions = self.known.lock();
        let former = sessions.remove(&key);
        if sessions.len() >= sessions_max {
            return None;
        }
        let session =
            Arc::new(SessionMutex::new(ShareSession::new(leases(), Arc::clone(&self.partitions))));
        let guard = Arc::clone(&session).try_lock_owned().ok();
        sessions.insert(key, SessionEntry { connection, session });
        drop(sessions);
        // Outside of the lock: it may hold much.
        drop(former);
        guard
    }

    /// Finds the session of a request, and advances its epoch.
    pub(crate) fn resume(
        &self,
        key: &ShareKey,
        epoch: i32,
    ) -> Result<OwnedMutexGuard<ShareSession>, Fault> {
        let found = self.known.lock().get(key).map(|known| Arc::clone(&known.session));
        let found = found.ok_or_else(|| Fault::plain(ResponseError::ShareSessionNotFound))?;
        // A request in flight, on a connection that the client abandoned, still holds it.
        let Ok(mut session) = found.try_lock_owned() else {
            return Err(Fault::plain(ResponseError::InvalidShareSessionEpoch));
        };
        session.advance(epoch)?;
        Ok(session)
    }

    pub(crate) fn end(&self, key: &ShareKey) {
        let ended = self.known.lock().remove(key);
        // Outside of the lock: it may hold much.
        drop(ended);
    }

    /// Ends a session if this connection began it: the member may have reconnected meanwhile.
    fn end_of(&self, key: &ShareKey, connection: u64) {
        let mut sessions = self.known.lock();
        let ended = match sessions.get(key) {
            Some(known) if known.connection == connection => sessions.remove(key),
            _ => None,
        };
        drop(sessions);
        drop(ended);
    }
}

/// Sessions that one connection began, which end with it.
#[derive(Debug, Default)]
pub(crate) struct OwnShareSessions(Mutex<HashSet<ShareKey>>);

impl OwnShareSessions {
    pub(crate) fn add(&self, key: ShareKey) {
        self.0.lock().insert(key);
    }

    pub(crate) fn remove(&self, key: &ShareKey) {
        self.0.lock().remove(key);
    }

    pub(crate) fn end_all(&self, connection: u64, sessions: &ShareSessions) {
        for key in self.0.lock().drain() {
            sessions.end_of(&key, connection);
        }
    }
}
