//! Browser log-in ([`crate::sessions`]). Other clients send credentials with each request, and need no session.

use access::Credentials;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::problem::{Kind, Problem};
use crate::{login, request_input, sessions};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct LogIn {
    user: String,
    password: String,
}

/// The caller, and whether a log-in is required.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Session {
    /// Null: the caller has not logged in.
    user: Option<String>,
    /// The caller has all rights. False where a log-in is required and missing.
    everything: bool,
    /// Whether a log-in is needed for all else.
    required: bool,
    /// When the browser's session ends if nothing more is asked. Null: there is none.
    ends_ms: Option<i64>,
}

/// Describe the caller. Pages begin with this request, which needs no log-in.
#[utoipa::path(get, path = "/v1/session", tag = "session", responses((status = 200, body = Session)))]
pub(in crate::v1) async fn show(
    State(front): State<FrontEnd>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Json<Session>, Problem> {
    let node = front.opened()?;
    let required = login::is_required(node, &peer);
    let shown = match login::caller(&front, node, &peer, &headers).await {
        Ok(caller) => {
            let ends_in = login::resumed(&front, node, &peer, &headers).map(|it| it.ends_in);
            let now_ms = node.broker.clock().now_ms();
            Session {
                user: caller.name().map(str::to_owned),
                everything: caller.may_everything(),
                required,
                ends_ms: ends_in.map(|left| now_ms + left.as_millis() as i64),
            }
        }
        Err(_) => Session { user: None, everything: false, required, ends_ms: None },
    };
    Ok(Json(shown))
}

/// Log a browser in: it is given a cookie that no script reads.
#[utoipa::path(
    post,
    path = "/v1/session",
    tag = "session",
    request_body = LogIn,
    responses((status = 200, body = Session))
)]
pub(in crate::v1) async fn begin(
    State(front): State<FrontEnd>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let LogIn { user, password } = request_input::document(&front, body).await?;
    let node = front.opened()?;
    let credentials = Credentials { name: user, password };
    let principal = login::log_in(node, &peer, credentials).await?;
    let users = node.users.as_ref().ok_or_else(user_is_gone)?;
    // End the browser's previous session.
    if let Some(id) = sessions::session_id(&headers, peer.encrypted) {
        front.sessions().end(id);
    }
    let id = front.sessions().begin(principal.clone(), users, front.entropy());
    let id = id.ok_or_else(user_is_gone)?;
    let ip = peer.connection.peer().ip();
    let resumed = front.sessions().resume(&id, users, ip).ok_or_else(user_is_gone)?;
    let left = resumed.ends_in.as_millis() as i64;
    let session = Session {
        user: Some(principal.name().to_string()),
        everything: users.rights(&principal, ip).is_everything(),
        required: login::is_required(node, &peer),
        ends_ms: Some(node.broker.clock().now_ms() + left),
    };
    Ok((session_cookie_header(Some(&id), &peer)?, Json(session)).into_response())
}

fn user_is_gone() -> Problem {
    Problem::new(Kind::NotLoggedIn, "the user is not there any more")
}

fn session_cookie_header(id: Option<&str>, peer: &Peer) -> Result<HeaderMap, Problem> {
    let cookie = HeaderValue::from_str(&sessions::cookie(id, peer.encrypted));
    let cookie = cookie.map_err(|error| Problem::new(Kind::Failed, error.to_string()))?;
    Ok(HeaderMap::from_iter([(SET_COOKIE, cookie)]))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct LogoutQuery {
    /// All sessions of the user on this node, in other browsers, too.
    everywhere: bool,
}

/// Log the browser out.
#[utoipa::path(
    delete,
    path = "/v1/session",
    tag = "session",
    params(LogoutQuery),
    responses((status = 204))
)]
pub(in crate::v1) async fn end(
    State(front): State<FrontEnd>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let LogoutQuery { everywhere } = request_input::query(&uri)?;
    let node = front.opened()?;
    if everywhere && let Some(resumed) = login::resumed(&front, node, &peer, &headers) {
        front.sessions().end_all_of(resumed.principal.name());
    }
    if let Some(id) = sessions::session_id(&headers, peer.encrypted) {
        front.sessions().end(id);
    }
    Ok((StatusCode::NO_CONTENT, session_cookie_header(None, &peer)?).into_response())
}
