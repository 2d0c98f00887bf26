//! Messages in the broker's storage format, and the metadata of a pop.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use driver::Failure;

/// Format with a topic of up to 127 bytes, and with a longer one.
const MAGIC: [u32; 2] = [0xdaa3_20a7, 0xdaa3_20ab];
/// Flags of a message: the host of its producer, and of its store, has an IPv6 address.
const BORN_HOST_V6: u32 = 1 << 4;
const STORE_HOST_V6: u32 = 1 << 5;
/// Prefix of retry topics.
const RETRY: &str = "%RETRY%";

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    /// The topic in which it is stored; for a redelivered message the group's retry topic.
    pub(super) topic: String,
    pub(super) queue: u32,
    pub(super) offset: u64,
    /// Number of earlier deliveries.
    pub(super) times: u32,
    pub(super) body: Bytes,
}

impl Stored {
    /// Whether it is a redelivery.
    pub(super) fn is_retry(&self) -> bool {
        self.topic.starts_with(RETRY)
    }
}

/// Parses all messages of a body.
pub(super) fn messages(mut body: Bytes) -> Result<Vec<Stored>, Failure> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let message = message(&mut body);
        messages.push(message.ok_or_else(|| Failure::unknown("a message that cannot be read"))?);
    }
    Ok(messages)
}

fn message(from: &mut Bytes) -> Option<Stored> {
    let size = (from.try_get_u32().ok()? as usize).checked_sub(4)?;
    if size > from.len() {
        return None;
    }
    let mut from = from.split_to(size);
    let magic = from.try_get_u32().ok()?;
    if !MAGIC.contains(&magic) {
        return None;
    }
    let _checksum = from.try_get_u32().ok()?;
    let queue = from.try_get_u32().ok()?;
    let _flag = from.try_get_u32().ok()?;
    let offset = from.try_get_u64().ok()?;
    let _position = from.try_get_u64().ok()?;
    let flags = from.try_get_u32().ok()?;
    let host = |long: u32| if flags & long == 0 { 4 + 4 } else { 16 + 4 };
    let _born = from.try_get_u64().ok()?;
    skip(&mut from, host(BORN_HOST_V6))?;
    let _stored = from.try_get_u64().ok()?;
    skip(&mut from, host(STORE_HOST_V6))?;
    let times = from.try_get_u32().ok()?;
    let _transaction = from.try_get_u64().ok()?;
    let length = from.try_get_u32().ok()? as usize;
    let body = part(&mut from, length)?;
    let length = match magic == MAGIC[0] {
        true => from.try_get_u8().ok()? as usize,
        false => from.try_get_u16().ok()? as usize,
    };
    let topic = String::from_utf8(part(&mut from, length)?.into()).ok()?;
    Some(Stored { topic, queue, offset, times, body })
}

fn part(from: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= from.len()).then(|| from.split_to(length))
}

fn skip(from: &mut Bytes, length: usize) -> Option<()> {
    part(from, length).map(drop)
}

/// `0 QUEUE NUMBER;1 QUEUE NUMBER`: numbers of the topic's queues, and of the retry topic's.
#[derive(Debug)]
pub(super) struct PerQueue(HashMap<(bool, String), u64>);

impl PerQueue {
    pub(super) fn parse(text: &str) -> Self {
        let entry = |entry: &str| {
            let mut words = entry.split(' ');
            let (kind, queue, number) = (words.next()?, words.next()?, words.next()?);
            Some(((kind != "0", queue.to_owned()), number.parse().ok()?))
        };
        Self(text.split(';').filter_map(entry).collect())
    }

    fn get(&self, message: &Stored, key: String) -> Option<u64> {
        self.0.get(&(message.is_retry(), key)).copied()
    }

    /// The number of the message's queue.
    pub(super) fn of(&self, message: &Stored) -> Option<u64> {
        self.get(message, message.queue.to_string())
    }

    /// The number of the message itself, or else of its queue.
    pub(super) fn for_message(&self, message: &Stored) -> Option<u64> {
        let one = format!("qo{}%{}", message.queue, message.offset);
        self.get(message, one).or_else(|| self.of(message))
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;

    fn stored(topic: &str, flags: u32, body: &[u8]) -> BytesMut {
        let mut inner = BytesMut::new();
        inner.put_u32(MAGIC[0]);
        inner.put_u32(0);
        inner.put_u32(3);
        inner.put_u32(0);
        inner.put_u64(42);
        inner.put_u64(0);
        inner.put_u32(flags);
        for long in [BORN_HOST_V6, STORE_HOST_V6] {
            inner.put_u64(0);
            inner.put_bytes(0, if flags & long == 0 { 8 } else { 20 });
        }
        inner.put_u32(2);
        inner.put_u64(0);
        inner.put_u32(body.len() as u32);
        inner.put_slice(body);
        inner.put_u8(topic.len() as u8);
        inner.put_slice(topic.as_bytes());
        inner.put_u16(3);
        inner.put_slice(b"a\x01b");
        let mut whole = BytesMut::new();
        whole.put_u32(inner.len() as u32 + 4);
        whole.put_slice(&inner);
        whole
    }

    #[test]
    fn messages_are_parsed_in_sequence() {
        let mut body = stored("topic", 0, b"one");
        body.put(stored("%RETRY%group_topic", BORN_HOST_V6 | STORE_HOST_V6, b"two"));
        let read = messages(body.freeze()).expect("are messages");
        let expected = |topic: &str, body: &'static [u8]| Stored {
            topic: topic.into(),
            queue: 3,
            offset: 42,
            times: 2,
            body: Bytes::from_static(body),
        };
        assert_eq!(read, [expected("topic", b"one"), expected("%RETRY%group_topic", b"two")]);
    }

    #[test]
    fn truncated_and_malformed_messages_are_errors() {
        let whole = stored("topic", 0, b"one").freeze();
        assert!(messages(whole.slice(..whole.len() - 1)).is_err());
        assert!(messages(Bytes::from_static(b"\0\0\0\x08none")).is_err());
        assert!(messages(Bytes::from_static(b"\0\0\0\x01")).is_err());
    }

    #[test]
    fn pop_metadata_has_start_offsets_and_delivery_counts() {
        let mut message =
            Stored { topic: "topic".into(), queue: 1, offset: 7, times: 0, body: Bytes::new() };
        let starts = PerQueue::parse("0 0 5;0 1 6;1 1 2");
        assert_eq!(starts.of(&message), Some(6));
        let counts = PerQueue::parse("0 1 1;0 qo1%7 3");
        assert_eq!(counts.for_message(&message), Some(3));
        message.offset = 8;
        assert_eq!(counts.for_message(&message), Some(1));
        message.topic = "%RETRY%group_topic".into();
        assert_eq!(starts.of(&message), Some(2));
        assert_eq!(PerQueue::parse("").of(&message), None);
    }
}
