//! Notifies senders of due messages.
//!
//! It runs on its own thread: an async timer has a resolution of a millisecond, and its delay would
//! be the suite's latency, not the system's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Clock;

/// Due messages of one sender: the first of them and their count, by number from the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// One stream of due times, assigned to its senders in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    senders: u64,
}

impl Schedule {
    pub(crate) fn new(start_ns: u64, per_second: f64, senders: usize) -> Self {
        Self { start_ns, interval_ns: 1e9 / per_second.max(1e-3), senders: senders as u64 }
    }

    /// One of `of` streams that are evenly interleaved and have this rate together.
    pub(crate) fn nth_stream(self, stream: u32, of: u32) -> Self {
        let after_ns = (f64::from(stream) * self.interval_ns) as u64;
        let interval_ns = self.interval_ns * f64::from(of.max(1));
        Self { start_ns: self.start_ns + after_ns, interval_ns, ..self }
    }

    /// Due time of a sender's message with this number. Senders are numbered by their place in the
    /// turn.
    pub(crate) fn due_ns(&self, sender: usize, number: u64) -> u64 {
        let index = number * self.senders + sender as u64;
        self.start_ns + (index as f64 * self.interval_ns) as u64
    }

    /// Number of the sender's messages that are due by then.
    fn due_by(&self, sender: usize, now_ns: u64) -> u64 {
        let Some(since) = now_ns.checked_sub(self.start_ns) else { return 0 };
        let all = (since as f64 / self.interval_ns) as u64 + 1;
        (all + self.senders - 1).saturating_sub(sender as u64) / self.senders
    }
}

#[derive(Debug)]
pub(crate) struct Pacer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Longest sleep, so that it stops soon.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl Pacer {
    pub(crate) fn start(
        schedule: Schedule,
        clock: Clock,
        senders: Vec<mpsc::UnboundedSender<Due>>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut told = vec![0; senders.len()];
            while !stopped.load(Relaxed) {
                let now = clock.now_ns();
                let mut next = u64::MAX;
                for (place, sender) in senders.iter().enumerate() {
                    let (first, due) = (told[place], schedule.due_by(place, now));
                    if due > first {
                        // A sender that has ended needs no notification.
                        let _ = sender.send(Due { first, count: due - first });
                        told[place] = due;
                    }
                    next = next.min(schedule.due_ns(place, due.max(first)));
                }
                let wait = Duration::from_nanos(next.saturating_sub(clock.now_ns()));
                std::thread::sleep(wait.min(SLEEP_MAX));
            }
        };
        let thread = std::thread::Builder::new().name("pacer".into()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_evenly_and_in_turns() {
        let schedule = Schedule::new(1_000, 1000.0, 4);
        assert_eq!(schedule.due_ns(0, 0), 1_000);
        assert_eq!(schedule.due_ns(3, 0), 3_001_000);
        assert_eq!(schedule.due_ns(0, 1), 4_001_000);
        for now in (0..20_000_000).step_by(333_333) {
            let all: u64 = (0..4).map(|sender| schedule.due_by(sender, 1_000 + now)).sum();
            assert_eq!(all, now / 1_000_000 + 1);
        }
        assert_eq!(schedule.due_by(0, 0), 0);
    }

    #[test]
    fn interleaved_streams_are_due_as_evenly_as_one() {
        let whole = Schedule::new(1_000, 1000.0, 1);
        let streams = [0, 1, 2].map(|stream| Schedule::new(1_000, 1000.0, 2).nth_stream(stream, 3));
        for index in 0..30 {
            let (stream, number) = ((index % 3) as usize, index / 3);
            let due = streams[stream].due_ns((number % 2) as usize, number / 2);
            assert_eq!(due, whole.due_ns(0, index));
        }
    }

    #[test]
    fn due_count_agrees_with_due_times() {
        let schedule = Schedule::new(5, 333.3, 7);
        for now in (5..1_000_000_000).step_by(12_345_678) {
            for sender in 0..7 {
                let due = schedule.due_by(sender, now);
                assert!(schedule.due_ns(sender, due) > now);
                assert!(due == 0 || schedule.due_ns(sender, due - 1) <= now);
            }
        }
    }
}
