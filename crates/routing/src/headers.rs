//! Matching by headers: all of a binding's pairs, or any of them.
//!
//! Bindings are indexed by their pairs, not tried one by one. A binding is filed under one pair
//! that it cannot match without (the one with the fewest bindings), or, if any pair suffices, under
//! all of them. A message therefore costs its own headers and the bindings that share a pair with
//! it.

use std::hash::{BuildHasher, Hash, Hasher};

use base::HashMap;
use base::collections::HashState;

use crate::message::{Headers, Value};
use crate::targets::BindingTarget;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderMatch {
    All,
    Any,
}

/// A binding's condition on headers.
#[derive(Clone, PartialEq, Debug)]
pub struct HeaderPattern {
    pub which: HeaderMatch,
    /// A name, and the value it must have; [`Pattern::Void`] for any value.
    pub pairs: Vec<(Box<str>, Pattern)>,
}

/// An owned [`Value`].
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    Void,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Bytes(Box<[u8]>),
    Encoded(Box<[u8]>),
}

impl From<Value<'_>> for Pattern {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Void => Self::Void,
            Value::Bool(yes) => Self::Bool(yes),
            Value::Integer(number) => Self::Integer(number),
            Value::Float(number) => Self::Float(number),
            Value::Bytes(bytes) => Self::Bytes(bytes.into()),
            Value::Encoded(bytes) => Self::Encoded(bytes.into()),
        }
    }
}

impl Pattern {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Void => Value::Void,
            Self::Bool(yes) => Value::Bool(*yes),
            Self::Integer(number) => Value::Integer(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Encoded(bytes) => Value::Encoded(bytes),
        }
    }
}

impl HeaderPattern {
    pub fn matches<H: Headers + ?Sized>(&self, headers: &H) -> bool {
        let pair = |(name, pattern): &(Box<str>, Pattern)| match (pattern, headers.get(name)) {
            (_, None) => false,
            (Pattern::Void, Some(_)) => true,
            (pattern, Some(value)) => pattern.value() == value,
        };
        match self.which {
            HeaderMatch::All => self.pairs.iter().all(pair),
            HeaderMatch::Any => self.pairs.iter().any(pair),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct HeadersMatcher {
    bindings: Vec<Option<Binding>>,
    free: Vec<u32>,
    /// Bindings by the hash of a pair that they are filed under.
    filed: HashMap<u64, Vec<u32>>,
    /// Bindings without a condition.
    always: Vec<u32>,
    hasher: HashState,
}

#[derive(Clone, Debug)]
struct Binding {
    pattern: HeaderPattern,
    target: BindingTarget,
    /// Number of times that it was added.
    count: u32,
    /// Hashes that it is filed under.
    places: Vec<u64>,
}

impl HeadersMatcher {
    pub fn add(&mut self, pattern: HeaderPattern, target: BindingTarget) {
        if let Some(place) = self.find(&pattern, target) {
            if let Some(binding) = &mut self.bindings[place as usize] {
                binding.count += 1;
            }
            return;
        }
        let places = self.places(&pattern);
        let place = self.free.pop().unwrap_or_else(|| {
            self.bindings.push(None);
            (self.bindings.len() - 1) as u32
        });
        if places.is_empty() && pattern.which == HeaderMatch::All {
            self.always.push(place);
        }
        for hash in &places {
            self.filed.entry(*hash).or_default().push(place);
        }
        self.bindings[place as usize] = Some(Binding { pattern, target, count: 1, places });
    }

    /// Returns whether it was present.
    pub fn remove(&mut self, pattern: &HeaderPattern, target: BindingTarget) -> bool {
        let Some(place) = self.find(pattern, target) else { return false };
        let Some(binding) = &mut self.bindings[place as usize] else { return false };
        binding.count -= 1;
        if binding.count > 0 {
            return true;
        }
        let places = std::mem::take(&mut binding.places);
        self.bindings[place as usize] = None;
        self.free.push(place);
        for hash in places {
            if let Some(filed) = self.filed.get_mut(&hash) {
                filed.retain(|other| *other != place);
                if filed.is_empty() {
                    self.filed.remove(&hash);
                }
            }
        }
        self.always.retain(|other| *other != place);
        true
    }

    /// Adds the destinations of these headers to `found`; some of them repeatedly.
    pub fn route<H: Headers + ?Sized>(&self, headers: &H, found: &mut Vec<BindingTarget>) {
        let mut try_all = |places: &[u32]| {
            for binding in places.iter().filter_map(|place| self.bindings[*place as usize].as_ref())
            {
                if binding.pattern.matches(headers) {
                    found.push(binding.target);
                }
            }
        };
        try_all(&self.always);
        headers.each(&mut |name, value| {
            for hash in [self.hash(name, Value::Void), self.hash(name, value)] {
                if let Some(places) = self.filed.get(&hash) {
                    try_all(places);
                }
                // A header without a value is filed under one hash.
                if value == Value::Void {
                    break;
                }
            }
        });
    }

    /// The hashes under which to file a new binding.
    fn places(&self, pattern: &HeaderPattern) -> Vec<u64> {
        let mut hashes: Vec<u64> =
            pattern.pairs.iter().map(|(name, value)| self.hash(name, value.value())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        match pattern.which {
            HeaderMatch::Any => hashes,
            HeaderMatch::All => {
                let filed = |hash: &u64| self.filed.get(hash).map_or(0, Vec::len);
                hashes.into_iter().min_by_key(filed).into_iter().collect()
            }
        }
    }

    fn find(&self, pattern: &HeaderPattern, target: BindingTarget) -> Option<u32> {
        let same = |place: &u32| {
            let binding = self.bindings[*place as usize].as_ref();
            binding.is_some_and(|known| known.target == target && known.pattern == *pattern)
        };
        if let Some(place) = self.always.iter().copied().find(same) {
            return Some(place);
        }
        let hashes = pattern.pairs.iter().map(|(name, value)| self.hash(name, value.value()));
        let mut filed = hashes.filter_map(|hash| self.filed.get(&hash));
        if let Some(place) = filed.find_map(|places| places.iter().copied().find(same)) {
            return Some(place);
        }
        // A binding that requires any of no pairs matches nothing, and is filed nowhere.
        if pattern.which == HeaderMatch::Any && pattern.pairs.is_empty() {
            let places = 0..self.bindings.len() as u32;
            return places.into_iter().find(same);
        }
        None
    }

    fn hash(&self, name: &str, value: Value<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        name.hash(&mut hasher);
        match value {
            Value::Void => 0_u8.hash(&mut hasher),
            Value::Bool(yes) => (1_u8, yes).hash(&mut hasher),
            Value::Integer(number) => (2_u8, number).hash(&mut hasher),
            // 0.0 equals -0.0.
            Value::Float(number) => (3_u8, (number + 0.0).to_bits()).hash(&mut hasher),
            Value::Bytes(bytes) => (4_u8, bytes).hash(&mut hasher),
            Value::Encoded(bytes) => (5_u8, bytes).hash(&mut hasher),
        }
        hasher.finish()
    }
}
