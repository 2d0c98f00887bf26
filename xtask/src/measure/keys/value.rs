//! Value of a record: its key, its place among the key's records, and its send time.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::lanes::KeySequence;

const VALUE_BYTES: usize = 16;

pub(super) fn value(place: KeySequence, sent_ns: u64) -> Bytes {
    let mut value = BytesMut::with_capacity(VALUE_BYTES);
    value.put_u32(place.key);
    value.put_u32(place.sequence);
    value.put_u64(sent_ns);
    value.freeze()
}

/// Place and send time of a record; no time if its latency is not measured.
pub(super) fn parse(value: &[u8]) -> Option<(KeySequence, Option<Duration>)> {
    let (key, rest) = value.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let sent_ns = u64::from_be_bytes(*rest.first_chunk()?);
    let place =
        KeySequence { key: u32::from_be_bytes(*key), sequence: u32::from_be_bytes(*sequence) };
    Some((place, (sent_ns > 0).then(|| Duration::from_nanos(sent_ns))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_carries_its_place_and_send_time() {
        let place = KeySequence { key: 7, sequence: 3 };
        let sent = Duration::from_millis(5);
        assert_eq!(parse(&value(place, sent.as_nanos() as u64)), Some((place, Some(sent))));
        assert_eq!(parse(&value(place, 0)), Some((place, None)));
        assert_eq!(parse(b"short"), None);
    }
}
