//! The lock of a shard's state. A catalog's lock is taken before those of rows, and the locks of rows one at a time.
//! A thread that takes one again, even to read, deadlocks once an apply waits in between. So in builds with
//! assertions a thread that breaks the order panics at once, even without an apply.

use std::ops::{Deref, DerefMut};

use machine::State;
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::held::LockOrderGuard;

/// The smaller rank is locked first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rank {
    Catalog,
    Rows,
}

#[derive(Debug)]
pub(crate) struct StateLock {
    state: RwLock<State>,
    rank: Rank,
}

/// Guard of the state, or of a part of it: an apply waits until it is dropped.
#[derive(Debug)]
pub struct StateReadGuard<'a, T> {
    guard: MappedRwLockReadGuard<'a, T>,
    held: LockOrderGuard,
}

#[derive(Debug)]
pub(crate) struct StateWriteGuard<'a> {
    guard: RwLockWriteGuard<'a, State>,
    _held: LockOrderGuard,
}

impl StateLock {
    pub(crate) fn new(state: State, rank: Rank) -> Self {
        Self { state: RwLock::new(state), rank }
    }

    #[inline]
    pub(crate) fn read(&self) -> StateReadGuard<'_, State> {
        let held = LockOrderGuard::note(self.rank);
        StateReadGuard { guard: RwLockReadGuard::map(self.state.read(), |state| state), held }
    }

    pub(crate) fn write(&self) -> StateWriteGuard<'_> {
        let held = LockOrderGuard::note(self.rank);
        StateWriteGuard { guard: self.state.write(), _held: held }
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

impl<'a, T> StateReadGuard<'a, T> {
    #[inline]
    pub fn map<U>(self, part: impl FnOnce(&T) -> &U) -> StateReadGuard<'a, U> {
        let Self { guard, held } = self;
        StateReadGuard { guard: MappedRwLockReadGuard::map(guard, part), held }
    }
}

impl<T> Deref for StateReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl Deref for StateWriteGuard<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for StateWriteGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

/// Locks that this thread holds. Nothing in a build without assertions.
#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    use crate::state_machine::state_lock::Rank;

    thread_local! {
        /// A bit for each rank.
        static HELD: Cell<u8> = const { Cell::new(0) };
    }

    /// A lock of this thread, until dropped.
    #[derive(Debug)]
    pub(crate) struct LockOrderGuard(u8);

    impl LockOrderGuard {
        pub(crate) fn note(rank: Rank) -> Self {
            let (held, bit) = (HELD.get(), 1 << rank as u8);
            assert!(held < bit, "the lock of {rank:?} is taken by a thread that holds {held:#b}");
            HELD.set(held | bit);
            Self(bit)
        }
    }

    impl Drop for LockOrderGuard {
        fn drop(&mut self) {
            HELD.set(HELD.get() & !self.0);
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use crate::state_machine::state_lock::Rank;

    #[derive(Debug)]
    pub(crate) struct LockOrderGuard;

    impl LockOrderGuard {
        pub(crate) fn note(_: Rank) -> Self {
            Self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use machine::Role;

    use super::*;

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "only builds with assertions look")]
    fn lock_order_violation_panics_at_once() {
        let [catalog, rows, others] = [Rank::Catalog, Rank::Rows, Rank::Rows]
            .map(|rank| StateLock::new(State::of(Role::Whole), rank));
        for (held, wanted) in
            [(&catalog, &catalog), (&rows, &rows), (&rows, &others), (&rows, &catalog)]
        {
            let held = held.read();
            let panicked = catch_unwind(std::panic::AssertUnwindSafe(|| drop(wanted.read())));
            assert!(panicked.is_err());
            drop(held);
        }
        // Taken in order, and released in any order.
        let (outer, inner) = (catalog.read(), rows.read());
        drop(outer);
        drop(inner);
        drop(catalog.write());
        drop(rows.read());
    }
}
