//! One response as it goes out: a list of byte slices, so that records go from the journal's
//! memory to the socket without being copied into a buffer of ours.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Message};
use tokio::sync::OwnedSemaphorePermit;

use crate::request::{RequestError, RequestHead};

/// A whole frame, its length in front.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) chunks: Vec<Bytes>,
    /// Room in the node's budget of fetched bytes; given back once they are written.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Bytes of the length in front of a frame.
const LENGTH_LEN: usize = 4;

impl Response {
    /// Encodes a message of the message crate.
    pub(crate) fn encode<M>(head: &RequestHead, message: &M) -> Result<Self, RequestError>
    where
        M: Encodable + Message + HeaderVersion,
    {
        Self::encode_as(head, head.version, message)
    }

    /// As [`Response::encode`], in another version than the request's.
    pub(crate) fn encode_as<M>(
        head: &RequestHead,
        version: i16,
        message: &M,
    ) -> Result<Self, RequestError>
    where
        M: Encodable + Message + HeaderVersion,
    {
        let failed = |reason: String| RequestError::Encode { api: head.api, version, reason };
        let size = message.compute_size(version).map_err(|error| failed(error.to_string()))?;
        let mut frame = Self::begin(head.correlation, M::header_version(version) >= 1, size);
        message.encode(&mut frame, version).map_err(|error| failed(error.to_string()))?;
        Ok(Self::finish(frame))
    }

    /// A frame with room for its length, and the response header.
    pub(crate) fn begin(correlation: i32, flexible_header: bool, body_len: usize) -> BytesMut {
        let mut frame = BytesMut::with_capacity(LENGTH_LEN + 5 + body_len);
        frame.put_i32(0);
        frame.put_i32(correlation);
        if flexible_header {
            frame.put_u8(0);
        }
        frame
    }

    /// Writes the length into a frame that is complete.
    pub(crate) fn finish(mut frame: BytesMut) -> Self {
        let len = (frame.len() - LENGTH_LEN) as i32;
        frame[..LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
        Self::from_chunks(vec![frame.freeze()])
    }

    /// The chunks must make a whole frame.
    pub(crate) fn from_chunks(chunks: Vec<Bytes>) -> Self {
        Self { chunks, room: None }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}
