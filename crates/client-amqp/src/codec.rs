//! Frames, methods and messages of AMQP 0-9-1, without I/O.
//!
//! Outgoing frames are appended to the unsent bytes in the format of the specification's section 4.2. Incoming bytes
//! are read frame by frame, and a delivered message as a whole. Every received length is bounded before memory is
//! reserved for it.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{AmqpError, Method};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
const FRAME_HEADER_LEN: usize = 7;
const FRAME_BYTES_MAX: usize = 1 << 20;
const BODY_BYTES_MAX: u64 = 16 << 20;
/// A body is sent in frames of the maximum in `connection.tune`, less their overhead.
const BODY_FRAME_BYTES: usize = (128 << 10) - 8;
/// The class `basic`, named by a content header.
const BASIC: u16 = 60;
const DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;

pub(crate) const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

pub(crate) const CONNECTION_START: Method = (10, 10);
pub(crate) const CONNECTION_START_OK: Method = (10, 11);
pub(crate) const CONNECTION_TUNE: Method = (10, 30);
pub(crate) const CONNECTION_TUNE_OK: Method = (10, 31);
pub(crate) const CONNECTION_OPEN: Method = (10, 40);
pub(crate) const CONNECTION_OPEN_OK: Method = (10, 41);
pub(crate) const CONNECTION_CLOSE: Method = (10, 50);
pub(crate) const CONNECTION_CLOSE_OK: Method = (10, 51);
pub(crate) const CHANNEL_OPEN: Method = (20, 10);
pub(crate) const CHANNEL_OPEN_OK: Method = (20, 11);
pub(crate) const CHANNEL_CLOSE: Method = (20, 40);
pub(crate) const EXCHANGE_DECLARE: Method = (40, 10);
pub(crate) const EXCHANGE_DECLARE_OK: Method = (40, 11);
pub(crate) const QUEUE_BIND: Method = (50, 20);
pub(crate) const QUEUE_BIND_OK: Method = (50, 21);
pub(crate) const QUEUE_DECLARE: Method = (50, 10);
pub(crate) const QUEUE_DECLARE_OK: Method = (50, 11);
pub(crate) const QUEUE_DELETE: Method = (50, 40);
pub(crate) const QUEUE_DELETE_OK: Method = (50, 41);
pub(crate) const BASIC_QOS: Method = (60, 10);
pub(crate) const BASIC_QOS_OK: Method = (60, 11);
pub(crate) const BASIC_CONSUME: Method = (60, 20);
pub(crate) const BASIC_CONSUME_OK: Method = (60, 21);
pub(crate) const BASIC_PUBLISH: Method = (60, 40);
pub(crate) const BASIC_RETURN: Method = (60, 50);
pub(crate) const BASIC_DELIVER: Method = (60, 60);
pub(crate) const BASIC_ACK: Method = (60, 80);
pub(crate) const BASIC_NACK: Method = (60, 120);
pub(crate) const TX_SELECT: Method = (90, 10);
pub(crate) const TX_SELECT_OK: Method = (90, 11);
pub(crate) const TX_COMMIT: Method = (90, 20);
pub(crate) const TX_COMMIT_OK: Method = (90, 21);
pub(crate) const CONFIRM_SELECT: Method = (85, 10);
pub(crate) const CONFIRM_SELECT_OK: Method = (85, 11);

/// A delivered message, not yet settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    pub tag: u64,
    pub body: Bytes,
}

/// The value of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    Text(&'a str),
    Number(i64),
}

// ------------------------------------------------------------------------------------------ out

