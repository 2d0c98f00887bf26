//! Authentication of clients: SASL as Kafka's clients speak it.
//!
//! ```text
//! SaslHandshake v1     the mechanism            SaslHandshake v0   the mechanism
//! SaslAuthenticate     its messages, in turn    its messages, each with only its length in front
//! ```
//!
//! Where login is required, only ApiVersions may precede it, frames are small, and time is short. A login
//! completes before the next frame is read, so that later requests run as the authenticated user. A client
//! may log in again as the same user, and must do so where the lifetime of sessions is limited (KIP-368).
//!
//! On a TLS port, a client may be authenticated by its certificate, and needs no login. If it logs in
//! nevertheless before its first other request, the login decides the user. From the first request that needs
//! a user, a connection's user is fixed.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::limits::LOGIN_WITHIN;
use access::{LoginError, Principal, Proof, Users, sasl};
use access_rules::OPERATOR;
use bytes::{BufMut, BytesMut};
use gateway::{Connection, Socket};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use scram::Hash;
use tokio::time::Instant;

use crate::errors::Fault;
use crate::gateway::{Gateway, PROTOCOL, Session};
use crate::request::{Request, RequestError};
use crate::response::Response;

const PLAIN: &str = "PLAIN";
const OAUTHBEARER: &str = "OAUTHBEARER";
/// Reply to a client whose token is refused (RFC 7628, 3.2.2), as Kafka writes it. The client acknowledges
/// with [`UNDERSTOOD`], and is then refused as by other mechanisms.
const REFUSED_TOKEN: &[u8] = br#"{"status":"invalid_token"}"#;
const UNDERSTOOD: &[u8] = b"\x01";
/// First version in which messages come in requests of their own.
const WRAPPED_SINCE: i16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mechanism {
    Plain,
    Scram(Hash),
    /// A token (RFC 7628).
    Bearer,
}

