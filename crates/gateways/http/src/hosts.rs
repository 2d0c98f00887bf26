//! Names that this node answers to where nobody logs in.
//!
//! A page of another site can have its own name lead to this machine (DNS rebinding): then its browser takes the node
//! for that site, and lets the page read and change what it likes. What the page cannot do is call the node by
//! another name than its own. With a log-in this does not matter: a browser has no password of ours for that name.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::connection::Peer;
use crate::front::Front;
use crate::problem::{Kind, Problem};

pub(crate) async fn check(State(front): State<Front>, request: Request, next: Next) -> Response {
    match refused(&front, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn refused(front: &Front, request: &Request) -> Option<Problem> {
    let encrypted = request.extensions().get::<Peer>().is_some_and(|peer| peer.encrypted);
    let must_log_in = front.node().is_some_and(|node| {
        node.login.admission(encrypted).is_log_in_required(node.users.as_ref())
    });
    let mut hosts = request.headers().get_all(HOST).iter();
    let said = hosts.next().map(|host| host.to_str().unwrap_or_default());
    if hosts.next().is_some() {
        return Some(Problem::new(Kind::BadRequest, "the request has more than one header Host"));
    }
    // A proxy names the host in both places, and then it is the same (RFC 9112, 3.2.2).
    let named = request.uri().authority().map(|authority| authority.as_str());
    if let (Some(named), Some(said)) = (named, said)
        && !named.eq_ignore_ascii_case(said)
    {
        let detail = "the target of the request is at another host than the header Host names";
        return Some(Problem::new(Kind::BadRequest, detail));
    }
    let said = named.or(said);
    let Some(host) = said else {
        return Some(Problem::new(Kind::BadRequest, "the request has no header Host"));
    };
    if must_log_in || is_ours(host, &front.options().hosts) {
        return None;
    }
    Some(Problem::new(
        Kind::WrongHost,
        "the header Host names no host that this node knows itself by",
    ))
}

pub(crate) fn is_ours(authority: &str, named: &[String]) -> bool {
    let name = name_of(authority);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || named.iter().any(|known| known.eq_ignore_ascii_case(&name))
}

/// Without its port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_what_is_named_are_this_node() {
        let named = ["Broker.internal".to_owned()];
        for ours in [
            "127.0.0.1",
            "127.0.0.1:15672",
            "[::1]:15672",
            "[2001:db8::1]",
            "10.0.0.7:80",
            "localhost",
            "LOCALHOST:15672",
            "a.localhost:1",
            "broker.internal:15672",
        ] {
            assert!(is_ours(ours, &named), "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:15672",
            "localhost.evil.example",
            "",
            ":80",
            "127.0.0.1.evil.example",
            "notlocalhost",
        ] {
            assert!(!is_ours(other, &named), "{other}");
        }
    }
}
