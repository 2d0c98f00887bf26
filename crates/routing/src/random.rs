//! Spreads messages over destinations randomly.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::targets::{BindingTarget, Targets};

/// Randomness is a counter with mixed bits: all messages of a node share it, so that they are
/// spread evenly, however many sessions publish and however few messages each of them has.
#[derive(Debug, Default)]
pub struct RandomMatcher {
    pub(crate) targets: Targets,
    messages: AtomicU64,
}

impl Clone for RandomMatcher {
    fn clone(&self) -> Self {
        let messages = AtomicU64::new(self.messages.load(Ordering::Relaxed));
        Self { targets: self.targets.clone(), messages }
    }
}

impl RandomMatcher {
    pub(crate) fn choose(&self) -> Option<BindingTarget> {
        let count = self.targets.len();
        if count == 0 {
            return None;
        }
        let number = mix(self.messages.fetch_add(1, Ordering::Relaxed));
        // The upper half of the product with 64 bits: avoids the bias and the division of a
        // remainder.
        let place = (u128::from(number) * count as u128) >> 64;
        self.targets.get(place as usize)
    }
}

/// SplitMix64.
fn mix(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::SinkId;

    #[test]
    fn every_message_has_one_destination_and_every_destination_its_share() {
        let mut random = RandomMatcher::default();
        assert_eq!(random.choose(), None);
        let targets: Vec<BindingTarget> =
            (0..4).map(|id| BindingTarget::Sink(SinkId(id))).collect();
        targets.iter().for_each(|target| random.targets.add(*target));
        let mut counts = [0; 4];
        for _ in 0..4_000 {
            let chosen = random.choose().expect("there are some");
            counts[targets.iter().position(|target| *target == chosen).expect("a bound one")] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        random.targets.remove(targets[0]);
        assert!((0..100).all(|_| random.choose() != Some(targets[0])));
    }
}
