//! The OpenAPI document, made of the routes themselves. docs/user/openapi.json is a copy, which a test compares.

use axum::Json;
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

pub(super) fn about() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Postroad")
        .version("1")
        .description(Some(
            "Topics, records and leases. Problems are documents of RFC 9457; docs/user/http.md has more.",
        ))
        .build();
    OpenApiBuilder::new().info(info).build()
}

pub(crate) fn document() -> OpenApi {
    super::documented().merge(super::documented_for_everybody()).into_openapi()
}

pub(super) async fn serve() -> Json<OpenApi> {
    Json(document())
}
