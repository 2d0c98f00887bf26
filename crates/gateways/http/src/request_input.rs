//! Bodies and queries of requests, within limits. Unknown members are rejected.

use std::error::Error;

use axum::body::Body;
use axum::http::Uri;
use base::json::{self, JsonTooLarge};
use broker::Permit;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::front::FrontEnd;
use crate::limits::{HTTP_BODY_WITHIN, HTTP_DOCUMENT_BYTES_MAX, HTTP_DOCUMENT_LIMITS};
use crate::problem::{Kind, Problem};

/// Reads a body of at most `bytes_max` bytes, with a timeout. It takes memory budget as it arrives: bytes that are
/// announced and not sent take none.
pub(crate) async fn whole(
    front: &FrontEnd,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let mut body = Limited::new(body, bytes_max);
    let mut room = Permit::default();
    let arriving = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                front.arriving_room(&mut room, data.len()).await;
                bytes.extend_from_slice(&data);
            }
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(bytes.freeze())
    };
    match timeout(HTTP_BODY_WITHIN, arriving).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::limited(
            Kind::TooLarge,
            format!("the body has more than {bytes_max} bytes"),
            bytes_max as u64,
        )),
        Ok(Err(error)) => {
            Err(Problem::new(Kind::BadRequest, format!("the body did not come whole: {error}")))
        }
        Err(_) => Err(Problem::new(
            Kind::Slow,
            format!("the body did not come within {} seconds", HTTP_BODY_WITHIN.as_secs()),
        )),
    }
}

/// Reads a JSON document, whatever its content type.
pub(crate) async fn document<T: DeserializeOwned + Send + 'static>(
    front: &FrontEnd,
    body: Body,
) -> Result<T, Problem> {
    let bytes = whole(front, body, HTTP_DOCUMENT_BYTES_MAX).await?;
    front.parse(bytes.len(), move || read(&bytes)).await
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    json::examine(bytes, &HTTP_DOCUMENT_LIMITS).map_err(too_large)?;
    serde_json::from_slice(bytes).map_err(|error| malformed(&error))
}

fn too_large(error: JsonTooLarge) -> Problem {
    Problem::limited(Kind::TooLarge, error.to_string(), error.limit() as u64)
}

pub(crate) fn malformed(error: &serde_json::Error) -> Problem {
    Problem::new(Kind::BadRequest, format!("the body is not right: {error}"))
}

/// Parses the query of a URI.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    serde_urlencoded::from_str(uri.query().unwrap_or_default())
        .map_err(|error| Problem::new(Kind::BadRequest, format!("the query is not right: {error}")))
}
