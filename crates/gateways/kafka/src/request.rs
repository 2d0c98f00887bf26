//! A request: its header, and its body, which is decoded when its turn comes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use broker::Permit;
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Request as RequestMessage, StrBytes};

use crate::authorization::Caller;
use crate::messages::frames::Frame;
use crate::messages::{Preamble, RequestError, RequestHead, Response};
use crate::state::Session;
use kafka_wire::primitives::{Cursor, MalformedValue};
use kafka_wire::shape;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    pub(crate) body: BytesMut,
    /// Room for the request in one of the node's budgets; released with it, or when it starts to wait.
    pub(crate) permit: Option<Permit>,
    /// The requesting session.
    pub(crate) session: Arc<Session>,
    /// The caller's rights, and those that the request needs.
    pub(crate) caller: Caller,
}

/// The handling of a request. Starts with its first poll.
pub(crate) type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response, RequestError>> + Send>>;

impl Request {
    /// Splits a frame, whose preamble was read and whose version is supported, into header and body.
    pub(crate) fn parse(
        api: ApiKey,
        preamble: &Preamble,
        frame: Frame,
        session: Arc<Session>,
        caller: Caller,
    ) -> Result<Self, RequestError> {
        let Frame { mut bytes, permit, .. } = frame;
        let (client_id, header_len) =
            Self::rest_of_header(api, preamble.version, &bytes).map_err(RequestError::Header)?;
        let head = RequestHead {
            api,
            version: preamble.version,
            correlation: preamble.correlation,
            client_id,
        };
        let body = bytes.split_off(header_len);
        Ok(Self { head, body, permit, session, caller })
    }

    pub(crate) fn rest_of_header(
        api: ApiKey,
        version: i16,
        frame: &[u8],
    ) -> Result<(Option<StrBytes>, usize), MalformedValue> {
        let mut cursor = Cursor::new(frame);
        cursor.skip(PREAMBLE_LEN)?;
        // Not compact even in the flexible header.
        let client_id = cursor.nullable_text(false)?.map(|id| StrBytes::from_string(id.to_owned()));
        if api.request_header_version(version) >= 2 {
            cursor.skip_tagged_fields()?;
        }
        Ok((client_id, frame.len() - cursor.left()))
    }

    /// Decodes the body, once its shape was validated.
    pub(crate) fn decode<M: RequestMessage>(&mut self) -> Result<M, RequestError> {
        self.decode_as(self.head.version)
    }

    /// Like [`Request::decode`], for a version that the message crate lacks, and whose layout is that of
    /// version `like`.
    pub(crate) fn decode_as<M: RequestMessage>(&mut self, like: i16) -> Result<M, RequestError> {
        let body = std::mem::take(&mut self.body).freeze();
        self.decode_body(body, like)
    }

    /// Like [`Request::decode`], for a body that was taken out.
    pub(crate) fn decode_from<M: RequestMessage>(&self, body: Bytes) -> Result<M, RequestError> {
        self.decode_body(body, self.head.version)
    }

    fn decode_body<M: RequestMessage>(
        &self,
        mut body: Bytes,
        like: i16,
    ) -> Result<M, RequestError> {
        let (api, version) = (self.head.api, self.head.version);
        shape::examine(api, version, &body).map_err(|error| RequestError::Shape {
            api,
            version,
            error,
        })?;
        M::decode(&mut body, like).map_err(|error| RequestError::Decode {
            api,
            version,
            reason: error.to_string(),
        })
    }
}

const PREAMBLE_LEN: usize = 8;
