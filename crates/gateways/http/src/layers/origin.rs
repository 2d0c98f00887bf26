//! Protection against CSRF: a browser attaches its stored credentials to requests of any page. It also sends the
//! origin of the page (`Sec-Fetch-Site`, `Origin`), by which requests of other sites that change something are
//! rejected. Clients other than browsers send neither.

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
