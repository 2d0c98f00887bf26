//! Users of sessions: the node of a session remembers its user, for a while after it ended.

use std::collections::VecDeque;

use crate::limits::HISTORY_SESSIONS_KEPT;
use base::HashMap;
use dispatch::SessionId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The user and client of a leasing session, for display.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionUser {
    pub protocol: Box<str>,
    /// Empty: not authenticated.
    pub user: Box<str>,
    /// The client's library and its version, if the client sent them.
    pub client: Box<str>,
    /// The client's address; empty where a session is shared by all clients.
    pub peer: Box<str>,
    /// The node's number of the connection; 0: the session belongs to no single connection.
    pub connection: u64,
}

/// Users of all open sessions of the node, and of those that ended last.
#[derive(Debug, Default)]
pub struct SessionUsers(Mutex<SessionUserTable>);

#[derive(Debug, Default)]
struct SessionUserTable {
    open: HashMap<SessionId, SessionUser>,
    /// The oldest first.
    ended: VecDeque<(SessionId, SessionUser)>,
}

impl SessionUsers {
    pub fn begin(&self, session: SessionId, user: SessionUser) {
        self.0.lock().open.insert(session, user);
    }

    pub fn end(&self, session: SessionId) {
        let mut known = self.0.lock();
        let Some(user) = known.open.remove(&session) else { return };
        if known.ended.len() == HISTORY_SESSIONS_KEPT {
            known.ended.pop_front();
        }
        known.ended.push_back((session, user));
    }

    /// `None`: forgotten, or not a session of this node.
    pub fn of(&self, session: SessionId) -> Option<SessionUser> {
        let known = self.0.lock();
        let ended = || known.ended.iter().find(|(id, _)| *id == session).map(|(_, user)| user);
        known.open.get(&session).or_else(ended).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_last_ended_sessions_are_remembered() {
        let users = SessionUsers::default();
        let user = |name: &str| SessionUser { user: name.into(), ..SessionUser::default() };
        for session in 1..=HISTORY_SESSIONS_KEPT as u64 + 2 {
            users.begin(session, user("ada"));
            if session > 1 {
                users.end(session);
            }
        }
        assert_eq!(users.of(1), Some(user("ada")), "it is open");
        assert_eq!(users.of(2), None, "it is too long ago");
        assert_eq!(users.of(3), Some(user("ada")));
        users.end(77_777);
        assert_eq!(users.of(77_777), None);
    }
}
