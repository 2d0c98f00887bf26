//! Turns: how long work shares the threads that serve sockets.
//!
//! These threads run what is ready in the order in which it became ready. A record passes them six
//! times on its way to the disk and back, so a thousand requests that each run for a millisecond at a
//! time would delay it by six seconds. Work that has run for a while therefore waits for a turn, and
//! there are fewer turns than threads: what waits for one is not ready, and everything else passes.
//!
//! Whoever has a turn never waits for something that others need a turn to give: it gives its own back
//! before ([`Pace::rest`]).

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of a node.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.max(1))))
    }

    /// For the runtime that this is called in: half of its threads, at least one.
    pub fn of_runtime() -> Self {
        Self::new(Handle::current().metrics().num_workers() / 2)
    }

    /// First come, first served.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

/// Pauses in one turn. Few pieces of work are begun and not done, so that few hold memory.
const PAUSES_PER_TURN: u32 = 32;

/// Counts the steps of one piece of work, and pauses after so many. Short work pays nothing; long
/// work goes on in turns.
#[derive(Debug)]
pub struct Pace {
    turns: Turns,
    /// Steps without a pause.
    at_once: u32,
    left: u32,
    turn: Option<OwnedSemaphorePermit>,
    pauses_left: u32,
}

impl Pace {
    /// The first `at_once` steps need no turn.
    pub fn new(turns: &Turns, at_once: u32) -> Self {
        Self { turns: turns.clone(), at_once, left: at_once, turn: None, pauses_left: 0 }
    }

    /// For work that is known to be long: it waits for a turn before its first step.
    pub async fn begin(&mut self) {
        if self.turn.is_none() {
            self.turn = self.turns.take().await;
            self.pauses_left = PAUSES_PER_TURN;
            self.left = self.at_once;
        }
    }

    /// Before work of so many steps.
    pub async fn step(&mut self, cost: u32) {
        if self.left < cost {
            self.pause().await;
        }
        self.left = self.left.saturating_sub(cost);
    }

    async fn pause(&mut self) {
        // With the turn, if it has one. A task that yields runs again after the thread has looked at its
        // sockets; handed on before, the turn would make another task ready, and threads that have
        // something ready look at their sockets rarely.
        tokio::task::yield_now().await;
        if self.pauses_left == 0 {
            self.rest();
            self.begin().await;
        }
        self.pauses_left -= 1;
        self.left = self.at_once;
    }

    /// Gives the turn back, before something is waited for.
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
    async fn short_work_needs_no_turn() {
        let turns = Turns::new(1);
        let mut long = Pace::new(&turns, 10);
        long.begin().await;
        let mut short = Pace::new(&turns, 10);
        for _ in 0..10 {
            short.step(1).await;
        }
        assert!(short.turn.is_none());
        long.rest();
        short.step(1).await;
        assert!(short.turn.is_some());
    }

    #[tokio::test]
    async fn work_that_costs_more_than_a_turn_gets_one_for_itself() {
        let mut pace = Pace::new(&Turns::new(1), 10);
        pace.step(100).await;
        assert!(pace.turn.is_some());
        pace.step(1).await;
        assert!(pace.turn.is_some());
    }

    /// The queue of the threads: a task that only yields sees how many others ran meanwhile.
    #[tokio::test]
    async fn of_a_thousand_at_work_few_are_ahead_of_whoever_comes() {
        const WORKERS: usize = 1_000;
        let turns = Turns::new(1);
        let steps = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (turns, steps) = (turns.clone(), Arc::clone(&steps));
                tokio::spawn(async move {
                    let mut pace = Pace::new(&turns, 1);
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
    async fn turns_go_round_and_are_of_a_bounded_length() {
        const TURNS_OF_EACH: u32 = 3;
        let turns = Turns::new(1);
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let workers = ["a", "b", "c"].map(|name| {
            let (turns, order) = (turns.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                let mut pace = Pace::new(&turns, 1);
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
