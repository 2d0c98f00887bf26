//! Authentication of requests, and their rights.
//!
//! Each request carries its credentials. The last right password of a user is cached as a cheap digest
//! ([`access::Users::log_in_at_once`]), so that only a user's first request costs a real hash. A browser that has
//! logged in on the console sends a cookie instead ([`crate::sessions`]). A request without either is identified by
//! its client certificate.

use std::sync::Arc;

use access::{AccessTarget, Audit, Credentials, Operation, Principal, Rights, Users};
use access_rules::OPERATOR;
use access_rules::acl::{Action, CLUSTER, Resource};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::connection::Peer;
use crate::front::{FrontEnd, Node};
use crate::problem::{Kind, Problem};
use crate::request::{FROM_CONSOLE, RequestId, is_management_path};
use crate::sessions::{self, ResumedSession};

const BASIC: &str = "basic";
const BEARER: &str = "bearer";
/// Protocol names in the audit.
const PROTOCOL: &str = "http";
const CONSOLE: &str = "console";

/// The client of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestClient {
    /// `None`: the client has not logged in, and need not.
    principal: Option<Principal>,
    rights: Arc<Rights>,
    peer: Peer,
}

impl RequestClient {
    fn of(principal: Principal, node: &Node, peer: &Peer) -> Self {
        peer.connection.set_user(principal.name());
        let ip = peer.connection.peer().ip();
        let rights = node.users.as_ref().map(|users| users.rights(&principal, ip));
        let rights = Arc::new(rights.unwrap_or_else(Rights::everything));
        Self { principal: Some(principal), rights, peer: peer.clone() }
    }

    /// Enables the audit for this request, if there is one.
    fn enable_audit(&mut self, node: &Node, request: &Request) {
        let Some(audit) = node.users.as_ref().map(Users::audit).filter(Audit::is_on) else {
            return;
        };
        let ip = self.peer.connection.peer().ip();
        if let Some(name) = self.name() {
            audit.logged_in(name, ip, PROTOCOL, true);
        }
        let from_console = request.headers().contains_key(&FROM_CONSOLE);
        let protocol = if from_console { CONSOLE } else { PROTOCOL };
        let path = request.uri().path();
        let id = request.extensions().get::<RequestId>().map(|id| id.0.clone());
        let caller = audit.caller(self.name(), ip, protocol);
        let caller = caller.map(|caller| {
            let asked = caller.by(format!("{} {path}", request.method()), id);
            // Reads by programs are not audited, those by people are.
            asked.looking(from_console || is_management_path(path))
        });
        // The rights are not shared yet.
        if let Some(rights) = Arc::get_mut(&mut self.rights) {
            *rights = rights.clone().audited_as(caller);
        }
    }

