//! Frames (AMQP 0-9-1, 4.2.3): seven octets of head, the payload, and an octet that ends it.

use bytes::{BufMut, BytesMut};

use super::methods::Method;
use rabbitmq::erlang;

/// Type, channel and payload size.
pub const HEAD_BYTES: usize = 7;
/// Bytes of a frame besides its payload.
pub const OVERHEAD_BYTES: usize = HEAD_BYTES + 1;
pub const END: u8 = 0xCE;

/// The smallest frame size that a peer may negotiate.
pub const FRAME_MAX_MIN: u32 = 4096;

/// The first bytes that a client sends.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
/// The header of AMQP 0-9, which is handled alike: it differs in nothing that matters here.
pub const PROTOCOL_HEADER_0_9: [u8; 8] = *b"AMQP\x01\x01\x00\x09";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    Method,
    Header,
    Body,
    Heartbeat,
}

impl FrameKind {
    pub const fn octet(self) -> u8 {
        match self {
            Self::Method => 1,
            Self::Header => 2,
            Self::Body => 3,
            Self::Heartbeat => 8,
        }
    }

    const fn of(octet: u8) -> Option<Self> {
        Some(match octet {
            1 => Self::Method,
            2 => Self::Header,
            3 => Self::Body,
            8 => Self::Heartbeat,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    pub channel: u16,
    pub payload: &'a [u8],
}

/// A malformed frame. Nothing more can be read from the connection after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("type {octet}, {snippet}: unknown_frame")]
    UnknownKind { octet: u8, snippet: Snippet },
    #[error("type {octet}, {}: {{frame_too_large,{bytes},{bytes_max}}}", Snippet::of(&[]))]
    TooLarge { octet: u8, bytes: usize, bytes_max: usize },
    #[error("type {octet}, {snippet}: {{invalid_frame_end_marker,{end}}}")]
    End { octet: u8, snippet: Snippet, end: u8 },
}

/// The first octets of a payload, formatted as in RabbitMQ's error texts: `all octets = <<0,60>>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snippet {
    octets: [u8; SNIPPET_BYTES],
    length: usize,
    is_all: bool,
}

const SNIPPET_BYTES: usize = 16;

impl Snippet {
    pub fn of(payload: &[u8]) -> Self {
        let length = payload.len().min(SNIPPET_BYTES);
        let mut octets = [0; SNIPPET_BYTES];
        octets[..length].copy_from_slice(&payload[..length]);
        Self { octets, length, is_all: length == payload.len() }
    }
}

impl std::fmt::Display for Snippet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let which = if self.is_all { "all" } else { "first 16" };
        write!(f, "{which} octets = {}", erlang::binary(&self.octets[..self.length]))
    }
}

/// The front of a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameFront {
    /// A complete frame of this many bytes.
    Frame { bytes: usize },
    /// The buffer must hold this many bytes before the frame can be read.
    Wants { bytes: usize },
}

/// Looks at the front of `buffer`. `payload_bytes_max` is the negotiated maximum less the overhead. A frame may
/// exceed it by [`OVERHEAD_BYTES`], as in RabbitMQ, because some clients count wrong.
pub fn front(buffer: &[u8], payload_bytes_max: usize) -> Result<FrameFront, FrameError> {
    let Some(&[octet, _, _, s0, s1, s2, s3]) = buffer.first_chunk::<HEAD_BYTES>() else {
        return Ok(FrameFront::Wants { bytes: HEAD_BYTES });
    };
    let payload = u32::from_be_bytes([s0, s1, s2, s3]) as usize;
    if payload > payload_bytes_max.saturating_add(OVERHEAD_BYTES) {
        let (bytes, bytes_max) = (payload, payload_bytes_max);
        return Err(FrameError::TooLarge { octet, bytes, bytes_max });
    }
    let bytes = payload + OVERHEAD_BYTES;
    let Some(&end) = buffer.get(bytes - 1) else { return Ok(FrameFront::Wants { bytes }) };
    let snippet = || Snippet::of(&buffer[HEAD_BYTES..bytes - 1]);
    if end != END {
        return Err(FrameError::End { octet, snippet: snippet(), end });
    }
    if FrameKind::of(octet).is_none() {
        return Err(FrameError::UnknownKind { octet, snippet: snippet() });
    }
    Ok(FrameFront::Frame { bytes })
}

/// Reads exactly one frame, which [`front`] has measured.
pub fn read(bytes: &[u8]) -> Option<Frame<'_>> {
    let (&[octet, c0, c1, ..], rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (_end, payload) = rest.split_last()?;
    Some(Frame { kind: FrameKind::of(octet)?, channel: u16::from_be_bytes([c0, c1]), payload })
}

