//! Random bytes as a dependency: ids, salts, secrets.

use std::fmt::Debug;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::{Builder, Uuid};

pub trait Entropy: Send + Sync + Debug + 'static {
    /// Fills `bytes`. The machine's entropy is fit for secrets.
    fn fill(&self, bytes: &mut [u8]);

    fn u32(&self) -> u32 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Version 4 (RFC 9562, section 5.4).
    fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// The entropy of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    /// # Panics
    ///
    /// If the kernel has none, which does not happen once Linux has started: a node must not run with ids that may
    /// repeat.
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            panic!("the system gives no random bytes: {error}");
        }
    }
}

/// The same bytes for the same seed, in the order of the requests. Not for secrets.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<SmallRng>);

impl SeededEntropy {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(SmallRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_repeats_the_bytes_and_another_seed_differs() {
        let give = |seed| {
            let entropy = SeededEntropy::new(seed);
            (entropy.u32(), entropy.u64(), entropy.uuid())
        };
        assert_eq!(give(1), give(1));
        assert_ne!(give(1), give(2));
    }

    #[test]
    fn uuids_have_version_4_and_differ() {
        let entropies: [&dyn Entropy; 2] = [&OsEntropy, &SeededEntropy::new(7)];
        for entropy in entropies {
            let (one, other) = (entropy.uuid(), entropy.uuid());
            assert_eq!(one.get_version(), Some(uuid::Version::Random));
            assert_ne!(one, other);
        }
    }
}
