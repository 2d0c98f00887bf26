//! Locks by name, for changes that wait for the disk.
//!
//! A change reads, waits until its documents are durable, and only then changes memory. Changes of one entity must be
//! serialized, while changes of different entities must overlap, because they share a sync. Names are hashed to a
//! fixed number of locks: two names on one lock wait for no reason, which is rare and harmless. Locks are taken in
//! one order, so that there is no deadlock.

use std::hash::{BuildHasher, Hash};

use base::collections::HashState;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

const STRIPES: usize = 256;

#[derive(Debug)]
pub(crate) struct Stripes {
    locks: Box<[RwLock<()>]>,
    hasher: HashState,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key<'a> {
    Exchange(&'a str),
    Queue(&'a str),
    /// The bindings from an exchange to a destination.
    Pair(&'a str, &'a crate::exchange::Destination),
}

/// In order of strength.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Access {
    /// The entity must not change.
    Keep,
    Change,
}

/// A lock, released when dropped.
#[derive(Debug)]
pub(crate) enum StripeGuard<'a> {
    #[allow(dead_code, reason = "held for its lock")]
    Keep(RwLockReadGuard<'a, ()>),
    #[allow(dead_code, reason = "held for its lock")]
    Change(RwLockWriteGuard<'a, ()>),
}

impl Default for Stripes {
    fn default() -> Self {
        let locks = (0..STRIPES).map(|_| RwLock::new(())).collect();
        Self { locks, hasher: HashState::default() }
    }
}

impl Stripes {
    pub(crate) async fn lock(&self, keys: &[(Key<'_>, Access)]) -> Vec<StripeGuard<'_>> {
        let place = |key: &Key<'_>| self.hasher.hash_one(key) as usize % STRIPES;
        let mut places: Vec<_> = keys.iter().map(|(key, access)| (place(key), *access)).collect();
        // The stronger access sorts first, and is the one that remains.
        places.sort_unstable_by_key(|(place, access)| (*place, std::cmp::Reverse(*access)));
        places.dedup_by_key(|(place, _)| *place);
        let mut held = Vec::with_capacity(places.len());
        for (place, access) in places {
            held.push(match access {
                Access::Keep => StripeGuard::Keep(self.locks[place].read().await),
                Access::Change => StripeGuard::Change(self.locks[place].write().await),
            });
        }
        held
    }
}
