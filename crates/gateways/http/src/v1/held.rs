//! Responses with records, which hold their memory budget until they are written.

use std::convert::Infallible;

use crate::limits::HTTP_ANSWER_PIECE_BYTES;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use broker::Permit;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::Serialize;

use crate::problem::{Kind, Problem};

/// A document, sent in pieces as the client reads.
pub(super) fn document<T: Serialize>(document: &T, room: Permit) -> Result<Response, Problem> {
    let text = serde_json::to_vec(document);
    let text = text.map_err(|error| Problem::new(Kind::Failed, error.to_string()))?;
    let pieces = unfold((Bytes::from(text), room), |(mut rest, room)| async move {
        if rest.is_empty() {
            return None;
        }
        let piece = rest.split_to(rest.len().min(HTTP_ANSWER_PIECE_BYTES));
        Some((Ok::<_, Infallible>(piece), (rest, room)))
    });
    let content = [(CONTENT_TYPE, "application/json")];
    Ok((content, Body::from_stream(pieces)).into_response())
}
