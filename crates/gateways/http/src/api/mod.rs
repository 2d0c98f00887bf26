//! RabbitMQ's management API, for its tools and clients. Requests use the same services and the same validation as
//! AMQP's methods ([`rabbitmq`], `topology`, `access`).
//!
//! Paths are matched here, not by the router: their segments are decoded one by one, and trailing slashes are
//! ignored. Each endpoint is a row of [`ENDPOINTS`] with the right that it requires, which is checked first.
//!
//! Each folder uses those before it:
//!
//! * `request`: one request: parsing, authorization, and the forms of responses
//! * `messaging`: exchanges, queues, bindings, messages; `node`: the node and its connections
//! * `administration`: virtual hosts, users, permissions, limits, policies, parameters
//! * `definitions`: export of all of them; `definitions::import`: import
//! * `endpoints`: the table

mod administration;
mod definitions;
mod endpoints;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod messaging;
mod node;
mod request;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::request_input;
use endpoints::{ENDPOINTS, Endpoint};
use request::api_error::ApiError;
use request::call::{Call, Gate};
use request::path::{Query, captured, segments};

pub(crate) use request::api_error::problem_response;

/// All endpoints: method, path, and whether any tag grants access.
pub(crate) fn listed() -> Vec<(&'static str, &'static str, bool)> {
    let all = ENDPOINTS.iter();
    all.map(|it| (it.method.as_str(), it.path, it.gate == Gate::Manage)).collect()
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
    answer(front, caller, peer, request).await.unwrap_or_else(IntoResponse::into_response)
}

/// Answers a request: authorization, then dispatch to its endpoint.
async fn answer(
    front: FrontEnd,
    caller: RequestClient,
    peer: Peer,
    request: Request,
) -> Result<Response, ApiError> {
    if !caller.rights().manages() {
        return Err(ApiError::not_authorised("Not management user"));
    }
    let topology = front.opened()?.topology.clone();
    let topology = topology.ok_or_else(|| ApiError::unavailable("there is no management here"))?;
    let (head, body) = request.into_parts();
    let segments = segments(head.uri.path())?;
    let (endpoint, arguments) = found(&head.method, &segments)?;
    let query = Query::of(head.uri.query())?;
    let (headers, none) = (head.headers, Bytes::new());
    let mut call = Call { front, caller, peer, topology, query, headers, arguments, body: none };
    // Checked before the body is read: it may be large.
    call.check(endpoint.gate, endpoint.method).await?;
    if endpoint.body_bytes_max > 0 {
        call.body = request_input::whole(&call.front, body, endpoint.body_bytes_max).await?;
    }
    (endpoint.carry_out)(&call).await
}

type RouteMatch = (&'static Endpoint, Vec<(&'static str, String)>);

fn found(method: &Method, segments: &[String]) -> Result<RouteMatch, ApiError> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut is_known = false;
    for endpoint in ENDPOINTS {
        let Some(arguments) = captured(endpoint.path, segments) else { continue };
        if endpoint.method == method {
            return Ok((endpoint, arguments));
        }
        is_known = true;
    }
    Err(if is_known { ApiError::method_not_allowed() } else { ApiError::not_found() })
}