    /// Name of the logged-in user, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| &**principal.name())
    }

    /// The same client with all rights. Callers have checked the right that covers the whole request.
    pub(crate) fn with_every_right(&self) -> Self {
        Self { rights: Arc::new(self.rights.to_everything()), ..self.clone() }
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    pub(crate) fn shared_rights(&self) -> Arc<Rights> {
        Arc::clone(&self.rights)
    }

    pub(crate) fn may_everything(&self) -> bool {
        self.rights.is_everything()
    }

    pub(crate) fn may(
        &self,
        operation: Operation,
        target: AccessTarget<'_>,
    ) -> Result<(), Problem> {
        if self.rights.may(operation, target) {
            return Ok(());
        }
        let of = match target {
            AccessTarget::Topic(topic) => format!("the topic {topic}"),
            AccessTarget::Group { topic, group } => {
                format!("the topic {topic} and its group {group}")
            }
            AccessTarget::Queue { virtual_host, name, .. } => {
                format!("the queue {name} of {virtual_host}")
            }
            AccessTarget::Exchange { virtual_host, name } => {
                format!("the exchange {name} of {virtual_host}")
            }
            AccessTarget::Cluster => "the cluster".to_owned(),
        };
        Err(Problem::new(Kind::NotAllowed, format!("this user may not do that to {of}")))
    }

    /// Whether the client may see this target.
    pub(crate) fn sees(&self, target: AccessTarget<'_>) -> bool {
        self.rights.would(Operation::Describe, target)
    }

    pub(crate) fn allows(&self, action: Action, resource: Resource, name: &str) -> bool {
        self.rights.allows(action, resource, name)
    }

    /// Checks the right to create a topic of this name.
    pub(crate) fn creates_topic(&self, name: &str) -> Result<(), Problem> {
        match self.rights.creates_topic("", name) {
            true => Ok(()),
            false => Err(Problem::new(
                Kind::NotAllowed,
                format!("this user may not do that to the topic {name}"),
            )),
        }
    }

    /// Whether the client may still read the topic, after changes of users and rules.
    pub(crate) fn still_reads(&self, node: &Node, topic: &str) -> bool {
        match (&self.principal, &node.users) {
            (Some(principal), _) if principal.has_ended() => false,
            (Some(principal), Some(users)) if !self.rights.is_current(users) => {
                let rights = users.rights(principal, self.peer.connection.peer().ip());
                rights.would(Operation::Browse, AccessTarget::Topic(topic))
            }
            (Some(_), _) => true,
            (None, users) => {
                !node.login.admission(self.peer.encrypted).is_log_in_required(users.as_ref())
            }
        }
    }

    /// Checks a right to the cluster as a whole.
    pub(crate) fn cluster(&self, action: Action) -> Result<(), Problem> {
        match self.rights.allows(action, Resource::Cluster, CLUSTER) {
            true => Ok(()),
            false => Err(Problem::new(
                Kind::NotAllowed,
                format!("this needs the right to {} the cluster", action.word()),
            )),
        }
    }
}

