//! Host names that this node accepts where there is no log-in.
//!
//! A page of another site can make its own name resolve to this machine (DNS rebinding). Its browser then takes the
//! node for that site, and lets the page read and change everything. The page cannot, however, use a different name
//! in `Host`. With a log-in the attack fails anyway: a browser has no credentials for that name.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::problem::{Kind, Problem};

pub(crate) async fn check(State(front): State<FrontEnd>, request: Request, next: Next) -> Response {
    match refused(&front, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn refused(front: &FrontEnd, request: &Request) -> Option<Problem> {
    let encrypted = request.extensions().get::<Peer>().is_some_and(|peer| peer.encrypted);
    let must_log_in = front.node().is_some_and(|node| {
        node.login.admission(encrypted).is_log_in_required(node.users.as_ref())
    });
    let mut hosts = request.headers().get_all(HOST).iter();
    let said = hosts.next().map(|host| host.to_str().unwrap_or_default());
    if hosts.next().is_some() {
        return Some(Problem::new(Kind::BadRequest, "the request has more than one header Host"));
    }
    // A proxy names the host in both places, and they must agree (RFC 9112, 3.2.2).
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
    let name = without_port(authority);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if bare.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || named.iter().any(|known| known.eq_ignore_ascii_case(&name))
}

/// Strips the port.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_configured_names_are_accepted() {
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
