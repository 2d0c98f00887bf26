//! RabbitMQ's management API, for its tools and clients. Requests use the same services and the same validation as
//! AMQP's methods ([`rabbitmq`], `topology`, `access`).
//!
//! Paths are matched here, not by the router: their segments are decoded one by one, and trailing slashes are
//! ignored. Each endpoint is a row of [`endpoints::ENDPOINTS`] with the right that it requires, which is checked
//! first.
//!
//! * `endpoints`: the table; `call`: one request; `path`, `list`, `values`, `api_error`: parsing and responses
//! * `overview`, `nodes`, `health`, `connections`, `channels`: the node
//! * `vhosts`, `users`, `permissions`, `limits`, `policies`, `parameters`: objects of administrators
//! * `exchanges`, `queues`, `bindings`, `messages`: objects of applications
//! * `definitions`: export of all of them; `importing`: import

mod api_error;
mod bindings;
mod call;
mod channels;
mod connections;
mod definitions;
mod endpoints;
mod exchanges;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod health;
mod importing;
mod limits;
mod list;
mod messages;
mod nodes;
mod overview;
mod parameters;
mod path;
mod permissions;
mod policies;
mod queues;
mod users;
mod values;
mod vhosts;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::login::RequestClient;

pub(crate) use api_error::problem_response;

/// All endpoints: method, path, and whether any tag grants access.
pub(crate) fn listed() -> Vec<(&'static str, &'static str, bool)> {
    let all = endpoints::ENDPOINTS.iter();
    all.map(|it| (it.method.as_str(), it.path, it.gate == endpoints::Gate::Manage)).collect()
}

/// Whether a path belongs to this API, which has its own format of errors.
pub(crate) fn is_management_path(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}

pub(crate) fn routes() -> Router<FrontEnd> {
    Router::new()
        .route("/api", any(serve))
        .route("/api/", any(serve))
        .route("/api/{*path}", any(serve))
}

async fn serve(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    call::answer(front, caller, peer, request).await.unwrap_or_else(IntoResponse::into_response)
}
