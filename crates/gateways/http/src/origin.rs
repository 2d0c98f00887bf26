//! Pages of other sites may change nothing: a browser sends along a password that it knows, whoever's page asks
//! (CSRF). It also says where the page is from (`Sec-Fetch-Site`, `Origin`), and what is no browser says nothing.

use axum::response::{IntoResponse, Response};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use crate::problem::{Kind, Problem};

pub(crate) fn layer() -> CsrfLayer<fn(ProtectionError) -> Response> {
    let refused: fn(ProtectionError) -> Response = |error| {
        Problem::new(
            Kind::CrossSite,
            format!("the request was made by another site's page: {error}"),
        )
        .into_response()
    };
    CsrfLayer::new().with_rejection_response(refused)
}
