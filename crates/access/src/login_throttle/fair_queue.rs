//! Turns at a scarce resource, by key: requests of one key are served in their order, and keys take turns. A flood of
//! one address thus delays its own log-ins, not those of others.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Hands out turns. Clones share them.
#[derive(Debug)]
pub(crate) struct FairQueue<K: Eq + Hash + Clone>(Arc<Shared<K>>);

impl<K: Eq + Hash + Clone> Clone for FairQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Shared<K> {
    /// Turns at a time, of all keys.
    total: usize,
    /// Turns at a time, of one key.
    each: usize,
    /// Limit of waiting requests of one key.
    waiting_max: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    taken: usize,
    keys: HashMap<K, Queue>,
    /// Keys with waiting requests and a free turn, in the order in which they are served.
    ready: VecDeque<K>,
}

#[derive(Debug, Default)]
struct Queue {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<()>>,
    is_ready: bool,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FairQueueSlot<K: Eq + Hash + Clone> {
    turns: FairQueue<K>,
    key: K,
}

/// Too many requests of this key are waiting already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueFull;

impl<K: Eq + Hash + Clone> FairQueue<K> {
    pub(crate) fn new(total: usize, each: usize, waiting_max: usize) -> Self {
        let state = State { taken: 0, keys: HashMap::default(), ready: VecDeque::new() };
        Self(Arc::new(Shared { total, each, waiting_max, state: Mutex::new(state) }))
    }

    /// Waits for a turn of this key.
    pub(crate) async fn take(&self, key: K) -> Result<FairQueueSlot<K>, QueueFull> {
        let mut entry = {
            let mut state = self.0.state.lock();
            let queue = state.keys.entry(key.clone()).or_default();
            if queue.waiting.len() >= self.0.waiting_max {
                return Err(QueueFull);
            }
            let (sender, receiver) = oneshot::channel();
            queue.waiting.push_back(sender);
            self.0.serve(&mut state, Some(&key));
            QueuedRequest { turns: self, key, receiver, has_begun: false }
        };
        // A sender is never dropped without being used.
        let _ = (&mut entry.receiver).await;
        Ok(entry.begin())
    }
}

/// A waiting request. Dropping it removes it from the queue.
struct QueuedRequest<'t, K: Eq + Hash + Clone> {
    turns: &'t FairQueue<K>,
    key: K,
    receiver: oneshot::Receiver<()>,
    has_begun: bool,
}

impl<K: Eq + Hash + Clone> QueuedRequest<'_, K> {
    fn begin(mut self) -> FairQueueSlot<K> {
        self.has_begun = true;
        FairQueueSlot { turns: self.turns.clone(), key: self.key.clone() }
    }
}

impl<K: Eq + Hash + Clone> Drop for QueuedRequest<'_, K> {
    fn drop(&mut self) {
        if self.has_begun {
            return;
        }
        self.receiver.close();
        if self.receiver.try_recv().is_ok() {
            // Its turn had begun meanwhile.
            drop(FairQueueSlot { turns: self.turns.clone(), key: self.key.clone() });
            return;
        }
        let mut state = self.turns.0.state.lock();
        if let Some(queue) = state.keys.get_mut(&self.key) {
            queue.waiting.retain(|waiting| !waiting.is_closed());
        }
        self.turns.0.forget_idle(&mut state, &self.key);
    }
}

impl<K: Eq + Hash + Clone> Drop for FairQueueSlot<K> {
    fn drop(&mut self) {
        let shared = &self.turns.0;
        let mut state = shared.state.lock();
        state.taken -= 1;
        if let Some(queue) = state.keys.get_mut(&self.key) {
            queue.taken -= 1;
        }
        shared.serve(&mut state, Some(&self.key));
        shared.forget_idle(&mut state, &self.key);
    }
}

impl<K: Eq + Hash + Clone> Shared<K> {
    /// Begins as many turns as there is room for. `changed`: the key whose turn began or ended.
    fn serve(&self, state: &mut State<K>, changed: Option<&K>) {
        if let Some(key) = changed {
            self.make_ready(state, key);
        }
        while state.taken < self.total
            && let Some(key) = state.ready.pop_front()
        {
            let Some(queue) = state.keys.get_mut(&key) else { continue };
            queue.is_ready = false;
            let Some(next) = queue.waiting.pop_front() else { continue };
            // A waiter that has left gets no turn.
            if next.send(()).is_ok() {
                queue.taken += 1;
                state.taken += 1;
            }
            self.make_ready(state, &key);
        }
    }

    fn make_ready(&self, state: &mut State<K>, key: &K) {
        let Some(queue) = state.keys.get_mut(key) else { return };
        if !queue.is_ready && queue.taken < self.each && !queue.waiting.is_empty() {
            queue.is_ready = true;
            state.ready.push_back(key.clone());
        }
    }

    fn forget_idle(&self, state: &mut State<K>, key: &K) {
        let is_idle = |queue: &Queue| queue.taken == 0 && queue.waiting.is_empty();
        if state.keys.get(key).is_some_and(is_idle) {
            state.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;

    type SlotFuture = BoxFuture<'static, Result<FairQueueSlot<&'static str>, QueueFull>>;

    fn ask(turns: &FairQueue<&'static str>, key: &'static str) -> SlotFuture {
        let turns = turns.clone();
        let mut asked = async move { turns.take(key).await }.boxed();
        assert!((&mut asked).now_or_never().is_none(), "it waits");
        asked
    }

    fn now(
        turns: &FairQueue<&'static str>,
        key: &'static str,
    ) -> Result<FairQueueSlot<&'static str>, QueueFull> {
        turns.take(key).now_or_never().expect("at once")
    }

    #[test]
    fn flood_of_one_key_delays_another_by_one_turn() {
        let turns = FairQueue::new(1, 1, 10);
        let first = now(&turns, "flood").expect("a turn");
        let mut flood: Vec<SlotFuture> = (0..3).map(|_| ask(&turns, "flood")).collect();
        let mut other = ask(&turns, "other");
        drop(first);
        let turn = (&mut other).now_or_never().expect("is next").expect("a turn");
        assert!((&mut flood[0]).now_or_never().is_none());
        let mut again = ask(&turns, "other");
        drop(turn);
        let turn = (&mut flood[0]).now_or_never().expect("then the flood").expect("a turn");
        drop(turn);
        assert!((&mut flood[1]).now_or_never().is_none());
        assert!((&mut again).now_or_never().expect("by turns").is_ok());
        assert!((&mut flood[1]).now_or_never().expect("and again").is_ok());
    }

    #[test]
    fn one_key_cannot_exceed_its_turns_and_waiting_places() {
        let turns = FairQueue::new(2, 1, 1);
        let first = now(&turns, "a").expect("a turn");
        let waiting = ask(&turns, "a");
        assert_eq!(now(&turns, "a").err(), Some(QueueFull));
        let other = now(&turns, "b").expect("another key has one");
        drop(waiting);
        drop((first, other));
        assert!(turns.0.state.lock().keys.is_empty(), "nothing is kept of what is over");
        assert_eq!(turns.0.state.lock().taken, 0);
    }

    #[test]
    fn turn_of_a_waiter_that_left_goes_to_the_next() {
        let turns = FairQueue::new(1, 1, 10);
        let first = now(&turns, "a").expect("a turn");
        let gone = ask(&turns, "a");
        let mut next = ask(&turns, "b");
        drop(first);
        // Its turn had begun.
        drop(gone);
        assert!((&mut next).now_or_never().expect("at once").is_ok());
        assert_eq!(turns.0.state.lock().taken, 0);
    }
}
