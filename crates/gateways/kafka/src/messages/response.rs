//! One response: a list of byte slices, so that records go from the journal's memory to the socket without a
//! copy into a buffer.

use broker::Permit;
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Message};
use tokio::sync::OwnedSemaphorePermit;

use crate::messages::{RequestError, RequestHead};
use kafka_wire::primitives::PutPrimitives;

/// A whole frame, including its length.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) chunks: Vec<Bytes>,
    /// Room in the node's budget of fetched bytes; released once they are written.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    /// Room in the budget of other large responses.
    pub(crate) permit: Option<Permit>,
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

    /// Like [`Response::encode`], in another version than the request's.
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

    /// Begins a frame: room for its length, and the response header.
    pub(crate) fn begin(correlation: i32, flexible_header: bool, body_len: usize) -> BytesMut {
        let mut frame = BytesMut::with_capacity(LENGTH_LEN + 5 + body_len);
        frame.put_i32(0);
        frame.put_i32(correlation);
        if flexible_header {
            frame.put_u8(0);
        }
        frame
    }

    /// Writes the length into a complete frame.
    pub(crate) fn finish(mut frame: BytesMut) -> Self {
        let len = (frame.len() - LENGTH_LEN) as i32;
        frame[..LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
        Self::from_chunks(vec![frame.freeze()])
    }

    /// The chunks must form a whole frame.
    pub(crate) fn from_chunks(chunks: Vec<Bytes>) -> Self {
        Self { chunks, room: None, permit: None }
    }

    /// Writes the length into the first of the chunks, whose total size is `bytes`.
    pub(crate) fn from_chunks_with_length(chunks: Vec<Bytes>, bytes: usize) -> Self {
        let len = (bytes - LENGTH_LEN) as i32;
        let mut chunks = chunks;
        if let Some(first) = chunks.first_mut() {
            // Not shared with any other owner yet, so this does not copy.
            let mut fields = BytesMut::from(std::mem::take(first));
            fields[..LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
            *first = fields.freeze();
        }
        Self::from_chunks(chunks)
    }

    /// Attaches room in the node's budget of large responses, until the response is written.
    pub(crate) fn with_permit(self, permit: Option<Permit>) -> Self {
        Self { permit, ..self }
    }
}

/// A response around records that are not copied: encoded fields, with slices of the journal's memory in
/// between.
pub(crate) struct Slices {
    /// Fields not yet in `done`.
    pub(crate) fields: BytesMut,
    /// Whether the message is of a flexible version, in which lengths are compact.
    flexible: bool,
    done: Vec<Slice>,
    len: usize,
}

enum Slice {
    Fields(BytesMut),
    Records(Bytes),
}

impl Slices {
    pub(crate) fn begin(correlation: i32, flexible: bool, estimate: usize) -> Self {
        let fields = Response::begin(correlation, flexible, estimate);
        Self { fields, flexible, done: Vec::new(), len: 0 }
    }

    pub(crate) fn put_records(&mut self, records: Vec<Bytes>) {
        self.fields.put_count(records.iter().map(Bytes::len).sum(), self.flexible);
        if records.is_empty() {
            return;
        }
        self.close_fields();
        for slice in records {
            self.len += slice.len();
            self.done.push(Slice::Records(slice));
        }
    }

    fn close_fields(&mut self) {
        // In versions without compact lengths, nothing follows the last partition's records.
        if self.fields.is_empty() {
            return;
        }
        self.len += self.fields.len();
        self.done.push(Slice::Fields(self.fields.split()));
    }

    pub(crate) fn finish(mut self) -> Response {
        self.close_fields();
        // The length does not include itself.
        let len = (self.len - LENGTH_LEN) as i32;
        if let Some(Slice::Fields(first)) = self.done.first_mut() {
            first[..LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
        }
        let chunks = self.done.into_iter().map(|slice| match slice {
            Slice::Fields(fields) => fields.freeze(),
            Slice::Records(records) => records,
        });
        Response::from_chunks(chunks.collect())
    }
}
