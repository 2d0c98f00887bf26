//! Who asks, and what that may do.
//!
//! A password comes with each request. The last right one of a user is remembered as a digest that is cheap
//! ([`access::Users::log_in_at_once`]), so that only the first request of a user costs a real hash. A browser that has
//! logged in on the console has a cookie instead ([`crate::sessions`]). Who says nothing is who its certificate names.

use std::sync::Arc;

use access::acl::{Action, CLUSTER, Resource};
use access::{Audit, Credentials, OPERATOR, Operation, Principal, Rights, Target, Users};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::api;
use crate::connection::Peer;
use crate::finishing::{FROM_CONSOLE, RequestId};
use crate::front::{Front, Node};
use crate::problem::{Kind, Problem};
use crate::sessions::{self, Resumed};

const BASIC: &str = "basic";
const BEARER: &str = "bearer";
/// As the audit calls them.
const PROTOCOL: &str = "http";
const CONSOLE: &str = "console";

/// A request's asker.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// `None`: nobody has logged in, and need not.
    principal: Option<Principal>,
    rights: Arc<Rights>,
    peer: Peer,
}

impl Asker {
    fn of(principal: Principal, node: &Node, peer: &Peer) -> Self {
        peer.connection.set_user(principal.name());
        let ip = peer.connection.peer().ip();
        let rights = node.users.as_ref().map(|users| users.rights(&principal, ip));
        let rights = Arc::new(rights.unwrap_or_else(Rights::everything));
        Self { principal: Some(principal), rights, peer: peer.clone() }
    }

    /// What it asks is written, if anything is.
    fn is_written(&mut self, node: &Node, request: &Request) {
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
        let asker = audit.asker(self.name(), ip, protocol);
        let asker = asker.map(|asker| {
            let asked = asker.by(format!("{} {path}", request.method()), id);
            // What programs read is not written, what people look into is.
            asked.looking(from_console || api::is_management_path(path))
        });
        // Nobody else has them yet.
        if let Some(rights) = Arc::get_mut(&mut self.rights) {
            *rights = rights.clone().audited_as(asker);
        }
    }

    /// Who has logged in, if somebody has.
    pub(crate) fn name(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| &**principal.name())
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

    pub(crate) fn may(&self, operation: Operation, target: Target<'_>) -> Result<(), Problem> {
        if self.rights.may(operation, target) {
            return Ok(());
        }
        let of = match target {
            Target::Topic(topic) => format!("the topic {topic}"),
            Target::Group { topic, group } => format!("the topic {topic} and its group {group}"),
            Target::Queue { virtual_host, name, .. } => {
                format!("the queue {name} of {virtual_host}")
            }
            Target::Exchange { virtual_host, name } => {
                format!("the exchange {name} of {virtual_host}")
            }
            Target::Cluster => "the cluster".to_owned(),
        };
        Err(Problem::new(Kind::NotAllowed, format!("this user may not do that to {of}")))
    }

    /// Whether it is to know of this.
    pub(crate) fn sees(&self, target: Target<'_>) -> bool {
        self.rights.would(Operation::Describe, target)
    }

    pub(crate) fn allows(&self, action: Action, resource: Resource, name: &str) -> bool {
        self.rights.allows(action, resource, name)
    }

    /// Whether it may make a topic of this name.
    pub(crate) fn creates_topic(&self, name: &str) -> Result<(), Problem> {
        match self.rights.creates_topic("", name) {
            true => Ok(()),
            false => Err(Problem::new(
                Kind::NotAllowed,
                format!("this user may not do that to the topic {name}"),
            )),
        }
    }

    /// Whether it may read the topic now, whatever has changed since it began.
    pub(crate) fn still_reads(&self, node: &Node, topic: &str) -> bool {
        match (&self.principal, &node.users) {
            (Some(principal), _) if principal.has_ended() => false,
            (Some(principal), Some(users)) if !self.rights.is_current(users) => {
                let rights = users.rights(principal, self.peer.connection.peer().ip());
                rights.would(Operation::Browse, Target::Topic(topic))
            }
            (Some(_), _) => true,
            (None, users) => {
                !node.login.admission(self.peer.encrypted).is_log_in_required(users.as_ref())
            }
        }
    }

