//! Scheduling slots for long work on the threads that serve sockets.
//!
//! These threads run tasks in the order in which they became ready. A record passes them six times on its way to the
//! disk and back, so a thousand requests that each run for a millisecond at a time would delay it by six seconds.
//! Work that has run for a while therefore waits for a slot, and there are fewer slots than threads: a task that
//! waits for one is not ready, and everything else runs.
//!
//! A task that has a slot never waits for another task that needs one: it releases its slot before
//! ([`YieldBudget::rest`]).

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of a node.
#[derive(Clone, Debug)]
pub struct YieldSlots(Arc<Semaphore>);

impl YieldSlots {
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.max(1))))
    }

    /// Slots for the current runtime: half of its threads, at least one.
    pub fn for_runtime() -> Self {
        Self::new(Handle::current().metrics().num_workers() / 2)
    }

    /// First come, first served.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// Number of pauses in one slot. Few tasks are in progress at a time, so that few hold memory.
const PAUSES_PER_TURN: u32 = 32;

/// Yield budget of one task: counts its steps, and pauses after a number of them. Short work pays nothing; long work
/// continues in slots.
#[derive(Debug)]
pub struct YieldBudget {
    turns: YieldSlots,
    /// Number of steps without a pause.
    at_once: u32,
    left: u32,
    turn: Option<OwnedSemaphorePermit>,
    pauses_left: u32,
}

impl YieldBudget {
    /// Creates the budget; the first `at_once` steps need no slot.
    pub fn new(turns: &YieldSlots, at_once: u32) -> Self {
        Self { turns: turns.clone(), at_once, left: at_once, turn: None, pauses_left: 0 }
    }

    /// Waits for a slot before the first step of work that is known to be long.
    pub async fn begin(&mut self) {
        if self.turn.is_none() {
            self.turn = self.turns.take().await;
            self.pauses_left = PAUSES_PER_TURN;
            self.left = self.at_once;
        }
    }

    /// To be called before work of so many steps.
    pub async fn step(&mut self, cost: u32) {
        if self.left < cost {
            self.pause().await;
        }
        self.left = self.left.saturating_sub(cost);
    }

    async fn pause(&mut self) {
        // Keeps the slot, if it has one. A task that yields runs again after the thread has polled its sockets.
        // Passing the slot on before would make another task ready, and threads with ready tasks rarely poll their
        // sockets.
        tokio::task::yield_now().await;
        if self.pauses_left == 0 {
            self.rest();
            self.begin().await;
        }
        self.pauses_left -= 1;
        self.left = self.at_once;
    }

    /// Releases the slot, before the task waits for something.
    pub fn rest(&mut self) {
        self.turn = None;
        self.pauses_left = 0;
        self.left = self.at_once;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn short_work_needs_no_slot() {
        let turns = YieldSlots::new(1);
        let mut long = YieldBudget::new(&turns, 10);
        long.begin().await;
        let mut short = YieldBudget::new(&turns, 10);
        for _ in 0..10 {
            short.step(1).await;
        }
        assert!(short.turn.is_none());
        long.rest();
        short.step(1).await;
        assert!(short.turn.is_some());
    }

    #[tokio::test]
    async fn work_above_the_budget_gets_a_slot() {
        let mut pace = YieldBudget::new(&YieldSlots::new(1), 10);
        pace.step(100).await;
        assert!(pace.turn.is_some());
        pace.step(1).await;
        assert!(pace.turn.is_some());
    }

    /// The queue of the threads: a task that only yields sees how many others ran meanwhile.
    #[tokio::test]
    async fn few_of_a_thousand_tasks_run_before_a_new_one() {
        const WORKERS: usize = 1_000;
        let turns = YieldSlots::new(1);
        let steps = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (turns, steps) = (turns.clone(), Arc::clone(&steps));
                tokio::spawn(async move {
                    let mut pace = YieldBudget::new(&turns, 1);
                    pace.begin().await;
                    for _ in 0..10 {
                        pace.step(1).await;
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // All have begun.
        tokio::task::yield_now().await;
        let mut most = 0;
        while steps.load(Ordering::Relaxed) < WORKERS * 9 {
            let before = steps.load(Ordering::Relaxed);
            tokio::task::yield_now().await;
            most = most.max(steps.load(Ordering::Relaxed) - before);
        }
        assert!(most <= 4, "{most} steps ran while one task waited for its next poll");
        for worker in workers {
            worker.await.expect("ends");
        }
    }

    #[tokio::test]
    async fn slots_rotate_and_have_a_bounded_length() {
        const TURNS_OF_EACH: u32 = 3;
        let turns = YieldSlots::new(1);
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let workers = ["a", "b", "c"].map(|name| {
            let (turns, order) = (turns.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                let mut pace = YieldBudget::new(&turns, 1);
                pace.begin().await;
                for _ in 0..TURNS_OF_EACH * PAUSES_PER_TURN {
                    order.lock().push(name);
                    pace.pause().await;
                }
            })
        });
        for worker in workers {
            worker.await.expect("ends");
        }
        let mut order = order.lock();
        order.dedup();
        assert_eq!(order.concat(), "abcabcabc");
    }
}
