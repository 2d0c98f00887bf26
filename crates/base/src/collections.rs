//! Hash maps whose order a seed fixes.
//!
//! The iteration order of a map depends on the keys of its hash. In a server these are random, so that a client
//! cannot predict which names collide. In a simulation a seed fixes them, so that the same seed reproduces the
//! same run. One process is one run: the seed belongs to the process.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, RandomState};

pub use hashbrown::hash_map::Entry;

pub type HashMap<K, V> = hashbrown::HashMap<K, V, HashState>;
pub type HashSet<T> = hashbrown::HashSet<T, HashState>;

static PROCESS: OnceLock<ProcessSeed> = OnceLock::new();

struct ProcessSeed {
    shared: &'static SharedSeed,
    /// Where each thread begins to count its maps.
    first: u64,
}

thread_local! {
    static NEXT: Cell<u64> = Cell::new(process().first);
}

fn process() -> &'static ProcessSeed {
    PROCESS.get_or_init(|| {
        let shared = SharedSeed::global_random();
        ProcessSeed { shared, first: RandomState::default().hash_one(0) }
    })
}

/// Makes the order of every map of the process follow from `seed` and from the order in which a thread creates
/// them. Returns `false` if a map was created before.
pub fn seed(seed: u64) -> bool {
    // Once a process.
    let shared = Box::leak(Box::new(SharedSeed::from_u64(seed)));
    PROCESS.set(ProcessSeed { shared, first: seed }).is_ok()
}

/// The keys of one map's hash. Maps have different ones: copying one map into another in its own order
/// would take time that grows with the square of its size if they had the same.
#[derive(Clone, Debug)]
pub struct HashState(u64);

/// An odd number far from small ones: the keys of two maps differ in many bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for HashState {
    fn default() -> Self {
        NEXT.with(|next| Self(next.replace(next.get().wrapping_add(STEP))))
    }
}

impl BuildHasher for HashState {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> FoldHasher<'static> {
        FoldHasher::with_seed(self.0, process().shared)
    }
}