    /// Whether it may do that to the cluster as a whole.
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

/// Finds out who asks, for the routes that are not for everybody.
pub(crate) async fn check(
    State(front): State<Front>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(node) = front.node() else { return Problem::starting().into_response() };
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return Problem::new(Kind::Failed, "the request is of no connection").into_response();
    };
    match asker(&front, node, &peer, request.headers()).await {
        Ok(mut asker) => {
            asker.is_written(node, &request);
            request.extensions_mut().insert(asker);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whether somebody who says nothing is refused.
pub(crate) fn is_required(node: &Node, peer: &Peer) -> bool {
    node.login.admission(peer.encrypted).is_log_in_required(node.users.as_ref())
}

fn may_be_said(node: &Node, peer: &Peer) -> bool {
    peer.is_private() || node.login.plaintext
}

/// Who asks, by what the request says: a password, else a browser's session, else the connection's certificate.
pub(crate) async fn asker(
    front: &Front,
    node: &Node,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<Asker, Problem> {
    if let Some(said) = headers.get(AUTHORIZATION) {
        if !may_be_said(node, peer) {
            return Err(plaintext());
        }
        if let Some(token) = said.to_str().ok().and_then(|said| of_scheme(said, BEARER)) {
            let principal = log_in_by_token(node, peer, token).await?;
            return Ok(Asker::of(principal, node, peer));
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
        return Ok(Asker::of(principal, node, peer));
    }
    if let Some(resumed) = resumed(front, node, peer, headers) {
        return Ok(Asker::of(resumed.principal, node, peer));
    }
    if let Some(principal) = certified(node, peer)? {
        return Ok(Asker::of(principal, node, peer));
    }
    match is_required(node, peer) {
        false => {
            let rights = Arc::new(Rights::everything());
            Ok(Asker { principal: None, rights, peer: peer.clone() })
        }
        // Otherwise a browser would ask for a password, and say it.
        true if !may_be_said(node, peer) => Err(plaintext()),
        true => {
            Err(refused("the request has no header Authorization, and no session of a browser"))
        }
    }
}

/// Who the client is by its certificate.
fn certified(node: &Node, peer: &Peer) -> Result<Option<Principal>, Problem> {
    let Some(users) = &node.users else { return Ok(None) };
    let Some(certified) = peer.certified(users) else { return Ok(None) };
    match users.admit_certified(certified, peer.connection.peer().ip()) {
        Ok(principal) => Ok(Some(principal)),
        Err(_) => Err(refused("the certificate of the client lets nobody in any more")),
    }
}

/// Whose session the request is of. One that may be overheard is of nobody.
pub(crate) fn resumed(
    front: &Front,
    node: &Node,
    peer: &Peer,
    headers: &HeaderMap,
) -> Option<Resumed> {
    let (id, users) = (sessions::said(headers, peer.encrypted)?, node.users.as_ref()?);
    let is_private = may_be_said(node, peer);
    let resume = || front.sessions().resume(id, users, peer.connection.peer().ip());
    is_private.then(resume).flatten()
}

/// By a name and a password.
pub(crate) async fn log_in(
    node: &Node,
    peer: &Peer,
    credentials: Credentials,
) -> Result<Principal, Problem> {
    if !may_be_said(node, peer) {
        return Err(plaintext());
    }
    let Some(users) = &node.users else { return Err(refused("nobody can log in here")) };
    if by_token(node, &credentials) {
        return Ok(Principal::operator(users));
    }
    let logged_in = users.log_in(credentials, peer.connection.peer().ip()).await;
    // Which of the two is wrong is for nobody to know.
    logged_in.map_err(|_| refused("the name or the password is wrong"))
}

/// By a token of somebody else (RFC 6750).
async fn log_in_by_token(node: &Node, peer: &Peer, token: &str) -> Result<Principal, Problem> {
    let ip = peer.connection.peer().ip();
    match &node.users {
        Some(users) if users.takes_tokens() => {
            let logged_in = users.log_in_by_token(token, ip).await;
            logged_in.map_err(|_| refused("the token is not good, or not any more"))
        }
        users => {
            if let Some(users) = users {
                users.note_refused(ip, "it says a token, and nobody logs in by tokens here");
            }
            Err(refused("nobody logs in by tokens here"))
        }
    }
}

fn by_token(node: &Node, credentials: &Credentials) -> bool {
    let token = node.operator_token.as_deref();
    credentials.name == OPERATOR
        && token.is_some_and(|token| access::is_same(token, &credentials.password))
}

/// RFC 7617: `Basic` and the name, a colon and the password, in base64.
pub(crate) fn basic(value: &str) -> Option<Credentials> {
    let encoded = of_scheme(value, BASIC)?;
    let decoded = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(Credentials { name: name.to_owned(), password: password.to_owned() })
}

/// What stands behind a scheme.
pub(crate) fn of_scheme<'a>(value: &'a str, scheme: &str) -> Option<&'a str> {
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
    fn a_name_ends_at_the_first_colon_and_the_rest_is_the_password() {
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