/// Authenticates a request, on all routes that are not public.
pub(crate) async fn check(
    State(front): State<FrontEnd>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(node) = front.node() else { return Problem::starting().into_response() };
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return Problem::new(Kind::Failed, "the request is of no connection").into_response();
    };
    match caller(&front, node, &peer, request.headers()).await {
        Ok(mut caller) => {
            caller.enable_audit(node, &request);
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whether a request without credentials is rejected.
pub(crate) fn is_required(node: &Node, peer: &Peer) -> bool {
    node.login.admission(peer.encrypted).is_log_in_required(node.users.as_ref())
}

fn accepts_credentials(node: &Node, peer: &Peer) -> bool {
    peer.is_private() || node.login.plaintext
}

/// Identifies the client: by its credentials, else its browser session, else the certificate of its connection.
pub(crate) async fn caller(
    front: &FrontEnd,
    node: &Node,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<RequestClient, Problem> {
    if let Some(said) = headers.get(AUTHORIZATION) {
        if !accepts_credentials(node, peer) {
            return Err(plaintext());
        }
        if let Some(token) = said.to_str().ok().and_then(|said| credentials_of_scheme(said, BEARER))
        {
            let principal = log_in_by_token(node, peer, token).await?;
            return Ok(RequestClient::of(principal, node, peer));
        }
        let Some(credentials) = said.to_str().ok().and_then(basic) else {
            if let Some(users) = &node.users {
                let ip = peer.connection.peer().ip();
                users.note_refused(ip, "its header Authorization has no name and password");
            }
            let why = "the header Authorization is not Basic, with a name and a password, nor a Bearer's token";
            return Err(refused(why));
        };
        let principal = log_in(node, peer, credentials).await?;
        return Ok(RequestClient::of(principal, node, peer));
    }
    if let Some(resumed) = resumed(front, node, peer, headers) {
        return Ok(RequestClient::of(resumed.principal, node, peer));
    }
    if let Some(principal) = certified(node, peer)? {
        return Ok(RequestClient::of(principal, node, peer));
    }
    match is_required(node, peer) {
        false => {
            let rights = Arc::new(Rights::everything());
            Ok(RequestClient { principal: None, rights, peer: peer.clone() })
        }
        // Otherwise a browser would prompt for a password, and send it in the clear.
        true if !accepts_credentials(node, peer) => Err(plaintext()),
        true => {
            Err(refused("the request has no header Authorization, and no session of a browser"))
        }
    }
}

/// The principal of the client certificate.
fn certified(node: &Node, peer: &Peer) -> Result<Option<Principal>, Problem> {
    let Some(users) = &node.users else { return Ok(None) };
    let Some(certified) = peer.certified(users) else { return Ok(None) };
    match users.admit_certified(certified, peer.connection.peer().ip()) {
        Ok(principal) => Ok(Some(principal)),
        Err(_) => Err(refused("the certificate of the client admits no user any more")),
    }
}

/// The browser session of the request. On an unencrypted connection from elsewhere it is ignored.
pub(crate) fn resumed(
    front: &FrontEnd,
    node: &Node,
    peer: &Peer,
    headers: &HeaderMap,
) -> Option<ResumedSession> {
    let (id, users) = (sessions::session_id(headers, peer.encrypted)?, node.users.as_ref()?);
    let is_private = accepts_credentials(node, peer);
    let resume = || front.sessions().resume(id, users, peer.connection.peer().ip());
    is_private.then(resume).flatten()
}

/// Logs in by a name and a password.
pub(crate) async fn log_in(
    node: &Node,
    peer: &Peer,
    credentials: Credentials,
) -> Result<Principal, Problem> {
    if !accepts_credentials(node, peer) {
        return Err(plaintext());
    }
    let Some(users) = &node.users else {
        return Err(refused("this node has no users to log in as"));
    };
    if by_token(node, &credentials) {
        return Ok(Principal::operator(users));
    }
    let logged_in = users.log_in(credentials, peer.connection.peer().ip()).await;
    // The response does not reveal which of the two is wrong.
    logged_in.map_err(|_| refused("the name or the password is wrong"))
}

/// Logs in by a token of an external issuer (RFC 6750).
async fn log_in_by_token(node: &Node, peer: &Peer, token: &str) -> Result<Principal, Problem> {
    let ip = peer.connection.peer().ip();
    match &node.users {
        Some(users) if users.takes_tokens() => {
            let logged_in = users.log_in_by_token(token, ip).await;
            logged_in.map_err(|_| refused("the token is not good, or not any more"))
        }
        users => {
            if let Some(users) = users {
                users.note_refused(ip, "it presented a token, and log-in by token is off");
            }
            Err(refused("log-in by token is off"))
        }
    }
}

fn by_token(node: &Node, credentials: &Credentials) -> bool {
    credentials.name == OPERATOR && node.nodes.accept_operator_token(&credentials.password)
}

/// Parses `Basic` credentials (RFC 7617): name, colon and password, in base64.
pub(crate) fn basic(value: &str) -> Option<Credentials> {
    let encoded = credentials_of_scheme(value, BASIC)?;
    let decoded = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(Credentials { name: name.to_owned(), password: password.to_owned() })
}

/// Credentials after the scheme, if it is this one.
pub(crate) fn credentials_of_scheme<'a>(value: &'a str, scheme: &str) -> Option<&'a str> {
    let (said, rest) = value.split_once(' ')?;
    said.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

fn refused(why: &str) -> Problem {
    Problem::new(Kind::NotLoggedIn, why)
}

fn plaintext() -> Problem {
    Problem::new(
        Kind::PlaintextLogin,
        "this port does not encrypt, and the client is on another machine: no password is taken here",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_ends_at_the_first_colon_of_basic_credentials() {
        let of = |text: &str| basic(&format!("Basic {}", BASE64.encode(text)));
        let known = |name: &str, password: &str| {
            Some(Credentials { name: name.into(), password: password.into() })
        };
        assert_eq!(of("app:se:cret"), known("app", "se:cret"));
        assert_eq!(of("app:"), known("app", ""));
        assert_eq!(of("app"), None);
        assert_eq!(basic("basic YTpi"), known("a", "b"));
        for wrong in ["", "Basic", "Basic ?", "Bearer YTpi", "Basic /w=="] {
            assert_eq!(basic(wrong), None, "{wrong}");
        }
    }
}
