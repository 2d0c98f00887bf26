//! Operations of the command line, requested by paths ([`admin::Admin`]); responses are their documents.

use access::Rights;
use admin::{AdminError, ErrorClass};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use operations::document::{Operation, RecordPosition};
use serde::de::DeserializeOwned;

use super::pages::not_of_this_list;
use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};

/// Carries out an operation and returns its document. `missing`: the problem to report where its object does not
/// exist.
pub(super) async fn ask(
    front: &FrontEnd,
    caller: &RequestClient,
    operation: Operation,
    missing: Kind,
) -> Result<Vec<u8>, Problem> {
    carry_out(front, caller.rights(), operation, missing).await
}

async fn carry_out(
    front: &FrontEnd,
    rights: &Rights,
    operation: Operation,
    missing: Kind,
) -> Result<Vec<u8>, Problem> {
    let answer = front.opened()?.admin.carry_out(rights, operation).await;
    answer.map_err(|error| problem(&error, missing))
}

fn problem(error: &AdminError, missing: Kind) -> Problem {
    let detail = error.message();
    match error.class() {
        ErrorClass::Denied => Problem::new(Kind::NotAllowed, detail),
        ErrorClass::NotFound => Problem::new(missing, detail),
        ErrorClass::Invalid => Problem::new(Kind::Invalid, detail),
        ErrorClass::AnotherNode => Problem::new(Kind::AnotherNode, detail),
        ErrorClass::Unavailable => Problem::busy(detail),
        ErrorClass::Failed => Problem::new(Kind::Failed, detail),
    }
}

/// Result of a dry run, computed by the query `look`. The user needs the right to `tried`, but not to `look`.
pub(super) async fn look_before<T: DeserializeOwned>(
    front: &FrontEnd,
    caller: &RequestClient,
    tried: &Operation,
    look: Operation,
    missing: Kind,
) -> Result<T, Problem> {
    let allowed = front.opened()?.admin.check(caller.rights(), tried);
    allowed.map_err(|error| problem(&error, missing))?;
    read(carry_out(front, &Rights::everything(), look, missing).await?)
}

/// As [`ask`], decoded.
pub(super) async fn ask_for<T: DeserializeOwned>(
    front: &FrontEnd,
    caller: &RequestClient,
    operation: Operation,
    missing: Kind,
) -> Result<T, Problem> {
    read(ask(front, caller, operation, missing).await?)
}

fn read<T: DeserializeOwned>(answer: Vec<u8>) -> Result<T, Problem> {
    serde_json::from_slice(&answer).map_err(|error| Problem::new(Kind::Failed, error.to_string()))
}

pub(super) fn json_response(answer: Vec<u8>) -> Response {
    (StatusCode::OK, [(CONTENT_TYPE, "application/json")], answer).into_response()
}

/// An operation of another gateway.
pub(super) fn family_operation(family: &str, operation: serde_json::Value) -> Operation {
    Operation::Family { family: family.to_owned(), operation }
}

/// Parses our cursors: partition and offset, separated by a dot.
pub(super) fn place(cursor: Option<&str>) -> Result<Option<RecordPosition>, Problem> {
    let Some(text) = cursor else { return Ok(None) };
    let read = || {
        let (partition, offset) = text.split_once('.')?;
        Some(RecordPosition { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
    };
    read().map(Some).ok_or_else(not_of_this_list)
}

pub(super) fn cursor(place: RecordPosition) -> String {
    format!("{}.{}", place.partition, place.offset)
}