impl Mechanism {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            PLAIN => Some(Self::Plain),
            OAUTHBEARER => Some(Self::Bearer),
            name => Hash::from_mechanism(name).map(Self::Scram),
        }
    }

    fn name(self) -> &'static str {
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
enum Step {
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
    pub(crate) fn of(gateway: &Gateway, socket: &mut Socket, connection: &Connection) -> Self {
        let options = &gateway.options;
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
        self.lasts(session_of(&principal, session_max));
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
    fn bind_certified(&self) {
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

    fn begin(&self, mechanism: Mechanism, bare: bool) {
        self.progress.lock().step = Step::Chosen(mechanism);
        self.open.store(false, Ordering::Release);
        self.bare.store(bare, Ordering::Release);
    }

    fn next(&self) -> Step {
        std::mem::take(&mut self.progress.lock().step)
    }

    fn refused(&self) {
        self.progress.lock().step = Step::Refused;
    }

    fn challenged(&self, hash: Hash, proof: Proof) {
        self.progress.lock().step = Step::Challenged(hash, Box::new(proof));
    }

    /// Completes a login. Returns false if the session belongs to another user already.
    fn done(&self, principal: Principal, lasts: Option<Duration>) -> bool {
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

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether the login expired before this request.
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Acquire) && self.is_past_its_end()
    }

    fn is_past_its_end(&self) -> bool {
        self.progress.lock().ends.is_some_and(|ends| Instant::now() >= ends)
    }
}

/// Lifetime of a login.
fn session_of(principal: &Principal, session_max: Option<Duration>) -> Option<Duration> {
    [principal.ends_in(), session_max].into_iter().flatten().min()
}

/// Checks that a request is permitted in the current state of the login.
pub(crate) fn check(gateway: &Gateway, session: &Session, key: i16) -> Result<(), RequestError> {
    let login = &session.login;
    if [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate].iter().any(|api| *api as i16 == key) {
        return Ok(());
    }
    let asks_for_versions = key == ApiKey::ApiVersions as i16;
    if !login.is_open() {
        // ApiVersions may come first, but not once a mechanism is chosen.
        let may_ask = asks_for_versions && matches!(login.progress.lock().step, Step::Idle);
        if may_ask {
            return Ok(());
        }
        if let Some(users) = &gateway.options.users {
            users.note_refused(session.connection.peer().ip(), "it asks before it logs in");
        }
        return Err(RequestError::NotLoggedIn(key));
    }
    if login.is_over() {
        return Err(RequestError::LoginEnded);
    }
    if !asks_for_versions {
        login.bind_certified();
    }
    Ok(())
}

/// Mechanisms offered on this connection. A password or a token needs a connection that cannot be overheard.
fn offered(gateway: &Gateway, session: &Session) -> Vec<Mechanism> {
    let Some(users) = &gateway.options.users else { return Vec::new() };
    let mut offered: Vec<_> = Hash::ALL.into_iter().map(Mechanism::Scram).collect();
    let is_private =
        session.is_encrypted() || session.connection.peer().ip().to_canonical().is_loopback();
    if is_private || gateway.options.login.plaintext {
        offered.push(Mechanism::Plain);
        offered.extend(users.takes_tokens().then_some(Mechanism::Bearer));
    }
    offered
}

pub(crate) fn handshake(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: SaslHandshakeRequest = request.decode()?;
    let Request { head, session, .. } = request;
    let offered = offered(gateway, &session);
    let mechanisms = offered.iter().map(|it| StrBytes::from_static_str(it.name())).collect();
    let response = SaslHandshakeResponse::default().with_mechanisms(mechanisms);
    let chosen = Mechanism::from_name(&message.mechanism).filter(|it| offered.contains(it));
    let Some(mechanism) = chosen else {
        session.login.fail();
        let code = ResponseError::UnsupportedSaslMechanism.code();
        return Response::encode(&head, &response.with_error_code(code));
    };
    session.login.begin(mechanism, head.version < WRAPPED_SINCE);
    Response::encode(&head, &response)
}

/// Reply to a client's login message.
enum LoginReply {
    Message(Vec<u8>),
    /// The login is complete; the duration is its lifetime.
    LoggedIn(Vec<u8>, Option<Duration>),
}

pub(crate) async fn authenticate(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: SaslAuthenticateRequest = request.decode()?;
    let Request { head, session, .. } = request;
    let response = SaslAuthenticateResponse::default().with_error_message(None);
    let response = match step(gateway, &session, &message.auth_bytes).await {
        Ok(LoginReply::Message(bytes)) => response.with_auth_bytes(bytes.into()),
        Ok(LoginReply::LoggedIn(bytes, lasts)) => {
            let lifetime = lasts.map_or(0, |lasts| lasts.as_millis() as i64);
            response.with_auth_bytes(bytes.into()).with_session_lifetime_ms(lifetime)
        }
        Err(fault) => {
            session.login.fail();
            response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
        }
    };
    Response::encode(&head, &response)
}

/// Handles a SASL message without a request around it. An error closes the connection: the protocol has no
/// reply for it.
pub(crate) async fn bare(
    gateway: &Gateway,
    session: &Session,
    message: &[u8],
) -> Result<Response, RequestError> {
    let answer = step(gateway, session, message).await.map_err(|_| RequestError::LoginRefused)?;
    let (LoginReply::Message(bytes) | LoginReply::LoggedIn(bytes, _)) = answer;
    let mut frame = BytesMut::with_capacity(4 + bytes.len());
    frame.put_i32(bytes.len() as i32);
    frame.put_slice(&bytes);
    Ok(Response::from_chunks(vec![frame.freeze()]))
}

async fn step(gateway: &Gateway, session: &Session, message: &[u8]) -> Result<LoginReply, Fault> {
    let peer = session.connection.peer().ip();
    let Some(users) = &gateway.options.users else { return Err(out_of_turn()) };
    match session.login.next() {
        Step::Idle => Err(out_of_turn()),
        Step::Chosen(Mechanism::Plain) => {
            let principal = plain(gateway, users, session, message).await;
            let principal = principal.map_err(|_| refused(Mechanism::Plain))?;
            logged_in(gateway, session, principal, Vec::new())
        }
        Step::Chosen(Mechanism::Scram(hash)) => {
            let challenged = users.challenge(hash, message, peer).await;
            let (proof, answer) = challenged.map_err(|_| refused(Mechanism::Scram(hash)))?;
            session.login.challenged(hash, proof);
            Ok(LoginReply::Message(answer.into_bytes()))
        }
        Step::Chosen(Mechanism::Bearer) => match bearer(users, message, peer).await {
            Ok(principal) => logged_in(gateway, session, principal, Vec::new()),
            Err(_) => {
                session.login.refused();
                Ok(LoginReply::Message(REFUSED_TOKEN.to_vec()))
            }
        },
        // Any message but the acknowledgement is out of turn.
        Step::Refused if message == UNDERSTOOD => Err(refused(Mechanism::Bearer)),
        Step::Refused => Err(out_of_turn()),
        Step::Challenged(hash, proof) => {
            let proved = users.proved(*proof, message, peer).await;
            let (principal, answer) = proved.map_err(|_| refused(Mechanism::Scram(hash)))?;
            logged_in(gateway, session, principal, answer.into_bytes())
        }
    }
}

async fn plain(
    gateway: &Gateway,
    users: &Users,
    session: &Session,
    message: &[u8],
) -> Result<Principal, LoginError> {
    let peer = session.connection.peer().ip();
    let nobody = || LoginError::InvalidCredentials { user: String::new() };
    let credentials = match sasl::plain_as_oneself(message) {
        Ok(credentials) => credentials,
        Err(_) => return Err(users.refuse("", peer, nobody()).await),
    };
    if credentials.name == OPERATOR
        && gateway.options.nodes.accept_operator_token(&credentials.password)
    {
        return Ok(Principal::operator(users));
    }
    users.log_in(credentials, peer).await
}

async fn bearer(users: &Users, message: &[u8], peer: IpAddr) -> Result<Principal, LoginError> {
    let refused = |reason: &str| LoginError::Token { reason: Arc::from(reason) };
    let said = match sasl::bearer(message) {
        Ok(said) => said,
        Err(error) => return Err(users.refuse("", peer, refused(&error.to_string())).await),
    };
    let principal = users.log_in_by_token(said.token, peer).await?;
    match said.is_as(principal.name()) {
        true => Ok(principal),
        false => {
            let reason = refused("it wants to act as another user than its token names");
            Err(users.refuse("", peer, reason).await)
        }
    }
}

fn logged_in(
    gateway: &Gateway,
    session: &Session,
    principal: Principal,
    message: Vec<u8>,
) -> Result<LoginReply, Fault> {
    let name = Arc::clone(principal.name());
    let lasts = session_of(&principal, gateway.options.login.session_max);
    if !session.login.done(principal, lasts) {
        return Err(Fault::new(
            ResponseError::SaslAuthenticationFailed,
            "a session goes on as the user that it began as",
        ));
    }
    session.connection.set_user(&name);
    if let Some(users) = &gateway.options.users {
        let peer = session.connection.peer().ip();
        users.audit().logged_in(&name, peer, PROTOCOL, false);
    }
    Ok(LoginReply::LoggedIn(message, lasts))
}

/// Kafka's message, which does not reveal the names of users.
fn refused(mechanism: Mechanism) -> Fault {
    Fault::new(
        ResponseError::SaslAuthenticationFailed,
        format!(
            "Authentication failed during authentication due to invalid credentials with SASL \
             mechanism {}",
            mechanism.name()
        ),
    )
}

fn out_of_turn() -> Fault {
    Fault::new(ResponseError::IllegalSaslState, "a log-in begins with a SaslHandshake request")
}
