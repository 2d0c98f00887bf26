//! Who a client is: SASL, as Kafka's clients speak it.
//!
//! ```text
//! SaslHandshake v1     which mechanism          SaslHandshake v0   which mechanism
//! SaslAuthenticate     its messages, in turn    its messages, each with only its length in front
//! ```
//!
//! Where clients must log in, nothing else is listened to before but ApiVersions, frames are small, and there is little
//! time. A log-in runs to its end before the next frame is read, so that what a client sends behind it is judged as
//! what it was when it was sent. A client may log in anew as the same user, and must where a session lasts for so long
//! only (KIP-368).
//!
//! On a port that encrypts a client may be somebody by its certificate, and need not log in. Who does all the same is who
//! it logs in as, if it has asked for nothing before: from the first request on that somebody has to be behind, a
//! connection is of one user for good.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::{LoginError, OPERATOR, Principal, Proof, Users, sasl};
use base::limits::LOGIN_WITHIN;
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
/// What a client is told whose token is refused (RFC 7628, 3.2.2), in Kafka's words. It says [`UNDERSTOOD`] and is then
/// refused as by other mechanisms.
const REFUSED_TOKEN: &[u8] = br#"{"status":"invalid_token"}"#;
const UNDERSTOOD: &[u8] = b"\x01";
/// The first version in which messages come in requests of their own.
const WRAPPED_SINCE: i16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mechanism {
    Plain,
    Scram(Hash),
    /// A token (RFC 7628).
    Bearer,
}

impl Mechanism {
    fn of_name(name: &str) -> Option<Self> {
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

/// How far a session has come with its log-in.
#[derive(Debug)]
pub(crate) struct Login {
    /// Whether other requests than those of a log-in are listened to.
    open: AtomicBool,
    /// Whether messages come without requests around them.
    bare: AtomicBool,
    /// Who the client is by its certificate, unless it logs in.
    certified: Option<Principal>,
    /// Who it is for good.
    principal: OnceLock<Principal>,
    /// Whether there is a time at which it must have logged in anew.
    ends: AtomicBool,
    /// The connection is closed once this was answered.
    failed: AtomicBool,
    progress: Mutex<Progress>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Progress {
    step: Step,
    /// When the client must have logged in anew.
    ends: Option<Instant>,
}

#[derive(Debug, Default)]
enum Step {
    /// No mechanism is chosen.
    #[default]
    Idle,
    Chosen(Mechanism),
    /// The client's proof is waited for.
    Challenged(Hash, Box<Proof>),
    /// The token was refused, and the client is to say that it has heard so.
    Refused,
}

impl Login {
    /// Of somebody who connects now.
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

    /// Open from the start, and until the certificate ends.
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

    /// Whether the next frame is a message of SASL and nothing else.
    pub(crate) fn takes_bare_messages(&self) -> bool {
        self.bare.load(Ordering::Acquire)
    }

    /// Until when a client that must log in may take its time.
    pub(crate) fn due(&self) -> Instant {
        self.began + LOGIN_WITHIN
    }

    /// Something was asked for that somebody has to be behind.
    fn act(&self) {
        if let Some(certified) = &self.certified {
            self.principal.get_or_init(|| certified.clone());
        }
    }

    /// Whether the client may take its time: it is somebody.
    pub(crate) fn is_somebody(&self) -> bool {
        self.certified.is_some() || self.principal.get().is_some()
    }

    /// Who is logged in.
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

    /// Somebody has proved who it is. False: it was somebody else before, which may not be.
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

    /// Whether a log-in failed: a client that tries again does so with another connection.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether the client should have logged in anew before it sent this.
    fn is_over(&self) -> bool {
        self.ends.load(Ordering::Acquire) && self.is_past_its_end()
    }

    fn is_past_its_end(&self) -> bool {
        self.progress.lock().ends.is_some_and(|ends| Instant::now() >= ends)
    }
}

/// For how long somebody who has logged in may go on without doing so anew.
fn session_of(principal: &Principal, session_max: Option<Duration>) -> Option<Duration> {
    [principal.ends_in(), session_max].into_iter().flatten().min()
}

/// Whether a request is listened to now.
pub(crate) fn check(gateway: &Gateway, session: &Session, key: i16) -> Result<(), RequestError> {
    let login = &session.login;
    if [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate].iter().any(|api| *api as i16 == key) {
        return Ok(());
    }
    let asks_for_versions = key == ApiKey::ApiVersions as i16;
    if !login.is_open() {
        // What versions there are may be asked first, and once a mechanism is chosen no more.
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
        login.act();
    }
    Ok(())
}

/// What somebody who connects in this way may log in by. To say a password or a token takes a connection that nobody else
/// hears.
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
    let chosen = Mechanism::of_name(&message.mechanism).filter(|it| offered.contains(it));
    let Some(mechanism) = chosen else {
        session.login.fail();
        let code = ResponseError::UnsupportedSaslMechanism.code();
        return Response::encode(&head, &response.with_error_code(code));
    };
    session.login.begin(mechanism, head.version < WRAPPED_SINCE);
    Response::encode(&head, &response)
}

/// What is to be said to a client that goes on with its log-in.
enum Answer {
    Message(Vec<u8>),
    /// It is done, and lasts for so long.
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
        Ok(Answer::Message(bytes)) => response.with_auth_bytes(bytes.into()),
        Ok(Answer::LoggedIn(bytes, lasts)) => {
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

/// A message of SASL without a request around it. An error closes the connection: there is no word for it.
pub(crate) async fn bare(
    gateway: &Gateway,
    session: &Session,
    message: &[u8],
) -> Result<Response, RequestError> {
    let answer = step(gateway, session, message).await.map_err(|_| RequestError::LoginRefused)?;
    let (Answer::Message(bytes) | Answer::LoggedIn(bytes, _)) = answer;
    let mut frame = BytesMut::with_capacity(4 + bytes.len());
    frame.put_i32(bytes.len() as i32);
    frame.put_slice(&bytes);
    Ok(Response::from_chunks(vec![frame.freeze()]))
}

async fn step(gateway: &Gateway, session: &Session, message: &[u8]) -> Result<Answer, Fault> {
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
            Ok(Answer::Message(answer.into_bytes()))
        }
        Step::Chosen(Mechanism::Bearer) => match bearer(users, message, peer).await {
            Ok(principal) => logged_in(gateway, session, principal, Vec::new()),
            Err(_) => {
                session.login.refused();
                Ok(Answer::Message(REFUSED_TOKEN.to_vec()))
            }
        },
        // Whatever it says but that it has heard is no better.
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
    let token = gateway.options.operator_token.as_deref();
    if credentials.name == OPERATOR
        && token.is_some_and(|token| access::is_same(token, &credentials.password))
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
            let reason = refused("it wants to act as somebody else than its token names");
            Err(users.refuse("", peer, reason).await)
        }
    }
}

fn logged_in(
    gateway: &Gateway,
    session: &Session,
    principal: Principal,
    message: Vec<u8>,
) -> Result<Answer, Fault> {
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
    Ok(Answer::LoggedIn(message, lasts))
}

/// Kafka's words, which tell nobody which users there are.
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
