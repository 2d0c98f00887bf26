//! Spreads messages over destinations by a hash, in proportion to weights. Adding or removing a
//! destination moves as few messages as possible.
//!
//! Jump consistent hash (Lamping and Veach, 2014) over as many buckets as the weights add up to; a
//! destination owns neighbouring buckets. Removing a destination shifts those behind it down.

use crate::message::{Headers, Message, Property, Value};
use crate::targets::BindingTarget;

/// Input of the hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashOn {
    /// The first routing key.
    Key,
    Header(Box<str>),
    Property(Property),
}

#[derive(Clone, Debug)]
pub struct ConsistentMatcher {
    on: HashOn,
    /// In the order of their buckets. A destination has one place, even if it is bound repeatedly.
    ring: Vec<Share>,
}

#[derive(Clone, Debug)]
struct Share {
    target: BindingTarget,
    /// Weights in the order of binding: the first one applies.
    weights: Vec<u32>,
    /// End of its buckets, exclusive.
    end: u64,
}

impl ConsistentMatcher {
    pub fn new(on: HashOn) -> Self {
        Self { on, ring: Vec::new() }
    }

    pub fn add(&mut self, weight: u32, target: BindingTarget) {
        match self.ring.iter_mut().find(|share| share.target == target) {
            Some(share) => share.weights.push(weight),
            None => self.ring.push(Share { target, weights: vec![weight], end: 0 }),
        }
        self.number();
    }

    /// Returns whether it was present.
    pub fn remove(&mut self, weight: u32, target: BindingTarget) -> bool {
        let Some(share) = self.ring.iter_mut().find(|share| share.target == target) else {
            return false;
        };
        let Some(place) = share.weights.iter().position(|known| *known == weight) else {
            return false;
        };
        share.weights.remove(place);
        self.ring.retain(|share| !share.weights.is_empty());
        self.number();
        true
    }

    pub fn route<H: Headers + ?Sized>(&self, message: &Message<'_, H>) -> Option<BindingTarget> {
        let buckets = self.ring.last()?.end;
        let bucket = jump(self.hash(message), buckets);
        let place = self.ring.partition_point(|share| share.end <= bucket);
        self.ring.get(place).map(|share| share.target)
    }

    fn hash<H: Headers + ?Sized>(&self, message: &Message<'_, H>) -> u64 {
        let value = match &self.on {
            HashOn::Key => message.keys.first().map(|key| Value::Bytes(key.as_bytes())),
            HashOn::Header(name) => message.headers.get(name),
            HashOn::Property(property) => message.headers.property(*property),
        };
        match value {
            // Messages without it all have the same destination.
            None | Some(Value::Void) => hash(0, &[]),
            Some(Value::Bool(yes)) => hash(1, &[u8::from(yes)]),
            Some(Value::Integer(number)) => hash(2, &number.to_be_bytes()),
            Some(Value::Float(number)) => hash(3, &number.to_be_bytes()),
            Some(Value::Bytes(bytes)) => hash(4, bytes),
            Some(Value::Encoded(bytes)) => hash(5, bytes),
        }
    }

    fn number(&mut self) {
        let mut end = 0;
        for share in &mut self.ring {
            end += share.weights.first().map_or(0, |weight| u64::from(*weight));
            share.end = end;
        }
    }
}

/// FNV-1a with SplitMix64's finalizer. Fixed forever: assignments must survive a restart.
fn hash(kind: u8, bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash =
        bytes.iter().fold(fold(0xcbf2_9ce4_8422_2325, kind), |hash, byte| fold(hash, *byte));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The bucket of a key; `buckets` is at least one.
fn jump(mut key: u64, buckets: u64) -> u64 {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let scale = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * scale) as u64;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NoHeaders;
    use crate::targets::SinkId;

    fn spread(matcher: &ConsistentMatcher, keys: u32) -> Vec<BindingTarget> {
        let route = |number: u32| {
            let key = format!("key-{number}");
            let message = Message { keys: &[key.as_str()], headers: &NoHeaders, deferred: false };
            matcher.route(&message).expect("the ring is not empty")
        };
        (0..keys).map(route).collect()
    }

    fn sink(number: u32) -> BindingTarget {
        BindingTarget::Sink(SinkId(number))
    }

    #[test]
    fn destinations_get_shares_in_proportion_to_their_weights() {
        let mut matcher = ConsistentMatcher::new(HashOn::Key);
        for (number, weight) in [(0, 1), (1, 2), (2, 7)] {
            matcher.add(weight, sink(number));
        }
        let routed = spread(&matcher, 100_000);
        for (number, weight) in [(0, 1), (1, 2), (2, 7)] {
            let share = routed.iter().filter(|target| **target == sink(number)).count();
            let expected = weight * 10_000;
            assert!(share.abs_diff(expected) < 1_000, "{share} instead of {expected}");
        }
    }

    #[test]
    fn new_destination_takes_its_share_without_moving_other_messages() {
        let mut matcher = ConsistentMatcher::new(HashOn::Key);
        for number in 0..9 {
            matcher.add(10, sink(number));
        }
        let before = spread(&matcher, 20_000);
        matcher.add(10, sink(9));
        let after = spread(&matcher, 20_000);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(b, a)| b != a).collect();
        assert!(moved.iter().all(|(_, after)| **after == sink(9)));
        assert!((1_500..2_500).contains(&moved.len()), "{}", moved.len());
        assert!(matcher.remove(10, sink(9)));
        assert_eq!(spread(&matcher, 20_000), before);
    }

    #[test]
    fn a_destination_bound_twice_has_the_share_of_its_first_weight() {
        let mut matcher = ConsistentMatcher::new(HashOn::Key);
        matcher.add(5, sink(0));
        matcher.add(u32::MAX, sink(0));
        matcher.add(5, sink(1));
        let first = spread(&matcher, 10_000).iter().filter(|t| **t == sink(0)).count();
        assert!((4_500..5_500).contains(&first), "{first}");
        assert!(matcher.remove(5, sink(0)) && matcher.remove(5, sink(1)));
        assert!(!matcher.remove(5, sink(0)));
        assert!(spread(&matcher, 10).iter().all(|target| *target == sink(0)));
    }
}
