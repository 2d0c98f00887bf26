//! Properties of the decoding of another node's bytes: for fuzz targets, and for tests of their findings.
//!
//! Any client that reaches the port of nodes may send a first frame. TLS comes before it where the cluster has a
//! secret.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use base::checksum::crc32c;
use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use crate::end::Violation;
use crate::frame::{HEADER_BYTES, Header, Incoming};
use crate::handshake;
use crate::lane::Lane;
use crate::refusal::Refusal;

/// Size limit of a message here.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const CHECKED_BYTES: usize = 12;

/// Returns bytes in pieces of this size, and then the end.
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

type ReadFrames = (Vec<(Header, u32, Bytes, Bytes)>, Option<Violation>);

/// The frames until the end or a violation.
fn received(bytes: &[u8], piece: usize, ahead: usize) -> ReadFrames {
    let allow = |header: &Header| header.check_length(MESSAGE_BYTES_MAX);
    let mut socket = ChunkedReader { bytes, piece };
    let mut incoming = Incoming::new(ahead);
    let mut context = Context::from_waker(Waker::noop());
    let mut frames = Vec::new();
    loop {
        match incoming.next(allow) {
            Ok(Some(frame)) => {
                frames.push((
                    frame.header,
                    frame.within_ms,
                    frame.message.head,
                    frame.message.body,
                ));
                continue;
            }
            Ok(None) => {}
            Err(violation) => return (frames, Some(violation)),
        }
        match incoming.poll_read(&mut context, &mut socket) {
            Poll::Ready(Ok(0)) => return (frames, None),
            Poll::Ready(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Decodes a connection's frames, which must not depend on the pieces. The first two bytes determine the pieces.
pub fn frames(data: &[u8]) {
    let Some((&[piece, ahead], stream)) = data.split_first_chunk() else { return };
    let (piece, ahead) = (usize::from(piece) % 40 + 1, usize::from(ahead));
    for stream in [stream.to_vec(), with_checksums(stream)] {
        let whole = received(&stream, usize::MAX, Lane::Replication.read_ahead());
        assert_eq!(received(&stream, piece, ahead), whole, "pieces change what is heard");
        for (_, _, head, _) in whole.0 {
            introduction(&head);
        }
    }
    introduction(stream);
}

/// The same frames with correct checksums, as far as there are any.
fn with_checksums(stream: &[u8]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let mut rest = &mut stream[..];
    while rest.len() >= HEADER_BYTES {
        let (header, message) = rest.split_at_mut(HEADER_BYTES);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let length = length % MESSAGE_BYTES_MAX;
        header[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let checksum = crc32c(&header[..CHECKED_BYTES]);
        header[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        let (message, later) = message.split_at_mut(length.min(message.len()));
        if let Some((around, _)) = message.split_first_chunk::<4>() {
            let head = u32::from_le_bytes(*around) as usize;
            let covered = head.saturating_add(8);
            if covered.saturating_add(4) <= message.len() {
                let checksum = crc32c(&message[..covered]);
                message[covered..covered + 4].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        rest = later;
    }
    stream
}

/// Decodes the first frames of a connection.
fn introduction(head: &[u8]) {
    handshake::check_round_trip(Bytes::copy_from_slice(head));
    if let Some(refusal) = Refusal::decode(head) {
        let again = Refusal::decode(&refusal.encode());
        assert_eq!(again.map(|it| it.to_string()), Some(refusal.to_string()));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn stored_frame_corpus_passes() {
        test_corpus::each("link_frames", super::frames);
    }
}
