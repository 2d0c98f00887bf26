//! Invariants of arbitrary input from a Kafka client: for fuzz targets, and for tests of their findings.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use access::Quotas;
use access::quotas::{Meter, Protocol};
use broker::Budget;
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ProduceRequest as ProduceMessage};
use kafka_protocol::protocol::Decodable;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::api_keys;
use crate::groups::streams_requests;
use crate::messages::frames::{Backlog, FrameBudgets, FrameLimits, FrameReader, Source};
use crate::messages::{self, Preamble};
use crate::produce::request::ProduceRequest;
use crate::request::Request;
use crate::wire::request_codec::{RequestCodec, requests};
use kafka_wire::shape::{bytes_behind, examine};

/// Size limit of a fuzzed request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const HOUR: Duration = Duration::from_secs(3_600);

static REQUESTS: LazyLock<Vec<RequestCodec>> = LazyLock::new(requests);

thread_local! {
    static RUNTIME: RefCell<Runtime> =
        RefCell::new(Builder::new_current_thread().enable_time().build().expect("a runtime"));
}

/// Returns bytes in pieces of this size, and then the end of the stream.
struct ChunkedReader<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl AsyncRead for ChunkedReader<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let piece = self.piece.min(buffer.remaining()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(piece);
        buffer.put_slice(now);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

impl Source for ChunkedReader<'_> {
    fn poll_read_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads frames until the end or an error. Returns the frames and the reason of the end.
fn read_frames(bytes: &[u8], piece: usize, bare: bool) -> (Vec<BytesMut>, String) {
    let limits = FrameLimits { arrives_within: HOUR, idle_max: HOUR };
    let mut reader = FrameReader::new(ChunkedReader { bytes, piece }, limits);
    let [produce, requests, arriving] = [(); 3].map(|()| Budget::new(16 << 20));
    let budgets = FrameBudgets { produce: &produce, requests: &requests, arriving: &arriving };
    let (backlog, meter) = (Backlog::default(), Meter::new(&Quotas::default(), Protocol::Kafka));
    let hearing = async {
        let mut frames = Vec::new();
        loop {
            let frame = match bare {
                true => reader.next_bare(REQUEST_BYTES_MAX).await,
                false => reader.next(budgets, &backlog, REQUEST_BYTES_MAX, &meter).await,
            };
            match frame {
                Ok(frame) => {
                    backlog.remove(frame.queued);
                    frames.push(frame.bytes);
                }
                Err(end) => return (frames, end.to_string()),
            }
        }
    };
    let heard = RUNTIME.with_borrow(|runtime| runtime.block_on(hearing));
    for budget in [&produce, &requests, &arriving] {
        assert!(budget.try_admit(16 << 20).is_some(), "room of a budget is lost");
    }
    heard
}

/// Checks a connection's bytes: the frames do not depend on the pieces in which they arrive. The first byte
/// selects the size of the pieces.
pub fn connection(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let pieces = usize::from(piece) % 64 + 1;
    for bare in [false, true] {
        let whole = read_frames(stream, usize::MAX, bare);
        assert_eq!(read_frames(stream, pieces, bare), whole, "pieces change what is heard");
        whole.0.iter().for_each(|frame| request(frame));
    }
}

/// Checks a frame without its length.
pub fn request(frame: &[u8]) {
    let Ok(preamble) = Preamble::parse(frame) else { return };
    let (key, version) = (preamble.api_key, preamble.version);
    if key == ::operations::API_KEY {
        if let Ok(asked) = crate::operations::parse(version, frame) {
            let written = serde_json::to_vec(&asked).expect("what is read can be written");
            let again = serde_json::from_slice(&written);
            assert_eq!(again.ok(), Some(asked), "an operation is another once it was written");
        }
        return;
    }
    if streams_requests::is_ours(key) {
        streams(frame);
        return;
    }
    let Ok(api) = ApiKey::try_from(key) else { return };
    if !api_keys::handled(api).is_some_and(|range| range.contains(&version)) {
        return;
    }
    let Ok((_, header)) = Request::rest_of_header(api, version, frame) else { return };
    let body = &frame[header..];
    match api {
        ApiKey::Produce => produce(version, body),
        api => decoded(api, version, body),
    }
}

fn streams(frame: &[u8]) {
    let _ = messages::streams::HeartbeatRequest::parse(frame);
    let _ = messages::streams::DescribeRequest::parse(frame);
    // A body, at its place behind the shortest header.
    if let Some(body) = frame.get(11..) {
        let _ = messages::streams::HeartbeatRequest::parse(body);
        let _ = messages::streams::DescribeRequest::parse(body);
    }
}

/// A produce request that our parser accepts is accepted by the message crate too, with the same batches.
fn produce(version: i16, body: &[u8]) {
    let Ok(ours) = ProduceRequest::parse(version, BytesMut::from(body)) else { return };
    let mut bytes = Bytes::copy_from_slice(body);
    let theirs = ProduceMessage::decode(&mut bytes, version).expect("the message crate takes it");
    assert_eq!(ours.acks, theirs.acks);
    assert_eq!(ours.topics.len(), theirs.topic_data.len());
    let their_batches = theirs.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let their_batches = their_batches.map(|it| (it.index, it.records.as_deref()));
    let our_batches = ours.partitions.iter().map(|it| (it.index, it.records.as_deref()));
    assert!(our_batches.eq(their_batches), "other batches");
}

/// A request of the right shape is decoded to the end that the shape states.
fn decoded(api: ApiKey, version: i16, body: &[u8]) {
    let Some(known) = REQUESTS.iter().find(|known| known.api == api) else { return };
    if examine(api, version, body).is_err() || !known.versions.contains(&version) {
        return;
    }
    let behind = bytes_behind(api, version, body).expect("it was examined");
    // Only the decoder rejects a null where none is allowed.
    if let Some(left) = (known.decode)(Bytes::copy_from_slice(body), version) {
        assert_eq!(left, behind, "{api:?} {version}: the decoder ends elsewhere");
    }
}

#[cfg(test)]
mod tests {
    use super::read_frames;

    /// Regression: the rest was assumed to be there, and the session ended by a panic.
    #[test]
    fn rest_of_a_bare_frame_begun_by_an_earlier_read_is_awaited() {
        let stream = b"\0\0\0\x03abc\0\0\0\x02de";
        for piece in 1..=stream.len() {
            let (frames, end) = read_frames(stream, piece, true);
            assert_eq!(frames, [&b"abc"[..], &b"de"[..]], "pieces of {piece}");
            assert_eq!(end, "the client closed the connection");
        }
    }

    #[test]
    fn corpus_of_connections_keeps_the_invariants() {
        test_corpus::each("kafka_connection", super::connection);
        test_corpus::each("kafka_request", super::request);
    }
}
