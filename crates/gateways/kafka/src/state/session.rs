//! State of one client connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::Rights;
use access::quotas::{Meter, Protocol, Quotas};
use coordinator::Text;
use gateway::Connection;
use parking_lot::Mutex;

use crate::state::fetch_sessions::OwnSessions;
use crate::state::login::Login;
use crate::state::share_sessions::{OwnShareSessions, ShareKey};
use crate::state::{Gateway, PROTOCOL};

/// One client connection. [`Connection::client`] returns the client's library and its version (KIP-511).
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) fetch_sessions: OwnSessions,
    pub(crate) share_sessions: OwnShareSessions,
    pub(crate) login: Login,
    pub(crate) rights: CachedRights,
    /// Meter of the quotas that apply to the session.
    pub(crate) meter: Meter,
    encrypted: bool,
    slow_checks: AtomicBool,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        encrypted: bool,
        login: Login,
        quotas: &Quotas,
    ) -> Self {
        Self {
            connection,
            meter: Meter::new(quotas, Protocol::Kafka),
            login,
            rights: CachedRights::default(),
            encrypted,
            fetch_sessions: OwnSessions::default(),
            share_sessions: OwnShareSessions::default(),
            slow_checks: AtomicBool::new(false),
        }
    }

    /// A session without a client.
    #[cfg(test)]
    pub(crate) fn without_client() -> Arc<Self> {
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let registered = gateway::Connections::default().register("kafka", peer, peer);
        let (login, quotas) = (Login::new(false), Quotas::default());
        Arc::new(Self::new(registered.connection().clone(), false, login, &quotas))
    }

    /// Whether the connection uses TLS: its client is referred to TLS ports only.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether a produce request of this session took long to check.
    pub(crate) fn has_slow_checks(&self) -> bool {
        self.slow_checks.load(Ordering::Relaxed)
    }

    pub(crate) fn note_slow_checks(&self) {
        self.slow_checks.store(true, Ordering::Relaxed);
    }

    /// Drops the state kept for the connection, which is closed.
    pub(crate) fn end(&self, gateway: &Gateway) {
        self.fetch_sessions.drop_all(&gateway.fetch_sessions);
        self.share_sessions.end_all(self.connection.id(), &gateway.share_sessions);
    }

    /// Ends a member's share session: its leased records are available again.
    pub(crate) fn end_share_session(&self, gateway: &Gateway, key: &ShareKey) {
        self.share_sessions.remove(key);
        gateway.share_sessions.end(key);
    }

    /// The client's host as Kafka writes it: a slash and the address.
    pub(crate) fn client_host(&self) -> Text {
        format!("/{}", self.connection.peer().ip()).into()
    }
}

/// A session's rights, cached until a user or a rule changes.
#[derive(Debug, Default)]
pub(crate) struct CachedRights(Mutex<Option<Arc<Rights>>>);

impl CachedRights {
    pub(crate) fn get(&self, gateway: &Gateway, session: &Session) -> Arc<Rights> {
        let mut held = self.0.lock();
        let principal = session.login.principal();
        let users = gateway.options.users.as_ref();
        let is_current = |rights: &Arc<Rights>| match (principal, users) {
            (Some(_), Some(users)) => rights.is_current(users),
            _ => rights.is_everything(),
        };
        if let Some(rights) = held.as_ref().filter(|rights| is_current(rights)) {
            return Arc::clone(rights);
        }
        let ip = session.connection.peer().ip();
        let rights = match (principal, users) {
            (Some(principal), Some(users)) => users.rights(principal, ip),
            // Only a port with optional login admits a session without a principal.
            _ => Rights::everything(),
        };
        let name = principal.map(|principal| &**principal.name());
        let caller = users.and_then(|users| users.audit().caller(name, ip, PROTOCOL));
        let rights = rights.audited_as(caller);
        Arc::clone(held.insert(Arc::new(rights)))
    }
}
