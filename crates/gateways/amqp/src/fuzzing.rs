//! Invariants of arbitrary input from an AMQP client: for fuzz targets, and for tests of their findings.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use access::sasl;
use bytes::{Bytes, BytesMut};
use message::Properties;
use tokio::io::{AsyncRead, ReadBuf};

use crate::codec::frame::{self, ContentHeader, FrameError, FrameKind};
use crate::codec::methods::{ConnectionStartOk, Method};
use crate::codec::properties::WireProperties;
use crate::codec::table::FieldTable;
use crate::failure::{bad_method, unexpected_frame, unknown_frame};
use crate::handshake::{amqplain, capabilities, client_name, shown};
use crate::input::{Input, Read};
use crate::limits::{AMQP_CLIENT_PROPERTIES_BYTES_MAX, AMQP_HANDSHAKE_FRAME_BYTES_MAX};

/// Limit of one read.
const READ_BYTES_MAX: usize = 64 << 10;

/// A reader that returns pieces of this size, and then the end of the stream.
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

#[derive(PartialEq, Debug, Default)]
struct ReadFrames {
    header: Option<[u8; 8]>,
    frames: Vec<Bytes>,
    error: Option<FrameError>,
}

/// Reads the protocol header and the frames until the end or an error.
fn read_frames(bytes: &[u8], piece: usize) -> ReadFrames {
    let mut socket = ChunkedReader { bytes, piece };
    let mut context = Context::from_waker(Waker::noop());
    let mut input = Input::default();
    let mut heard = ReadFrames::default();
    loop {
        if heard.header.is_none() {
            heard.header = input.take_protocol_header();
        }
        while heard.header.is_some() {
            match input.peek(AMQP_HANDSHAKE_FRAME_BYTES_MAX) {
                Ok(Some(peeked)) => heard.frames.push(Bytes::copy_from_slice(&input.take(peeked))),
                Ok(None) => break,
                Err(error) => return ReadFrames { error: Some(error), ..heard },
            }
        }
        match input.read_from(&mut socket, &mut context, READ_BYTES_MAX) {
            Ok(Read::Bytes(_)) => {}
            Ok(Read::Closed) => return heard,
            other => panic!("{other:?}"),
        }
    }
}

/// A connection from its first byte: the frames do not depend on how the bytes are cut into pieces. The first byte
/// selects the size of the pieces.
pub fn connection(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let whole = read_frames(stream, usize::MAX);
    assert_eq!(
        read_frames(stream, usize::from(piece) % 64 + 1),
        whole,
        "pieces change what is heard"
    );
    if let Some(error) = whole.error {
        let _ = error.to_string();
    }
    for bytes in &whole.frames {
        let read = frame::read(bytes).expect("a frame that was measured");
        let mut again = BytesMut::new();
        frame::put(read.kind, read.channel, &mut again, |out| out.extend_from_slice(read.payload));
        assert_eq!(again, bytes);
        payload(read.kind, read.payload);
    }
}

fn payload(kind: FrameKind, payload: &[u8]) {
    match kind {
        FrameKind::Method => method(payload),
        FrameKind::Header => header(payload),
        FrameKind::Body | FrameKind::Heartbeat => {
            let _ = (unexpected_frame(kind, payload), unknown_frame(kind, payload));
        }
    }
}

/// The payload of a method frame. A decoded method is encoded and decoded again.
pub fn method(payload: &[u8]) {
    let method = match Method::decode(payload) {
        Ok(method) => method,
        Err(error) => {
            let _ = bad_method(&error, payload);
            return;
        }
    };
    let mut written = BytesMut::new();
    method.encode(&mut written);
    assert_eq!(written.len(), payload.len());
    assert_eq!(Method::decode(&written), Ok(method));
    if let Method::ConnectionStartOk(start_ok) = method {
        log_in(&start_ok);
    }
}

/// Parts of a client's input that are decoded before it is logged in.
fn log_in(start_ok: &ConnectionStartOk<'_>) {
    let _ = (amqplain(start_ok.response.0), sasl::plain(start_ok.response.0));
    let Ok(properties) = FieldTable::decode(start_ok.client_properties.0) else { return };
    let _ = (capabilities(&properties), client_name(&properties));
    assert!(shown(properties).to_bytes().len() <= AMQP_CLIENT_PROPERTIES_BYTES_MAX);
}

/// The payload of a content header frame.
pub fn header(payload: &[u8]) {
    let Some(header) = ContentHeader::decode(payload) else { return };
    let Ok(properties) = Properties::decode(header.properties) else { return };
    let mut written = BytesMut::new();
    properties.encode(&mut written);
    assert_eq!(&written[..], header.properties);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpora_satisfy_the_invariants() {
        test_corpus::each("amqp_connection", super::connection);
        test_corpus::each("amqp_method", super::method);
        test_corpus::each("amqp_header", super::header);
    }
}
