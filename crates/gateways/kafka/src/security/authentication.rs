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
use std::time::Duration;

use access::{LoginError, Principal, Users, sasl};
use access_rules::OPERATOR;
use bytes::{BufMut, BytesMut};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use scram::Hash;

use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::login::{Mechanism, Step, lifetime_of};
use crate::state::{Gateway, PROTOCOL, Session};

/// Reply to a client whose token is refused (RFC 7628, 3.2.2), as Kafka writes it. The client acknowledges
/// with [`UNDERSTOOD`], and is then refused as by other mechanisms.
const REFUSED_TOKEN: &[u8] = br#"{"status":"invalid_token"}"#;
const UNDERSTOOD: &[u8] = b"\x01";
/// First version in which messages come in requests of their own.
const WRAPPED_SINCE: i16 = 1;

/// Checks that a request is permitted in the current state of the login.
pub(crate) fn check(gateway: &Gateway, session: &Session, key: i16) -> Result<(), RequestError> {
    let login = &session.login;
    if [ApiKey::SaslHandshake, ApiKey::SaslAuthenticate].iter().any(|api| *api as i16 == key) {
        return Ok(());
    }
    let asks_for_versions = key == ApiKey::ApiVersions as i16;
    if !login.is_open() {
        // ApiVersions may come first, but not once a mechanism is chosen.
        let may_ask = asks_for_versions && login.is_idle();
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
            session.login.wait_for(Step::Challenged(hash, Box::new(proof)));
            Ok(LoginReply::Message(answer.into_bytes()))
        }
        Step::Chosen(Mechanism::Bearer) => match bearer(users, message, peer).await {
            Ok(principal) => logged_in(gateway, session, principal, Vec::new()),
            Err(_) => {
                session.login.wait_for(Step::Refused);
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
    let lasts = lifetime_of(&principal, gateway.options.login.session_max);
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
