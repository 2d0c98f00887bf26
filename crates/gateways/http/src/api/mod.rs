//! RabbitMQ's management API, for its tools and clients. What is asked goes by the same services as AMQP's methods
//! ([`rabbitmq`], `topology`, `access`), and what is refused is refused by the same judges.
//!
//! Paths are told apart here and not by the router: their segments are decoded one by one, and slashes at the end count
//! for nothing. Each endpoint is a row of [`endpoints::ENDPOINTS`] with the right that it takes, which is asked before
//! anything is done.
//!
//! * `endpoints`: all of them; `call`: one request; `path`, `list`, `values`, `refused`: how it is read and answered
//! * `overview`, `nodes`, `health`, `connections`, `channels`: the node
//! * `vhosts`, `users`, `permissions`, `limits`, `policies`, `parameters`: what administrators set
//! * `exchanges`, `queues`, `bindings`, `messages`: what applications use
//! * `definitions`: all of that in a file

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
mod refused;
mod users;
mod values;
mod vhosts;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};

use crate::connection::Peer;
use crate::front::Front;
use crate::login::Asker;

pub(crate) use refused::of_problem;

/// Every endpoint: method, path, and whether any tag is enough to ask.
pub(crate) fn listed() -> Vec<(&'static str, &'static str, bool)> {
    let all = endpoints::ENDPOINTS.iter();
    all.map(|it| (it.method.as_str(), it.path, it.gate == endpoints::Gate::Manage)).collect()
}

/// Whether a path is of this API, whose clients read refusals in its own form.
pub(crate) fn is_of(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}

pub(crate) fn routes() -> Router<Front> {
    Router::new()
        .route("/api", any(serve))
        .route("/api/", any(serve))
        .route("/api/{*path}", any(serve))
}

async fn serve(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Response {
    call::answer(front, asker, peer, request).await.unwrap_or_else(IntoResponse::into_response)
}
