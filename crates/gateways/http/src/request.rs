//! Properties of a request that several layers need: its id, and which interface it is for.

use axum::http::HeaderName;

/// Sent by the console's scripts, with any value.
pub(crate) const FROM_CONSOLE: HeaderName = HeaderName::from_static("postroad-console");

/// Id of a request.
#[derive(Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Whether a path belongs to this API, which has its own format of errors.
pub(crate) fn is_management_path(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}
