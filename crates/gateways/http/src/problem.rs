//! Errors, in the form that clients receive: `application/problem+json` (RFC 9457).
//!
//! A handler returns a [`Problem`], and the outermost layer writes the document, which includes the request id. So
//! every error response has it, whichever layer raised it.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use broker::Unavailable;
use serde::Serialize;
use utoipa::ToSchema;

/// Value of `WWW-Authenticate`.
pub(crate) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"postroad\", charset=\"UTF-8\"");

/// All kinds: a stable name for programs, a status, a title and advice.
macro_rules! kinds {
    ($($kind:ident: $status:ident, $slug:literal, $title:literal, $advice:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind,)*];

            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            pub(crate) fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }

            /// Advice for the client.
            pub(crate) fn advice(self) -> &'static str {
                match self { $(Self::$kind => $advice,)* }
            }
        }
    };
}

kinds! {
    NoSuchPath: NOT_FOUND, "no-such-path", "There is nothing at this path",
        "Compare the path with the documentation; paths are case-sensitive and have no slash at their end.";
    Method: METHOD_NOT_ALLOWED, "method-not-allowed", "The path does not take this method",
        "The header Allow names the methods that it takes.";
    BadRequest: BAD_REQUEST, "bad-request", "The request makes no sense",
        "The detail says what is wrong with it.";
    UriTooLong: URI_TOO_LONG, "uri-too-long", "The path and its query are too long",
        "Say less in the query; the member limit is the number of bytes that they may have.";
    HeadersTooLong: REQUEST_HEADER_FIELDS_TOO_LARGE, "headers-too-long", "The headers are too long",
        "Send fewer or shorter ones; the member limit is the number of bytes that they may have together.";
    TooLarge: PAYLOAD_TOO_LARGE, "too-large", "The body is too large",
        "Send less at a time; the member limit is the number of bytes that a body may have here.";
    WrongHost: MISDIRECTED_REQUEST, "wrong-host", "This node is not called that",
        "Where nobody has to log in, the node answers to addresses, to localhost and to the names of its setting \
         http-host alone, so that no page of another site can pass for its own. Use one of these, or add the name.";
    CrossSite: FORBIDDEN, "cross-site", "A page of another site asked for this",
        "Browsers may change something from pages of this node only.";
    NotLoggedIn: UNAUTHORIZED, "not-logged-in", "Not logged in",
        "Send the header Authorization with a name and a password (Basic), or with a token (Bearer) where the node takes \
         these; or show a certificate that names you. Browsers log in on the console.";
    PlaintextLogin: FORBIDDEN, "password-in-the-clear", "The password would be readable on the network path",
        "Connect to the port that encrypts (http-tls), or from the node's own machine; or let the node take \
         passwords as they come (allow-plaintext-auth).";
    NotAllowed: FORBIDDEN, "not-allowed", "This user may not do that",
        "An administrator grants the right with `postroad acl add` or `postroad user allow`.";
    Starting: SERVICE_UNAVAILABLE, "starting", "The node is not there yet",
        "It recovers what is on its disk. Try again in a moment.";
    Slow: REQUEST_TIMEOUT, "too-slow", "The request did not come in time",
        "Send less at a time, or faster.";
    NoSuchTopic: NOT_FOUND, "no-such-topic", "There is no such topic",
        "GET /v1/topics lists those there are, and POST /v1/topics makes one.";
    NoSuchPartition: NOT_FOUND, "no-such-partition", "The topic has no such partition",
        "GET /v1/topics/TOPIC lists them.";
    NoSuchGroup: NOT_FOUND, "no-such-group", "The topic has no such group",
        "PUT /v1/topics/TOPIC/groups/GROUP makes it; the group main is the topic as AMQP's queue.";
    NotFound: NOT_FOUND, "not-found", "What this is about is not there",
        "The detail says what; a list of those there are is one path above.";
    NoSuchLease: CONFLICT, "no-such-lease", "The lease is over",
        "Another consumer may have the record by now, and process it again. Extend leases in time, or \
         take them for longer.";
    NotThere: RANGE_NOT_SATISFIABLE, "not-there", "The partition does not have this offset",
        "What was there was deleted, by retention for one, or has not come. Go on with earliest, knowing that something is \
         missed.";
    AnotherNode: MISDIRECTED_REQUEST, "another-node", "Another node has to be asked",
        "The detail names the node, which alone knows of it.";
    Changed: PRECONDITION_FAILED, "changed", "It is not what it was any more",
        "It was changed after the ETag in the header If-Match. Read it again before the change.";
    NotAtExpected: CONFLICT, "not-at-expected", "The partition has another end than expected",
        "Other records were appended first, or the request was executed before. Read on from the offset that was expected, and decide again.";
    Exists: CONFLICT, "exists", "It is there already",
        "Use it as it is, or choose another name.";
    Invalid: UNPROCESSABLE_ENTITY, "invalid", "That cannot be done",
        "The detail says what speaks against it.";
    NoWindow: UNPROCESSABLE_ENTITY, "no-dedup-window", "The topic does not know records again",
        "`postroad topic alter TOPIC --config dedup.window.ms=600000` has it remember for ten minutes; without that an \
         Idempotency-Key would promise what nobody keeps.";
    Full: INSUFFICIENT_STORAGE, "topic-full", "The topic is full",
        "Its limit.records or limit.bytes is reached. Consume, raise the limit, or try again later.";
    DiskFull: INSUFFICIENT_STORAGE, "disk-full", "The disk of the node is full",
        "Records can be read and settled, and none are taken. Free some space, or delete records or topics.";
    Throttled: TOO_MANY_REQUESTS, "throttled", "A quota is used up",
        "Ask again when the header Retry-After says. `postroad quota list` shows how much there may be in a second.";
    Busy: SERVICE_UNAVAILABLE, "busy", "Not now",
        "Try again in a moment.";
    Unanswered: GATEWAY_TIMEOUT, "unanswered", "The outcome is not known",
        "The leader went away before it answered. A retry of an append is safe with the same Idempotency-Key or \
         expect_offset, a retry of a transaction with a settle or an expect_offset. Otherwise it may take effect twice: \
         read the current state first.";
    Failed: INTERNAL_SERVER_ERROR, "failed", "The node could not do it",
        "The node's log has more, under the request's id.";
}

