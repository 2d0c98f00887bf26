//! Snapshots that this member sends, each to one other member, on its request.

use std::sync::Arc;

use journal::transfer::Export;
use parking_lot::Mutex;
use world::Instant;

use crate::limits::{SNAPSHOT_HELD_FOR, SNAPSHOT_IDLE_AFTER, SNAPSHOTS_SENT_MAX};
use crate::message::Refusal;

/// The snapshots held for members. A snapshot without requests is dropped after a while.
#[derive(Debug)]
pub(crate) struct OutgoingSnapshots {
    state: Mutex<State<Arc<Mutex<Export>>>>,
}

#[derive(Debug)]
struct State<E> {
    /// Numbers are unique over the runs of this node.
    next: u64,
    held: Vec<OpenExport<E>>,
}

#[derive(Debug)]
struct OpenExport<E> {
    number: u64,
    to: u64,
    asked: Instant,
    export: E,
}

impl<E> State<E> {
    /// Replaces an earlier one for the same member, or the one without requests for the longest time: most members
    /// that have received a snapshot request nothing more.
    fn hold(&mut self, to: u64, export: E) -> Result<u64, Refusal> {
        self.held.retain(|held| held.to != to);
        if self.held.len() >= SNAPSHOTS_SENT_MAX {
            let idle = (0..self.held.len()).min_by_key(|&place| self.held[place].asked);
            match idle.filter(|&place| self.held[place].asked.elapsed() >= SNAPSHOT_IDLE_AFTER) {
                Some(place) => drop(self.held.swap_remove(place)),
                None => return Err(Refusal::NotHeld),
            }
        }
        let number = self.next;
        self.next += 1;
        self.held.push(OpenExport { number, to, asked: Instant::now(), export });
        Ok(number)
    }
}

impl OutgoingSnapshots {
    /// `first`: drawn by this run of the node.
    pub(crate) fn new(first: u64) -> Self {
        // It counts up from there, and is encoded in 8 bytes.
        Self { state: Mutex::new(State { next: first >> 1, held: Vec::new() }) }
    }

    pub(crate) fn hold(&self, to: u64, export: Export) -> Result<u64, Refusal> {
        self.state.lock().hold(to, Arc::new(Mutex::new(export)))
    }

    pub(crate) fn held(&self, to: u64, number: u64) -> Result<Arc<Mutex<Export>>, Refusal> {
        let mut state = self.state.lock();
        let held = state.held.iter_mut().find(|held| (held.number, held.to) == (number, to));
        let held = held.ok_or(Refusal::NotHeld)?;
        held.asked = Instant::now();
        Ok(Arc::clone(&held.export))
    }

    /// Drops snapshots without recent requests; to be called periodically.
    pub(crate) fn expire(&self) {
        self.state.lock().held.retain(|held| held.asked.elapsed() < SNAPSHOT_HELD_FOR);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_snapshot_makes_room_for_another_members() {
        let mut state = State { next: 7, held: Vec::new() };
        let most = SNAPSHOTS_SENT_MAX as u64;
        for member in 0..most {
            assert_eq!(state.hold(member, ()), Ok(7 + member));
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(state.hold(most, ()), Err(Refusal::NotHeld), "all are being sent");
        assert_eq!(state.hold(0, ()), Ok(7 + most), "a member has one");
        advance(SNAPSHOT_IDLE_AFTER - Duration::from_secs(3)).await;
        assert_eq!(state.hold(most, ()), Ok(8 + most), "the first one's is idle by now");
        let held: Vec<u64> = state.held.iter().map(|held| held.to).collect();
        assert!(!held.contains(&1) && held.contains(&0) && held.len() == SNAPSHOTS_SENT_MAX);
    }
}
