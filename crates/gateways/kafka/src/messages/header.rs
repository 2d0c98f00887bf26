//! The header of a request, and the errors that close a connection.

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;
use thiserror::Error;

use crate::errors::Fault;
use crate::messages::streams::StreamsError;
use kafka_wire::primitives::{Cursor, MalformedValue};
use kafka_wire::shape::ShapeError;

/// Header fields that are needed for the response.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    pub(crate) client_id: Option<StrBytes>,
}

/// Errors to which the protocol has no response: the connection is closed, as in Kafka.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum RequestError {
    #[error("request header: {0}")]
    Header(MalformedValue),
    #[error("it asks for api key {0} before it logs in")]
    NotLoggedIn(i16),
    #[error("its log-in has ended, and it did not log in again")]
    LoginEnded,
    #[error("its log-in was refused")]
    LoginRefused,
    #[error("unknown api key {0}")]
    UnknownApi(i16),
    #[error("{api:?} version {version} is not supported (supported: {min} to {max})")]
    UnsupportedVersion { api: ApiKey, version: i16, min: i16, max: i16 },
    #[error("{api:?} version {version} is malformed: {error}")]
    Shape { api: ApiKey, version: i16, error: ShapeError },
    #[error("{api:?} version {version} is malformed: {reason}")]
    Decode { api: ApiKey, version: i16, reason: String },
    #[error("{api:?} version {version} is malformed: {malformed}")]
    Malformed { api: ApiKey, version: i16, malformed: MalformedValue },
    #[error("{0}")]
    Streams(#[from] StreamsError),
    #[error("the response to {api:?} version {version} cannot be encoded: {reason}")]
    Encode { api: ApiKey, version: i16, reason: String },
    #[error("a produce request with acks=0 was refused: {0}")]
    RefusedUnacknowledged(Fault),
}

/// The first fields of every request, which are the same in all versions of the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Preamble {
    pub(crate) api_key: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
}

impl Preamble {
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, RequestError> {
        let mut cursor = Cursor::new(frame);
        let read = |cursor: &mut Cursor<'_>| {
            let (api_key, version) = (cursor.int16()?, cursor.int16()?);
            Ok(Self { api_key, version, correlation: cursor.int32()? })
        };
        read(&mut cursor).map_err(RequestError::Header)
    }
}
