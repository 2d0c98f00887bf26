//! Login state of a session.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::{Principal, Proof};
use gateway::{Connection, Socket};
use parking_lot::Mutex;
use scram::Hash;
use tokio::time::Instant;

use crate::limits::LOGIN_WITHIN;
use crate::options::GatewayOptions;
use crate::state::PROTOCOL;

const PLAIN: &str = "PLAIN";
const OAUTHBEARER: &str = "OAUTHBEARER";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Plain,
    Scram(Hash),
    /// A token (RFC 7628).
    Bearer,
}

impl Mechanism {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            PLAIN => Some(Self::Plain),
            OAUTHBEARER => Some(Self::Bearer),
            name => Hash::from_mechanism(name).map(Self::Scram),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => PLAIN,
            Self::Scram(hash) => hash.mechanism(),
            Self::Bearer => OAUTHBEARER,
        }
    }
}

/// Login state of a session.
#[derive(Debug)]
pub(crate) struct Login {
    /// Whether requests other than those of a login are accepted.
    open: AtomicBool,
    /// Whether messages come without requests around them.
    bare: AtomicBool,
    /// The user by certificate, until the client logs in.
    certified: Option<Principal>,
    /// The session's user, fixed once set.
    principal: OnceLock<Principal>,
    /// Whether the login expires.
    ends: AtomicBool,
    /// The connection is closed after the pending response.
    failed: AtomicBool,
    progress: Mutex<Progress>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Progress {
    step: Step,
    /// When the login expires.
    ends: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) enum Step {
    /// No mechanism is chosen.
    #[default]
    Idle,
    Chosen(Mechanism),
    /// Waiting for the client's proof.
    Challenged(Hash, Box<Proof>),
    /// The token was refused; waiting for the client's acknowledgement.
    Refused,
}

impl Login {
    /// Login of a new connection.
    pub(crate) fn of(
        options: &GatewayOptions,
        socket: &mut Socket,
        connection: &Connection,
    ) -> Self {
        let login = Self::new(options.login_is_required(socket.is_encrypted()));
        let Some(users) = &options.users else { return login };
        let peer = connection.peer().ip();
        let Some(certified) = users.certify(socket.certificate(), peer) else { return login };
        match users.admit_certified(&certified, peer) {
            Ok(principal) => {
                connection.set_user(principal.name());
                users.audit().logged_in(principal.name(), peer, PROTOCOL, false);
                login.certified_as(principal, options.login.session_max)
            }
            Err(error) => {
                users.note_refused(peer, &error.to_string());
                login
            }
        }
    }

    /// Authenticates by certificate: open from the start, until the certificate expires.
    fn certified_as(mut self, principal: Principal, session_max: Option<Duration>) -> Self {
        self.lasts(lifetime_of(&principal, session_max));
        self.open = AtomicBool::new(true);
        self.certified = Some(principal);
        self
    }

    pub(crate) fn new(required: bool) -> Self {
        Self {
            open: AtomicBool::new(!required),
            bare: AtomicBool::new(false),
            certified: None,
            ends: AtomicBool::new(false),
            principal: OnceLock::new(),
            failed: AtomicBool::new(false),
            progress: Mutex::default(),
            began: Instant::now(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether the next frame is a bare SASL message.
    pub(crate) fn takes_bare_messages(&self) -> bool {
        self.bare.load(Ordering::Acquire)
    }

    /// The deadline of a required login.
    pub(crate) fn due(&self) -> Instant {
        self.began + LOGIN_WITHIN
    }

    /// Fixes the user by certificate at the first request that needs a user.
    pub(crate) fn bind_certified(&self) {
        if let Some(certified) = &self.certified {
            self.principal.get_or_init(|| certified.clone());
        }
    }

    /// Whether the client is authenticated, so that no deadline runs.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.certified.is_some() || self.principal.get().is_some()
    }

    /// The logged-in user.
    pub(crate) fn principal(&self) -> Option<&Principal> {
        self.principal.get()
    }

    pub(crate) fn begin(&self, mechanism: Mechanism, bare: bool) {
        self.progress.lock().step = Step::Chosen(mechanism);
        self.open.store(false, Ordering::Release);
        self.bare.store(bare, Ordering::Release);
    }

    /// Whether no mechanism is chosen.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.progress.lock().step, Step::Idle)
    }

    pub(crate) fn next(&self) -> Step {
        std::mem::take(&mut self.progress.lock().step)
    }

    /// Sets the step that the client's next message continues.
    pub(crate) fn wait_for(&self, step: Step) {
        self.progress.lock().step = step;
    }

    /// Completes a login. Returns false if the session belongs to another user already.
    pub(crate) fn done(&self, principal: Principal, lasts: Option<Duration>) -> bool {
        if self.principal.get_or_init(|| principal.clone()).name() != principal.name() {
            return false;
        }
        self.lasts(lasts);
        self.bare.store(false, Ordering::Release);
        self.open.store(true, Ordering::Release);
        true
    }

    fn lasts(&self, lasts: Option<Duration>) {
        self.progress.lock().ends = lasts.map(|lasts| Instant::now() + lasts);
        self.ends.store(lasts.is_some(), Ordering::Release);
    }

    /// Whether a login failed: clients retry over another connection.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether the login expired before this request.
    pub(crate) fn is_over(&self) -> bool {
        let is_past = |ends| Instant::now() >= ends;
        self.ends.load(Ordering::Acquire) && self.progress.lock().ends.is_some_and(is_past)
    }
}

/// Lifetime of a login.
pub(crate) fn lifetime_of(
    principal: &Principal,
    session_max: Option<Duration>,
) -> Option<Duration> {
    [principal.ends_in(), session_max].into_iter().flatten().min()
}
