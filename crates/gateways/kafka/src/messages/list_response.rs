//! Writes a response that is a list item by item, so that only encoded bytes are held, and yields to other
//! tasks in between.
//!
//! A name takes a few bytes of a request and its description thousands, and a client may name the same thing
//! a million times. So describing responses are bounded: items beyond the bound get an error, and the client
//! requests fewer at a time.

use crate::limits::DESCRIBED_BYTES_MAX;
use broker::{YieldBudget, YieldSlots};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::{Encodable, HeaderVersion, Message};

use crate::errors::Fault;
use crate::messages::{RequestError, RequestHead, Response};
use kafka_wire::primitives::PutPrimitives;

/// Bytes that go to the socket as one slice.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Encoded bytes written between two yields: some 300 us.
const BYTES_AT_ONCE: u32 = 64 << 10;
/// Cost of looking up an item, in addition to its bytes.
const ITEM_COST: u32 = 256;

/// Bytes of a response in progress, in slices slightly above [`CHUNK_BYTES`].
pub(crate) struct Chunks {
    done: Vec<Bytes>,
    done_bytes: usize,
    pub(crate) buffer: BytesMut,
}

impl Chunks {
    /// `buffer` begins with a frame's length and header.
    pub(crate) fn new(buffer: BytesMut) -> Self {
        Self { done: Vec::new(), done_bytes: 0, buffer }
    }

    /// Closes a full slice.
    pub(crate) fn cut(&mut self, reserve: usize) {
        if self.buffer.len() >= CHUNK_BYTES {
            self.done_bytes += self.buffer.len();
            self.done.push(self.buffer.split().freeze());
            self.buffer.reserve(CHUNK_BYTES + reserve);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.done_bytes + self.buffer.len()
    }

    pub(crate) fn finish(self) -> Response {
        let bytes = self.bytes();
        let mut chunks = self.done;
        chunks.push(self.buffer.freeze());
        Response::from_chunks_with_length(chunks, bytes)
    }
}

/// Encodes a message, and splits it around its last array, which must be empty. `after`: bytes of the fields
/// that follow the array.
pub(crate) fn around(
    version: i16,
    flexible: bool,
    message: &impl Encodable,
    after: usize,
) -> Result<(Bytes, Bytes), Box<dyn std::error::Error>> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version)?;
    let mut bytes = bytes.freeze();
    let after_at = bytes.len() - after;
    let tail = bytes.split_off(after_at);
    let count_bytes = if flexible { 1 } else { 4 };
    bytes.truncate(after_at - count_bytes);
    Ok((bytes, tail))
}

/// Writer of a response whose last field is the list.
pub(crate) struct ListWriter {
    head: RequestHead,
    chunks: Chunks,
    tail: Bytes,
    pace: YieldBudget,
    has_refused: bool,
}

impl ListWriter {
    /// `response` has all but the items; `items` is their number.
    pub(crate) fn new<M>(
        turns: &YieldSlots,
        head: &RequestHead,
        response: &M,
        items: usize,
    ) -> Result<Self, RequestError>
    where
        M: Encodable + Message + HeaderVersion,
    {
        let version = head.version;
        let flexible = M::header_version(version) >= 1;
        let (before, tail) = around(version, flexible, response, usize::from(flexible))
            .map_err(|error| failed(head, error.to_string()))?;
        let mut buffer = Response::begin(head.correlation, flexible, before.len());
        buffer.put_slice(&before);
        buffer.put_count(items, flexible);
        Ok(Self {
            head: head.clone(),
            chunks: Chunks::new(buffer),
            tail,
            pace: YieldBudget::new(turns, BYTES_AT_ONCE),
            has_refused: false,
        })
    }

    /// Writes the next item, as `describe` returns it. Beyond the bound it writes the result of `refuse`.
    pub(crate) async fn push<I: Encodable>(
        &mut self,
        describe: impl FnOnce() -> I,
        refuse: impl FnOnce(Fault) -> I,
    ) -> Result<(), RequestError> {
        self.pace.step(ITEM_COST).await;
        let left = DESCRIBED_BYTES_MAX.saturating_sub(self.chunks.bytes());
        let described = if left > 0 {
            let item = describe();
            let size = item.compute_size(self.head.version).map_err(|error| self.failed(error))?;
            (size <= left).then_some((item, size))
        } else {
            None
        };
        let (item, size) = described.unwrap_or_else(|| {
            // The message is written only once, as there may be a million items.
            let is_first = !std::mem::replace(&mut self.has_refused, true);
            let fault = if is_first { too_much() } else { Fault::plain(too_much().error) };
            (refuse(fault), 0)
        });
        item.encode(&mut self.chunks.buffer, self.head.version)
            .map_err(|error| self.failed(error))?;
        self.chunks.cut(0);
        self.pace.step(u32::try_from(size).unwrap_or(u32::MAX)).await;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Response {
        self.chunks.buffer.put_slice(&self.tail);
        self.chunks.finish()
    }

    fn failed(&self, reason: impl ToString) -> RequestError {
        failed(&self.head, reason.to_string())
    }
}

fn failed(head: &RequestHead, reason: String) -> RequestError {
    RequestError::Encode { api: head.api, version: head.version, reason }
}

pub(crate) fn too_much() -> Fault {
    Fault::new(
        ResponseError::PolicyViolation,
        format!(
            "the answer would have more than {DESCRIBED_BYTES_MAX} bytes; ask for fewer at a time"
        ),
    )
}