/// An error of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    limit: Option<u64>,
    retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), limit: None, retry_after: None }
    }

    /// The request exceeds this limit.
    pub(crate) fn limited(kind: Kind, detail: impl Into<String>, limit: u64) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, detail) }
    }

    /// A retry of the same request may succeed after this time.
    pub(crate) fn later(kind: Kind, detail: impl Into<String>, after: Duration) -> Self {
        Self { retry_after: Some(after), ..Self::new(kind, detail) }
    }

    pub(crate) fn starting() -> Self {
        Self::later(Kind::Starting, "the node recovers what is on its disk", Duration::from_secs(1))
    }

    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self::later(Kind::Busy, detail, Duration::from_secs(1))
    }

    /// Prefixes the detail with the part of the request that has the error.
    pub(crate) fn within(self, part: &str) -> Self {
        Self { detail: format!("{part}: {}", self.detail), ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The document of a response to the request with this id.
    pub(crate) fn document(&self, request: &str) -> Body {
        let document = Document { instance: Some(request.to_owned()), ..self.as_item() };
        // Strings and numbers always serialize.
        Body::from(serde_json::to_vec(&document).unwrap_or_default())
    }

    /// Error of a single item of a batch request.
    pub(crate) fn as_item(&self) -> Document {
        Document {
            kind: format!("/problems/{}", self.kind.slug()),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: self.detail.clone(),
            instance: None,
            limit: self.limit,
            retry_after_ms: self.retry_after.map(|after| after.as_millis() as u64),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.slug(), self.detail)
    }
}

/// Problem details of an error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    /// A path of the node, where there is more about it.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: String,
    /// The id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// The limit that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.kind.status();
        response.extensions_mut().insert(self);
        response
    }
}

/// Error of a request to an unavailable shard.
pub(crate) fn unavailable(why: &Unavailable) -> Problem {
    match why {
        Unavailable::Unanswered => unanswered(),
        why => Problem::busy(why.to_string()),
    }
}

pub(crate) fn unanswered() -> Problem {
    Problem::new(
        Kind::Unanswered,
        "no node answered whether it was done: a retry may do it twice; /problems/unanswered has the safe ways",
    )
}

/// Value of `Retry-After`: whole seconds, rounded up.
pub(crate) fn seconds(after: Duration) -> HeaderValue {
    HeaderValue::from(u64::try_from(after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_of_problems_are_unique_and_fit_a_path() {
        let mut slugs: Vec<_> = Kind::ALL.iter().map(|kind| kind.slug()).collect();
        assert!(slugs.iter().all(|slug| slug.bytes().all(|b| b == b'-' || b.is_ascii_lowercase())));
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert!(kind.status().is_client_error() || kind.status().is_server_error(), "{kind:?}");
            assert!(!kind.advice().contains("  "), "{kind:?}");
        }
    }
}