/// Writes a frame's head. The payload and [`END`] are to follow.
pub fn put_head(kind: FrameKind, channel: u16, payload_bytes: u32, out: &mut BytesMut) {
    out.put_u8(kind.octet());
    out.put_u16(channel);
    out.put_u32(payload_bytes);
}

/// Writes a whole frame. `payload` writes its payload.
pub fn put(kind: FrameKind, channel: u16, out: &mut BytesMut, payload: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    put_head(kind, channel, 0, out);
    payload(out);
    let bytes = (out.len() - at - HEAD_BYTES) as u32;
    out[at + 3..at + HEAD_BYTES].copy_from_slice(&bytes.to_be_bytes());
    out.put_u8(END);
}

pub fn put_method<'a>(channel: u16, method: impl Into<Method<'a>>, out: &mut BytesMut) {
    put(FrameKind::Method, channel, out, |out| method.into().encode(out));
}

pub fn put_heartbeat(out: &mut BytesMut) {
    put(FrameKind::Heartbeat, 0, out, |_| {});
}

/// The payload of a content header frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentHeader<'a> {
    pub class: u16,
    /// Has to be 0.
    pub weight: u16,
    pub body_bytes: u64,
    /// Flags and values, see [`super::properties`].
    pub properties: &'a [u8],
}

/// Class, weight (always 0) and body size.
const CONTENT_FIXED_BYTES: usize = 12;

impl<'a> ContentHeader<'a> {
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let (fixed, properties) = payload.split_first_chunk::<CONTENT_FIXED_BYTES>()?;
        let [c0, c1, w0, w1, size @ ..] = *fixed;
        let (class, body_bytes) = (u16::from_be_bytes([c0, c1]), u64::from_be_bytes(size));
        Some(Self { class, weight: u16::from_be_bytes([w0, w1]), body_bytes, properties })
    }

    /// Writes all but the properties.
    pub fn put_fixed(class: u16, body_bytes: u64, out: &mut BytesMut) {
        out.put_u16(class);
        out.put_u16(0);
        out.put_u64(body_bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: FrameKind, channel: u16, payload: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        put(kind, channel, &mut out, |out| out.put_slice(payload));
        out
    }

    fn kinds() -> impl Strategy<Value = FrameKind> {
        use FrameKind::{Body, Header, Heartbeat, Method};
        prop_oneof![Just(Method), Just(Header), Just(Body), Just(Heartbeat)]
    }

    proptest! {
        #[test]
        fn written_frame_is_read_back_once_complete(
            kind in kinds(),
            channel: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let written = frame(kind, channel, &payload);
            for length in 0..written.len() {
                let found = front(&written[..length], 4088);
                let wants = matches!(found, Ok(FrameFront::Wants { bytes }) if bytes > length);
                prop_assert!(wants);
            }
            prop_assert_eq!(front(&written, 4088), Ok(FrameFront::Frame { bytes: written.len() }));
            prop_assert_eq!(read(&written), Some(Frame { kind, channel, payload: &payload }));
        }

        #[test]
        fn arbitrary_bytes_are_read_or_rejected(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Ok(FrameFront::Frame { bytes: length }) = front(&bytes, 4088) {
                prop_assert!(read(&bytes[..length]).is_some());
            }
            let _ = ContentHeader::decode(&bytes);
        }
    }

    #[test]
    fn frame_may_exceed_the_limit_by_the_overhead_only() {
        let (most, more) = (vec![0; 96], vec![0; 97]);
        assert!(front(&frame(FrameKind::Body, 1, &most), 88).is_ok());
        let refused = front(&frame(FrameKind::Body, 1, &more), 88);
        assert_eq!(refused, Err(FrameError::TooLarge { octet: 3, bytes: 97, bytes_max: 88 }));
    }

    #[test]
    fn frame_with_wrong_end_octet_or_type_is_rejected() {
        let mut wrong = frame(FrameKind::Method, 7, b"abc");
        *wrong.last_mut().expect("not empty") = 0;
        let refused = front(&wrong, 4088);
        let snippet = Snippet::of(b"abc");
        assert_eq!(refused, Err(FrameError::End { octet: 1, snippet, end: 0 }));
        let unknown = front(&[4, 0, 7, 0, 0, 0, 2, 0, 60, END], 4088).expect_err("unknown");
        assert_eq!(unknown.to_string(), "type 4, all octets = <<0,60>>: unknown_frame");
        let snippet = Snippet::of(&[0; 17]).to_string();
        assert_eq!(snippet, format!("first 16 octets = <<{}0>>", "0,".repeat(15)));
    }
}
