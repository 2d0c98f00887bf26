//! Records of the markers topic, byte for byte as KMQ's own library writes them, so that its
//! trackers and these are compatible.

/// Position of a message in the queue's topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) partition: i32,
    pub(super) offset: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    /// A receiver has the message, and this long to finish it.
    Start {
        redeliver_after_ms: i64,
    },
    End,
}

const START: u8 = 1;
const END: u8 = 0;

/// Header of a redelivered message with its number of redeliveries.
pub(super) const REDELIVERIES: &str = "kmq-redelivery-count";

impl Key {
    pub(super) fn encode(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.partition.to_be_bytes());
        bytes[4..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (partition, offset) = bytes.split_first_chunk()?;
        let offset = i64::from_be_bytes(offset.try_into().ok()?);
        Some(Self { partition: i32::from_be_bytes(*partition), offset })
    }
}

impl Marker {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Start { redeliver_after_ms } => {
                let mut bytes = vec![START];
                bytes.extend_from_slice(&redeliver_after_ms.to_be_bytes());
                bytes
            }
            Self::End => vec![END],
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&START, rest) => {
                let redeliver_after_ms = i64::from_be_bytes(rest.try_into().ok()?);
                Some(Self::Start { redeliver_after_ms })
            }
            (&END, []) => Some(Self::End),
            _ => None,
        }
    }
}

/// Encodes in one byte if it fits, else in four.
pub(super) fn encode_count(count: i32) -> Vec<u8> {
    match i8::try_from(count) {
        Ok(count) => count.to_be_bytes().to_vec(),
        Err(_) => count.to_be_bytes().to_vec(),
    }
}

pub(super) fn decode_count(bytes: &[u8]) -> Option<i32> {
    match *bytes {
        [byte] => Some(i8::from_be_bytes([byte]).into()),
        _ => Some(i32::from_be_bytes(bytes.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_the_encoding_of_kmq() {
        let key = Key { partition: 3, offset: 258 };
        assert_eq!(key.encode(), [0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2]);
        let start = Marker::Start { redeliver_after_ms: 15_000 };
        assert_eq!(start.encode(), [1, 0, 0, 0, 0, 0, 0, 0x3a, 0x98]);
        assert_eq!(Marker::End.encode(), [0]);
        assert_eq!(encode_count(3), [3]);
        assert_eq!(encode_count(300), [0, 0, 1, 0x2c]);
    }

    #[test]
    fn markers_round_trip() {
        let key = Key { partition: i32::MAX, offset: i64::MAX };
        assert_eq!(Key::decode(&key.encode()), Some(key));
        for marker in [Marker::Start { redeliver_after_ms: 1 }, Marker::End] {
            assert_eq!(Marker::decode(&marker.encode()), Some(marker));
        }
        for count in [0, 127, 128, i32::MAX] {
            assert_eq!(decode_count(&encode_count(count)), Some(count));
        }
    }

    #[test]
    fn malformed_markers_do_not_decode() {
        assert_eq!(Key::decode(&[0; 11]), None);
        assert_eq!(Key::decode(&[0; 13]), None);
        for bytes in [&[][..], &[1][..], &[1, 2, 3][..], &[0, 0][..], &[2][..]] {
            assert_eq!(Marker::decode(bytes), None);
        }
        assert_eq!(decode_count(&[1, 2]), None);
    }
}
