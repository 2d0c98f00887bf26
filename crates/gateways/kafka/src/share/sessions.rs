//! Share sessions (KIP-932): what a member fetches is remembered between its requests, and so is
//! what it holds.
//!
//! A session is the member's claim on records: behind each is one [`LeaseSession`], and when the one
//! ends so does the other, and everything that the member held is available again. It ends when the
//! member says so, when it begins a new one, and when its connection is gone.

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
use crate::fetch_sessions::next_epoch;

/// `share_session_epoch` of a request that ends its session.
pub(crate) const FINAL_EPOCH: i32 = -1;
/// `share_session_epoch` of a fetch that begins a session.
pub(crate) const INITIAL_EPOCH: i32 = 0;

/// Partitions of all sessions together: each takes some 30 bytes.
const PARTITIONS_MAX: usize = 1_000_000;

/// Whose session it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ShareKey {
    pub(crate) group: StrBytes,
    pub(crate) member: StrBytes,
}

/// What the member fetches of one topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareTopic {
    pub(crate) partitions: BTreeSet<i32>,
    /// What is wrong with it, as the member was last told.
    pub(crate) told: Option<ResponseError>,
}

#[derive(Debug)]
pub(crate) struct ShareSession {
    /// What the next request must say.
    epoch: i32,
    pub(crate) topics: BTreeMap<Uuid, ShareTopic>,
    /// Which topic comes first in the next fetch, so that each has its turn.
    pub(crate) turn: usize,
    pub(crate) leases: LeaseSession,
    partitions: usize,
    /// Of all sessions.
    all_partitions: Arc<AtomicUsize>,
}

/// Whose a session is that begins on this connection, for who looks for a record.
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

    /// Partitions are remembered whether or not they exist, so there is a bound.
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

    /// Takes a request's epoch in.
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
struct Known {
    /// The connection that began it.
    connection: u64,
    session: Arc<SessionMutex<ShareSession>>,
}

/// All share sessions of the node.
#[derive(Debug, Default)]
pub(crate) struct ShareSessions {
    known: Mutex<HashMap<ShareKey, Known>>,
    partitions: Arc<AtomicUsize>,
}

impl ShareSessions {
    /// Begins a member's session; a former one of it ends. `None` when there are too many.
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
        sessions.insert(key, Known { connection, session });
        drop(sessions);
        // Outside of the lock: it may hold much.
        drop(former);
        guard
    }

    /// Finds the session that a request goes on with, and takes its epoch in.
    pub(crate) fn go_on(
        &self,
        key: &ShareKey,
        epoch: i32,
    ) -> Result<OwnedMutexGuard<ShareSession>, Fault> {
        let found = self.known.lock().get(key).map(|known| Arc::clone(&known.session));
        let found = found.ok_or_else(|| Fault::plain(ResponseError::ShareSessionNotFound))?;
        // A request that is still under way, from a connection that the client gave up, holds it.
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

    /// Ends a session if this connection began it: the member may have come back on another one.
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

/// The sessions that one connection began: they end with it.
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
