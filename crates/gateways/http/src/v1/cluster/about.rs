//! The node's version, and the current user.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::Problem;

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Version {
    product: &'static str,
    version: &'static str,
    /// The cluster's, and this node's in it.
    cluster: String,
    node: u32,
}

/// Version of this node.
#[utoipa::path(get, path = "/v1/version", tag = "about", responses((status = 200, body = Version)))]
pub(in crate::v1) async fn version(
    State(front): State<FrontEnd>,
) -> Result<Json<Version>, Problem> {
    let node = front.opened()?;
    Ok(Json(Version {
        product: "Postroad",
        version: node.version,
        cluster: node.broker.cluster_id().to_string(),
        node: node.broker.node(),
    }))
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Whoami {
    /// Null: the caller has not logged in.
    user: Option<String>,
    /// It may do everything.
    everything: bool,
}

/// The caller.
#[utoipa::path(get, path = "/v1/whoami", tag = "about", responses((status = 200, body = Whoami)))]
pub(in crate::v1) async fn whoami(Extension(caller): Extension<RequestClient>) -> Json<Whoami> {
    Json(Whoami { user: caller.name().map(str::to_owned), everything: caller.may_everything() })
}
