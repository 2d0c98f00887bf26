//! Limits shared by the consumers of a session, over all groups that it consumes from: they belong
//! to the driver, which passes them to each engine's dispatch.

use base::HashMap;

use crate::SessionId;

#[derive(Debug, Default)]
pub struct Pools {
    by_session: HashMap<SessionId, Pool>,
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    limit: u32,
    used: u32,
}

impl Pools {
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds the records that the session's consumers hold together; `None` = no bound. Records
    /// delivered without a bound do not count.
    pub fn set_limit(&mut self, session: SessionId, records: Option<u32>) {
        match records {
            None => {
                self.by_session.remove(&session);
            }
            Some(limit) => {
                self.by_session.entry(session).or_insert(Pool { limit, used: 0 }).limit = limit;
            }
        }
    }

    /// Removes a session that ended.
    pub fn remove(&mut self, session: SessionId) {
        self.by_session.remove(&session);
    }

    /// Records of the session's pool in use; `None` = it has no bound.
    pub fn used(&self, session: SessionId) -> Option<u32> {
        self.by_session.get(&session).map(|pool| pool.used)
    }

    pub(crate) fn has_room(&self, session: SessionId) -> bool {
        self.by_session.get(&session).is_none_or(|pool| pool.used < pool.limit)
    }

    /// Number of additional records that the session's consumers may hold.
    pub(crate) fn left(&self, session: SessionId) -> u32 {
        self.by_session.get(&session).map_or(u32::MAX, |pool| pool.limit.saturating_sub(pool.used))
    }

    /// Takes one record from the pool; returns false without a pool, so that nothing is given back
    /// later either.
    pub(crate) fn take(&mut self, session: SessionId) -> bool {
        match self.by_session.get_mut(&session) {
            Some(pool) => {
                pool.used += 1;
                true
            }
            None => false,
        }
    }

    pub(crate) fn give_back(&mut self, session: SessionId, records: u32) {
        if let Some(pool) = self.by_session.get_mut(&session) {
            pool.used = pool.used.saturating_sub(records);
        }
    }
}
