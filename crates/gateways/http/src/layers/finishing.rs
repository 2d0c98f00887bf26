//! Common parts of every response: the request id, security headers, and problem documents.

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    STRICT_TRANSPORT_SECURITY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::warn;
use world::Instant;

use crate::api;
use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::HTTP_REQUEST_ID_BYTES_MAX;
use crate::problem::{CHALLENGE, Kind, Problem, seconds};
use crate::request::{FROM_CONSOLE, RequestId, is_management_path};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// No content of other sites, no inline scripts, no framing.
const SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);
/// A year, as in RFC 6797's examples.
const ENCRYPTED_FROM_NOW_ON: HeaderValue = HeaderValue::from_static("max-age=31536000");
const PROBLEM_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Route label of requests that match no route.
const NO_ROUTE: &str = "none";

pub(crate) async fn finish(
    State(front): State<FrontEnd>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let id = request_id(request.headers()).unwrap_or_else(|| new_id(&front));
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or(NO_ROUTE.into(), |path| path.as_str().to_owned());
    let encrypted = request.extensions().get::<Peer>().is_some_and(|peer| peer.encrypted);
    let is_management = is_management_path(request.uri().path());
    let from_console = request.headers().contains_key(&FROM_CONSOLE);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    if response.status() == StatusCode::BAD_REQUEST && is_text(&response) {
        // The router's own response to a path that it cannot decode.
        let detail = "the path has something in it that is no text of UTF-8";
        response = Problem::new(Kind::BadRequest, detail).into_response();
    }
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        if problem.kind() == Kind::Failed {
            warn!(request = id, route, %problem, "a request failed");
        }
        response = match is_management {
            true => api::problem_response(&problem),
            false => written(response, &problem, &id),
        };
    }
    if from_console {
        // A browser would prompt for a password over the console's own log-in form.
        response.headers_mut().remove(WWW_AUTHENTICATE);
    }
    add_headers(response.headers_mut(), &id, encrypted);
    front.requests().note(&route, response.status().as_u16(), begun.elapsed());
    response
}

/// The client's request id, if it is safe in headers and logs.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    let fits = (1..=HTTP_REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
    fits.then(|| text.to_owned())
}

fn is_text(response: &Response) -> bool {
    let content = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    content.is_some_and(|content| content.starts_with("text/plain"))
}

fn new_id(front: &FrontEnd) -> String {
    format!("{:016x}", front.entropy().u64())
}

fn written(response: Response, problem: &Problem, id: &str) -> Response {
    let (mut head, _) = response.into_parts();
    head.headers.insert(CONTENT_TYPE, PROBLEM_TYPE);
    if problem.kind() == Kind::NotLoggedIn {
        head.headers.insert(WWW_AUTHENTICATE, CHALLENGE);
    }
    if let Some(after) = problem.retry_after() {
        head.headers.insert(RETRY_AFTER, seconds(after));
    }
    Response::from_parts(head, problem.document(id))
}

fn add_headers(headers: &mut HeaderMap, id: &str, encrypted: bool) {
    let fixed = HeaderValue::from_static;
    headers.insert(CONTENT_SECURITY_POLICY, SECURITY_POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(REFERRER_POLICY, fixed("no-referrer"));
    headers.insert(OPENER_POLICY, fixed("same-origin"));
    headers.insert(RESOURCE_POLICY, fixed("same-origin"));
    // The console's files set it themselves.
    headers.entry(CACHE_CONTROL).or_insert(fixed("no-store"));
    if encrypted {
        headers.insert(STRICT_TRANSPORT_SECURITY, ENCRYPTED_FROM_NOW_ON);
    }
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_request_id_is_used_only_if_safe_in_a_log() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(text).expect("a value"));
            request_id(&headers)
        };
        assert_eq!(of("a-1_b.c:2").as_deref(), Some("a-1_b.c:2"));
        for wrong in ["", "a b", "<script>", "a\"b", &"x".repeat(HTTP_REQUEST_ID_BYTES_MAX + 1)] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(request_id(&HeaderMap::new()), None);
    }
}