/// Panics if the text is longer than a short string may be: names are the caller's own.
pub(crate) fn short_string(payload: &mut Vec<u8>, text: &str) {
    payload.push(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
    payload.extend_from_slice(text.as_bytes());
}

pub(crate) fn long_string(payload: &mut Vec<u8>, text: &str) {
    payload.extend_from_slice(&(text.len() as u32).to_be_bytes());
    payload.extend_from_slice(text.as_bytes());
}

/// A field table with its length.
pub(crate) fn table(payload: &mut Vec<u8>, arguments: &[(&str, Argument<'_>)]) {
    let begin = payload.len();
    payload.extend_from_slice(&[0; 4]);
    for (name, value) in arguments {
        short_string(payload, name);
        match value {
            Argument::Text(text) => {
                payload.push(b'S');
                long_string(payload, text);
            }
            Argument::Number(number) => {
                payload.push(b'l');
                payload.extend_from_slice(&number.to_be_bytes());
            }
        }
    }
    let length = (payload.len() - begin - 4) as u32;
    payload[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn put_method(
    unsent: &mut Vec<u8>,
    channel: u16,
    (class, method): Method,
    arguments: impl FnOnce(&mut Vec<u8>),
) {
    let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
    arguments(&mut payload);
    put_frame(unsent, METHOD, channel, &payload);
}

/// Header and body of a persistent message.
pub(crate) fn put_content(unsent: &mut Vec<u8>, channel: u16, body: &[u8]) {
    let mut header = Vec::new();
    header.extend_from_slice(&BASIC.to_be_bytes());
    header.extend_from_slice(&[0, 0]);
    header.extend_from_slice(&(body.len() as u64).to_be_bytes());
    header.extend_from_slice(&DELIVERY_MODE.to_be_bytes());
    header.push(PERSISTENT);
    put_frame(unsent, HEADER, channel, &header);
    for part in body.chunks(BODY_FRAME_BYTES) {
        put_frame(unsent, BODY, channel, part);
    }
}

fn put_frame(unsent: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    unsent.push(kind);
    unsent.extend_from_slice(&channel.to_be_bytes());
    unsent.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    unsent.extend_from_slice(payload);
    unsent.push(FRAME_END);
}

// ------------------------------------------------------------------------------------------- in

/// A received method or message.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ServerMessage {
    /// A method with its arguments. Never `basic.deliver` or `basic.return`.
    Method(Method, Bytes),
    Delivery(Delivery),
    /// Body of a mandatory message that could not be routed.
    Returned(Bytes),
}

/// Received bytes that were not handled yet.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) arrived: BytesMut,
    delivery: Option<PartialMessage>,
}

/// A message of which not all content has arrived.
#[derive(Debug)]
struct PartialMessage {
    /// `None`: the message is returned.
    tag: Option<u64>,
    /// Known once the header has arrived.
    bytes: Option<u64>,
    body: BytesMut,
}

impl Incoming {
    /// Returns the next method or message; `None` while it is incomplete.
    pub(crate) fn next(&mut self) -> Result<Option<ServerMessage>, AmqpError> {
        while let Some((kind, payload)) = self.take_frame()? {
            let came = match (kind, &self.delivery) {
                (HEARTBEAT, _) => None,
                (METHOD, None) => self.method(payload)?,
                (HEADER, Some(PartialMessage { bytes: None, .. })) => self.header(&payload)?,
                (BODY, Some(PartialMessage { bytes: Some(_), .. })) => self.body(&payload)?,
                _ => return Err(AmqpError::malformed(format!("a frame of type {kind}"))),
            };
            if came.is_some() {
                return Ok(came);
            }
        }
        Ok(None)
    }

    fn take_frame(&mut self) -> Result<Option<(u8, Bytes)>, AmqpError> {
        let Some(header) = self.arrived.first_chunk::<FRAME_HEADER_LEN>() else {
            return Ok(None);
        };
        let kind = header[0];
        let length = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(AmqpError::malformed(format!("a frame of {length} bytes")));
        }
        if self.arrived.len() < FRAME_HEADER_LEN + length + 1 {
            return Ok(None);
        }
        self.arrived.advance(FRAME_HEADER_LEN);
        let payload = self.arrived.split_to(length).freeze();
        match self.arrived.get_u8() {
            FRAME_END => Ok(Some((kind, payload))),
            _ => Err(AmqpError::malformed("a frame without its end")),
        }
    }

    fn method(&mut self, mut payload: Bytes) -> Result<Option<ServerMessage>, AmqpError> {
        let method = (read_u16(&payload, 0)?, read_u16(&payload, 2)?);
        payload.advance(4);
        if method == BASIC_RETURN {
            self.delivery = Some(PartialMessage { tag: None, bytes: None, body: BytesMut::new() });
            return Ok(None);
        }
        if method != BASIC_DELIVER {
            return Ok(Some(ServerMessage::Method(method, payload)));
        }
        let cut = || AmqpError::malformed("basic.deliver is cut short");
        let (&consumer_bytes, rest) = payload.split_first().ok_or_else(cut)?;
        let tag = rest.get(usize::from(consumer_bytes)..).and_then(|rest| rest.first_chunk());
        let tag = u64::from_be_bytes(*tag.ok_or_else(cut)?);
        self.delivery = Some(PartialMessage { tag: Some(tag), bytes: None, body: BytesMut::new() });
        Ok(None)
    }

    fn header(&mut self, payload: &[u8]) -> Result<Option<ServerMessage>, AmqpError> {
        let bytes = payload.get(4..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or_else(|| AmqpError::malformed("a header is cut short"))?;
        let bytes = u64::from_be_bytes(*bytes);
        if bytes > BODY_BYTES_MAX {
            return Err(AmqpError::malformed(format!("a message of {bytes} bytes")));
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.bytes = Some(bytes);
        }
        self.body(&[])
    }

    fn body(&mut self, part: &[u8]) -> Result<Option<ServerMessage>, AmqpError> {
        let Some(mut delivery) = self.delivery.take() else { return Ok(None) };
        delivery.body.extend_from_slice(part);
        let wanted = delivery.bytes.unwrap_or_default();
        match (delivery.body.len() as u64).cmp(&wanted) {
            std::cmp::Ordering::Less => {
                self.delivery = Some(delivery);
                Ok(None)
            }
            std::cmp::Ordering::Equal => {
                let PartialMessage { tag, body, .. } = delivery;
                let body = body.freeze();
                Ok(Some(match tag {
                    Some(tag) => ServerMessage::Delivery(Delivery { tag, body }),
                    None => ServerMessage::Returned(body),
                }))
            }
            std::cmp::Ordering::Greater => {
                Err(AmqpError::malformed("a body is longer than its header says"))
            }
        }
    }
}

/// Error for an unexpected method; most often the server closes with a reason.
pub(crate) fn unexpected(method: Method, arguments: &[u8], wanted: &[Method]) -> AmqpError {
    if method == CONNECTION_CLOSE || method == CHANNEL_CLOSE {
        let code = read_u16(arguments, 0).unwrap_or_default();
        let length = usize::from(arguments.get(2).copied().unwrap_or_default());
        let text = arguments.get(3..3 + length).unwrap_or_default();
        return AmqpError::Closed { code, text: String::from_utf8_lossy(text).into_owned() };
    }
    AmqpError::Unexpected { method, wanted: wanted.to_vec() }
}

pub(crate) fn read_u16(payload: &[u8], at: usize) -> Result<u16, AmqpError> {
    let bytes = payload.get(at..).and_then(|rest| rest.first_chunk());
    let cut = || AmqpError::malformed("a method is cut short");
    bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or_else(cut)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A delivery as a server sends it.
    fn delivered(tag: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_method(&mut bytes, 1, BASIC_DELIVER, |arguments| {
            short_string(arguments, "consumer");
            arguments.extend_from_slice(&tag.to_be_bytes());
            arguments.push(0);
        });
        put_content(&mut bytes, 1, body);
        bytes
    }

    #[test]
    fn delivery_is_returned_once_complete_however_its_bytes_are_split() {
        let body = vec![b'x'; BODY_FRAME_BYTES + 10];
        for body in [&b""[..], b"short", &body] {
            let mut incoming = Incoming::default();
            let mut came = Vec::new();
            for bytes in delivered(7, body).chunks(999) {
                incoming.arrived.extend_from_slice(bytes);
                came.extend(incoming.next().expect("sound"));
            }
            let body = Bytes::copy_from_slice(body);
            assert_eq!(came, [ServerMessage::Delivery(Delivery { tag: 7, body })]);
        }
    }

    #[test]
    fn returned_message_is_read_with_its_body() {
        let mut bytes = Vec::new();
        put_method(&mut bytes, 1, BASIC_RETURN, |arguments| {
            arguments.extend_from_slice(&312_u16.to_be_bytes());
            ["NO_ROUTE", "", "gone"].iter().for_each(|text| short_string(arguments, text));
        });
        put_content(&mut bytes, 1, b"body");
        let mut incoming = Incoming::default();
        incoming.arrived.extend_from_slice(&bytes);
        let came = incoming.next().expect("sound");
        assert_eq!(came, Some(ServerMessage::Returned(Bytes::from_static(b"body"))));
    }

    #[test]
    fn excessive_lengths_are_rejected_before_memory_is_reserved() {
        let mut incoming = Incoming::default();
        incoming.arrived.extend_from_slice(&[METHOD, 0, 1, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(incoming.next(), Err(AmqpError::Malformed(_))));
        let mut incoming = Incoming::default();
        // A delivery without its content, followed by a header with an excessive length.
        let empty = delivered(1, b"");
        let mut content = Vec::new();
        put_content(&mut content, 1, b"");
        let mut bytes = empty[..empty.len() - content.len()].to_vec();
        let claim = [&BASIC.to_be_bytes()[..], &[0, 0], &u64::MAX.to_be_bytes()].concat();
        put_frame(&mut bytes, HEADER, 1, &claim);
        incoming.arrived.extend_from_slice(&bytes);
        assert!(matches!(incoming.next(), Err(AmqpError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut incoming = Incoming::default();
            incoming.arrived.extend_from_slice(&bytes);
            while let Ok(Some(_)) = incoming.next() {}
        }

        #[test]
        fn arbitrary_frame_payloads_do_not_panic(
            kind in 0_u8..9,
            payload in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut incoming = Incoming::default();
            let mut bytes = delivered(1, b"x");
            // Drops the body of one byte, which is expected next.
            bytes.truncate(bytes.len() - FRAME_HEADER_LEN - 2);
            put_frame(&mut bytes, kind, 1, &payload);
            incoming.arrived.extend_from_slice(&bytes);
            while let Ok(Some(_)) = incoming.next() {}
        }
    }
}
