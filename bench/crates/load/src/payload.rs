//! Message bodies: a stamp for the audit, and bytes with the test's compressibility.

use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

/// Size of the stamp at the start of every message.
pub const STAMP_BYTES: usize = 28;

const MAGIC: [u8; 2] = *b"PR";

/// Identity of a message and its due time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) sender: u16,
    /// Number among all lanes of the test.
    pub(crate) lane: u32,
    /// Number among the messages of this sender: 0, 1, 2, ... up to 48 bits.
    pub(crate) sequence: u64,
    /// When it was due, in nanoseconds since 1970; in a closed loop, when it was sent.
    pub(crate) due_ns: u64,
    /// Delay from the due time to the send, in microseconds.
    pub(crate) delay_us: u32,
}

impl Stamp {
    pub(crate) fn sent_ns(self) -> u64 {
        self.due_ns.saturating_add(u64::from(self.delay_us) * 1_000)
    }
}

/// Generation of the bytes behind the stamp.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entropy {
    /// The share of random bytes, at the front; zeros follow.
    pub random_ratio: f64,
    /// Number of different bodies.
    pub pool: u16,
}

impl Default for Entropy {
    /// As in OpenMessaging Benchmark's own workloads.
    fn default() -> Self {
        Self { random_ratio: 0.5, pool: 1000 }
    }
}

/// The bytes behind the stamp.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Content {
    Random(Entropy),
    /// The same for all messages, and as long as they are; the stamp replaces its beginning.
    Fixed(Bytes),
}

impl Default for Content {
    fn default() -> Self {
        Self::Random(Entropy::default())
    }
}

/// Makes bodies, and detects changed ones. The same seed makes the same bodies.
#[derive(Debug)]
pub(crate) struct Payload {
    pool: Vec<Box<[u8]>>,
}

/// Reason that a body is not one that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// Too short, or without the magic bytes: not sent by this test.
    Foreign,
    /// Sent by this test and altered since.
    Changed,
}

impl Payload {
    /// Bodies of `bytes` bytes. `None`: the stamp does not fit.
    pub(crate) fn new(bytes: usize, content: &Content, seed: u64) -> Option<Self> {
        let rest = bytes.checked_sub(STAMP_BYTES)?;
        let entropy = match content {
            Content::Random(entropy) => *entropy,
            Content::Fixed(body) => {
                return Some(Self { pool: vec![body.get(STAMP_BYTES..bytes)?.into()] });
            }
        };
        let mut random = StdRng::seed_from_u64(seed);
        let random_bytes = (rest as f64 * entropy.random_ratio.clamp(0.0, 1.0)) as usize;
        let one = |_| {
            let mut body = vec![0; rest];
            random.fill_bytes(&mut body[..random_bytes]);
            body.into_boxed_slice()
        };
        Some(Self { pool: (0..entropy.pool.max(1)).map(one).collect() })
    }

    pub(crate) fn bytes(&self) -> usize {
        STAMP_BYTES + self.pool[0].len()
    }

    pub(crate) fn body(&self, stamp: Stamp, random: &mut impl Rng) -> Bytes {
        let entry = random.random_range(0..self.pool.len());
        let mut body = BytesMut::with_capacity(self.bytes());
        body.extend_from_slice(&MAGIC);
        body.extend_from_slice(&(entry as u16).to_be_bytes());
        body.extend_from_slice(&stamp.sender.to_be_bytes());
        body.extend_from_slice(&stamp.lane.to_be_bytes());
        body.extend_from_slice(&stamp.sequence.to_be_bytes()[2..]);
        body.extend_from_slice(&stamp.due_ns.to_be_bytes());
        body.extend_from_slice(&stamp.delay_us.to_be_bytes());
        body.extend_from_slice(&self.pool[entry]);
        body.freeze()
    }

    /// Stamp of a received body.
    pub(crate) fn read(&self, body: &[u8]) -> Result<Stamp, Damage> {
        let (stamp, rest) = body.split_at_checked(STAMP_BYTES).ok_or(Damage::Foreign)?;
        let (magic, stamp) = stamp.split_at(2);
        if magic != MAGIC {
            return Err(Damage::Foreign);
        }
        let number = |at: usize, bytes: usize| {
            stamp[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let sent = self.pool.get(number(0, 2) as usize).ok_or(Damage::Changed)?;
        if **sent != *rest {
            return Err(Damage::Changed);
        }
        Ok(Stamp {
            sender: number(2, 2) as u16,
            lane: number(4, 4) as u32,
            sequence: number(8, 6),
            due_ns: number(14, 8),
            delay_us: number(22, 4) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        sender: 700,
        lane: 1 << 20,
        sequence: (1 << 48) - 2,
        due_ns: 1_700_000_000_000_000_000,
        delay_us: 1_234_567,
    };

    #[test]
    fn body_has_its_size_and_returns_its_stamp() {
        for bytes in [STAMP_BYTES, 100, 1024] {
            let payload = Payload::new(bytes, &Content::default(), 1).expect("fits");
            let body = payload.body(STAMP, &mut rand::rng());
            assert_eq!(body.len(), bytes);
            assert_eq!(payload.read(&body), Ok(STAMP));
        }
        assert!(Payload::new(STAMP_BYTES - 1, &Content::default(), 1).is_none());
    }

    #[test]
    fn changed_body_is_detected() {
        let payload = Payload::new(100, &Content::default(), 1).expect("fits");
        let body = payload.body(STAMP, &mut rand::rng());
        for at in (STAMP_BYTES..100).step_by(9) {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            assert_eq!(payload.read(&changed), Err(Damage::Changed));
        }
        assert_eq!(payload.read(&body[..99]), Err(Damage::Changed));
        assert_eq!(payload.read(&body[..10]), Err(Damage::Foreign));
        assert_eq!(payload.read(&[0; 100]), Err(Damage::Foreign));
    }

    #[test]
    fn a_ratio_of_one_half_leaves_the_other_half_zeros() {
        let payload = Payload::new(1024, &Content::default(), 3).expect("fits");
        let body = payload.body(STAMP, &mut rand::rng());
        assert!(body[STAMP_BYTES + 498..].iter().all(|byte| *byte == 0));
        assert!(
            body[STAMP_BYTES..STAMP_BYTES + 498].iter().filter(|byte| **byte != 0).count() > 400
        );
    }

    #[test]
    fn fixed_content_follows_the_stamp() {
        let file = Bytes::from(vec![7; 64]);
        let payload = Payload::new(64, &Content::Fixed(file.clone()), 1).expect("fits");
        let body = payload.body(STAMP, &mut rand::rng());
        assert_eq!((payload.read(&body), &body[STAMP_BYTES..]), (Ok(STAMP), &file[STAMP_BYTES..]));
        assert!(Payload::new(65, &Content::Fixed(file), 1).is_none());
    }
}
