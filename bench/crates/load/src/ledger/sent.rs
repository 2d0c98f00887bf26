//! Messages sent by one sender, and their confirmations.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use driver::{Confirmed, Failure};
use parking_lot::Mutex;

use super::acknowledged::{Acknowledged, Acknowledgements};
use crate::bits::Bits;
use crate::clock::{Clock, micros_between};
use crate::journal::{Journal, What};
use crate::payload::Stamp;
use crate::recorder::Recorder;

#[derive(Debug)]
pub(crate) struct SenderAccount {
    id: u16,
    clock: Clock,
    recorder: Arc<Recorder>,
    journal: Option<Arc<Journal>>,
    /// Next sequence to assign.
    next: AtomicU64,
    state: Mutex<Sent>,
    /// The connection is broken.
    broken: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) confirmed: Bits,
    /// Messages without an outcome: their due and send times.
    under_way: HashMap<u64, (u64, u64)>,
    pub(super) acknowledgements: Acknowledgements,
}

impl SenderAccount {
    pub(super) fn new(
        id: u16,
        clock: Clock,
        recorder: Arc<Recorder>,
        journal: Option<Arc<Journal>>,
    ) -> Self {
        let (next, state, broken) = Default::default();
        Self { id, clock, recorder, journal, next, state, broken }
    }

    /// Stamp of the next message, which is sent now. In a closed loop it is also due now.
    pub(crate) fn next(&self, lane: u32, due_ns: Option<u64>) -> Stamp {
        let sequence = self.next.fetch_add(1, Relaxed);
        let now = self.clock.now_ns();
        let due_ns = due_ns.unwrap_or(now);
        self.state.lock().under_way.insert(sequence, (due_ns, now));
        self.recorder.sent.fetch_add(1, Relaxed);
        let delay_us = micros_between(due_ns, now).min(u32::MAX.into()) as u32;
        Stamp { sender: self.id, lane, sequence, due_ns, delay_us }
    }

    /// Number of messages sent.
    pub(crate) fn sent(&self) -> u64 {
        self.next.load(Relaxed)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().under_way.len()
    }

    /// Takes the flag that the connection must be reopened.
    pub(crate) fn take_broken(&self) -> bool {
        self.broken.load(Relaxed) && self.broken.swap(false, Relaxed)
    }

    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Relaxed);
    }

    pub(super) fn state(&self) -> parking_lot::MutexGuard<'_, Sent> {
        self.state.lock()
    }

    // ------------------------------------------------------------------ reported by an agent

    /// Sets the number of messages that an agent's sender has sent so far.
    pub(super) fn sent_elsewhere(&self, count: u64) {
        let before = self.next.fetch_max(count, Relaxed);
        self.recorder.sent.fetch_add(count.saturating_sub(before), Relaxed);
    }

    /// Confirms messages of an agent's sender. Returns false if they were never sent.
    pub(super) fn confirmed_elsewhere(&self, first: u64, count: u64) -> bool {
        let Some(end) = first.checked_add(count).filter(|end| *end <= self.sent()) else {
            return false;
        };
        let mut state = self.state.lock();
        let new = (first..end).filter(|sequence| state.confirmed.insert(*sequence)).count();
        self.recorder.confirmed.fetch_add(new as u64, Relaxed);
        true
    }
}

impl Confirmed for SenderAccount {
    fn resolve(&self, number: u64, sent: Result<(), Failure>) {
        let now = self.clock.now_ns();
        let mut state = self.state.lock();
        let Some((due, started)) = state.under_way.remove(&number) else { return };
        match sent {
            Ok(()) => {
                if let Some(journal) = &self.journal {
                    journal.push(now, [What::confirmed(self.id, number)]);
                } else {
                    state.confirmed.insert(number);
                }
                state.acknowledgements.add(Acknowledged { sent_ns: started, at_ns: now });
                drop(state);
                self.recorder.confirmed.fetch_add(1, Relaxed);
                self.recorder.record(self.id.into(), |interval| {
                    interval.send.record_us(micros_between(started, now));
                    interval.send_due.record_us(micros_between(due, now));
                    interval.send_delay.record_us(micros_between(due, started));
                });
            }
            Err(failure) => {
                drop(state);
                if matches!(failure, Failure::Unknown(_) | Failure::Unreachable { .. }) {
                    self.broken.store(true, Relaxed);
                }
                self.recorder.error("send", &failure);
            }
        }
    }
}
