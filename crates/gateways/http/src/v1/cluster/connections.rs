//! Connections of this node, of all protocols.

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use operations::document::{ConnectionPage, Operation};

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::operate::{ask, ask_for};
use crate::v1::pages::{Page, PageOf, Row};

fn number(text: &str) -> Result<u64, Problem> {
    let wrong = || Problem::new(Kind::BadRequest, format!("{text:?} is no number of a connection"));
    text.parse().map_err(|_| wrong())
}

/// List connections of this node, in the order in which they came.
#[utoipa::path(
    get,
    path = "/v1/connections",
    tag = "operate",
    params(Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    let after = cursor.as_deref().map(number).transpose()?;
    let operation = Operation::ListConnections { after, connections_max: limit as u32 };
    let page: ConnectionPage = ask_for(&front, &caller, operation, Kind::NotFound).await?;
    let next = page.connections.last().filter(|_| page.more).map(|last| last.id.to_string());
    Ok(PageOf::new(Row::all(&page.connections)?, next))
}

/// Close a connection: its client is told, where its protocol has a word for that.
#[utoipa::path(
    delete,
    path = "/v1/connections/{connection}",
    tag = "operate",
    params(("connection" = u64, Path)),
    responses((status = 204))
)]
pub(in crate::v1) async fn close(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(connection): Path<String>,
) -> Result<StatusCode, Problem> {
    let operation = Operation::CloseConnection { connection: number(&connection)? };
    ask(&front, &caller, operation, Kind::NotFound).await?;
    Ok(StatusCode::NO_CONTENT)
}
