//! Errors in the format of RabbitMQ's clients: `{"error": .., "reason": ..}` and a status.

use std::time::Duration;

use access::UserError;
use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use broker::Unavailable;
use documents::StoreError;
use rabbitmq::{Exception, ReplyCode};
use serde_json::json;
use topology::{ChangeError, PolicyError};

use crate::problem::{CHALLENGE, Kind, Problem, seconds};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) struct ApiError {
    status: StatusCode,
    error: &'static str,
    reason: String,
    retry_after: Option<Duration>,
}

impl ApiError {
    fn new(status: StatusCode, error: &'static str, reason: impl Into<String>) -> Self {
        Self { status, error, reason: reason.into(), retry_after: None }
    }

    pub(in crate::api) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", reason)
    }

    pub(super) fn with_error(error: &'static str, reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error, reason)
    }

    pub(in crate::api) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Object Not Found", "Not Found")
    }

    pub(in crate::api) fn not_authorised(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "not_authorised", reason)
    }

    pub(in crate::api) fn failed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
    }

    pub(in crate::api) fn unavailable(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
    }

    pub(in crate::api) fn method_not_allowed() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(status, "method_not_allowed", "the path does not take this method")
    }

    pub(in crate::api) fn reason(&self) -> &str {
        &self.reason
    }

    pub(in crate::api) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, error, reason, retry_after } = self;
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!(reason, "a request of the management API failed");
        }
        let mut response =
            (status, Json(json!({ "error": error, "reason": reason }))).into_response();
        if let Some(after) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds(after));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}

/// Response to a problem that a layer in front raised.
pub(crate) fn problem_response(problem: &Problem) -> Response {
    let status = problem.kind().status();
    let error = match problem.kind() {
        Kind::NotLoggedIn | Kind::PlaintextLogin | Kind::NotAllowed => "not_authorised",
        Kind::NoSuchPath => "Object Not Found",
        Kind::Method => "method_not_allowed",
        _ if status.is_server_error() => "service_unavailable",
        _ => "bad_request",
    };
    ApiError::new(status, error, problem.detail()).into_response()
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        let status = problem.kind().status();
        let error = if status.is_server_error() { "service_unavailable" } else { "bad_request" };
        Self { retry_after: problem.retry_after(), ..Self::new(status, error, problem.detail()) }
    }
}

/// AMQP's channel exceptions, with the status of RabbitMQ's API.
impl From<Exception> for ApiError {
    fn from(exception: Exception) -> Self {
        let text = exception.reply_text();
        match exception.code {
            ReplyCode::NotFound => Self::new(StatusCode::NOT_FOUND, "not_found", text),
            ReplyCode::AccessRefused => Self::not_authorised(text),
            ReplyCode::InternalError => Self::failed(text),
            _ => Self::bad_request(text),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Exception::from(error).into()
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        if let ChangeError::ProtectedVirtualHost(_) = error {
            let status = StatusCode::PRECONDITION_FAILED;
            return Self::new(status, "precondition_failed", error.to_string());
        }
        Exception::from(error).into()
    }
}

impl From<PolicyError> for ApiError {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::NotFound(_) => Self::not_found(),
            PolicyError::Storage(error) => error.into(),
            // Tools match RabbitMQ's wording.
            error => Self::bad_request(format!("Validation failed\n\n{error}\n")),
        }
    }
}

impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Storage(error) => error.into(),
            UserError::NotFound(_)
            | UserError::NoSuchVirtualHost(_)
            | UserError::NoPermissions { .. } => Self::not_found(),
            UserError::Unreadable(reason) => Self::failed(reason),
            error => Self::bad_request(error.to_string()),
        }
    }
}

impl From<Unavailable> for ApiError {
    fn from(error: Unavailable) -> Self {
        Self::unavailable(error.to_string())
    }
}
