//! All paths, and the layers around them.
//!
//! ```text
//! finishing    id, headers, problems
//! limits       path and query, body
//! hosts        names, where there is no log-in
//! origin       rejects changes by pages of other sites
//! login        except health, problems, the console's files, and its log-in
//! current      the node's copy of the catalog
//! ```

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::connection::EarlyRejection;
use crate::front::FrontEnd;
use crate::layers::{current, finishing, hosts, origin};
use crate::limits::{
    HTTP_BODY_BYTES_MAX, HTTP_HEADER_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_URI_BYTES_MAX,
};
use crate::problem::{Kind, Problem};
use crate::{api, console, health, login, metrics, v1};

/// Routes of the main ports.
pub(crate) fn all(front: &FrontEnd) -> Router {
    let known = Router::new()
        .route("/metrics", get(metrics::all))
        .route("/metrics/detailed", get(metrics::detailed))
        .merge(v1::routes())
        .merge(api::routes())
        .route_layer(from_fn_with_state(front.clone(), current::catalog))
        .route_layer(from_fn_with_state(front.clone(), login::check));
    let routes =
        Router::new().merge(known).merge(health_routes()).route("/problems/{slug}", get(problem));
    let routes = routes.merge(v1::public_routes()).merge(console::routes());
    let checked = with_fallbacks(routes)
        .layer(origin::layer())
        .layer(from_fn_with_state(front.clone(), hosts::check));
    finished(checked, front)
}

/// Routes of the metrics port, which has no authentication and shows no names.
pub(crate) fn metrics_alone(front: &FrontEnd) -> Router {
    let routes = health_routes().route("/metrics", get(metrics::without_names));
    finished(with_fallbacks(routes), front)
}

fn health_routes() -> Router<FrontEnd> {
    Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/health/startup", get(health::startup))
}

fn with_fallbacks(routes: Router<FrontEnd>) -> Router<FrontEnd> {
    routes.fallback(no_such_path).method_not_allowed_fallback(method_not_allowed)
}

fn finished(routes: Router<FrontEnd>, front: &FrontEnd) -> Router {
    routes
        .layer(from_fn(limited))
        .layer(from_fn_with_state(front.clone(), finishing::finish))
        .with_state(front.clone())
}

async fn no_such_path() -> Problem {
    Problem::new(Kind::NoSuchPath, "there is nothing at this path")
}

async fn method_not_allowed() -> Problem {
    Problem::new(Kind::Method, "the path does not take this method")
}

/// Rejects oversized requests before a handler runs.
async fn limited(request: Request, next: Next) -> Response {
    if let Some(EarlyRejection(problem)) = request.extensions().get::<EarlyRejection>() {
        return problem.clone().into_response();
    }
    let uri = request.uri();
    let length = uri.path().len() + uri.query().map_or(0, |query| 1 + query.len());
    if length > HTTP_URI_BYTES_MAX {
        let detail = format!("the path and its query have {length} bytes");
        return Problem::limited(Kind::UriTooLong, detail, HTTP_URI_BYTES_MAX as u64)
            .into_response();
    }
    let of = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let bytes: usize = request.headers().iter().map(of).sum();
    // HTTP/1 is limited by hyper; this is for HTTP/2.
    let count = request.headers().len();
    if count > HTTP_HEADERS_MAX {
        let detail = format!("there are {count} headers");
        return Problem::limited(Kind::HeadersTooLong, detail, HTTP_HEADERS_MAX as u64)
            .into_response();
    }
    if bytes > HTTP_HEADER_BYTES_MAX {
        let detail = format!("the headers have {bytes} bytes");
        let limit = HTTP_HEADER_BYTES_MAX as u64;
        return Problem::limited(Kind::HeadersTooLong, detail, limit).into_response();
    }
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if let Some(bytes) = announced.filter(|bytes| *bytes > HTTP_BODY_BYTES_MAX as u64) {
        let detail = format!("the body has {bytes} bytes");
        return Problem::limited(Kind::TooLarge, detail, HTTP_BODY_BYTES_MAX as u64)
            .into_response();
    }
    next.run(request).await
}

/// Advice on a problem, for people.
async fn problem(Path(slug): Path<String>) -> Response {
    let Some(kind) = Kind::ALL.iter().find(|kind| kind.slug() == slug) else {
        return no_such_path().await.into_response();
    };
    let text = format!("{} ({})\n\n{}\n", kind.title(), kind.status().as_u16(), kind.advice());
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
