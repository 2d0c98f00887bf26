//! The events of a run, in order, and their hash: the same seed gives the same one.
//!
//! It contains every change of the disk, and all requests and replies of clients: events between them (messages,
//! proposals, applied entries) show in one of these. The last lines are kept as text, for a run that fails.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::hash::Hasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use world::Instant;

/// Lines that are kept. The cause of a violation is seldom further back.
const KEPT: usize = 400;

/// Clones are the same trace.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    hash: Fnv,
    lines: u64,
    kept: VecDeque<String>,
    /// Prints all lines as they come.
    printed: bool,
    /// The begin of the node's current life.
    begun: Option<Instant>,
    /// Simulated milliseconds of a run with several hosts, whose runtimes have times of their own.
    at_ms: Option<u64>,
    /// Simulated time of the earlier lives, and between them.
    before_ms: u64,
    down_ms: u64,
    closed: bool,
}

/// FNV-1a: the same on every machine, unlike the hashes of maps.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Trace {
    /// Also prints each line to standard error.
    pub fn printed() -> Self {
        let trace = Self::default();
        trace.lock().printed = true;
        trace
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's life begins, at time 0 of a new runtime.
    pub fn life_begins(&self) {
        let mut inner = self.lock();
        (inner.begun, inner.closed) = (Some(Instant::now()), false);
    }

    /// Sets the time of a run with several hosts.
    pub fn is_at(&self, time: Duration) {
        self.lock().at_ms = Some(time.as_millis() as u64);
    }

    /// Ends a life: the teardown after a crash does not count. The next life begins `down_ms` later.
    pub fn life_ends(&self, down_ms: u64) {
        let now_ms = self.now_ms();
        let mut inner = self.lock();
        (inner.before_ms, inner.begun, inner.closed) = (now_ms + down_ms, None, true);
        inner.down_ms += down_ms;
    }

    /// Simulated milliseconds in which a node lived.
    pub fn lived_ms(&self) -> u64 {
        self.now_ms() - self.lock().down_ms
    }

    /// Simulated milliseconds since the run began.
    pub fn now_ms(&self) -> u64 {
        let inner = self.lock();
        if let Some(at_ms) = inner.at_ms {
            return at_ms;
        }
        inner.before_ms + inner.begun.map_or(0, |begun| begun.elapsed().as_millis() as u64)
    }

    pub fn note(&self, what: fmt::Arguments<'_>) {
        let now_ms = self.now_ms();
        let mut inner = self.lock();
        if inner.closed {
            return;
        }
        let mut line = match inner.kept.len() < KEPT {
            true => String::new(),
            false => inner.kept.pop_front().unwrap_or_default(),
        };
        line.clear();
        // Writing to a string does not fail.
        let _ = write!(line, "{:>7}.{:03} {what}", now_ms / 1_000, now_ms % 1_000);
        inner.hash.write(line.as_bytes());
        inner.lines += 1;
        if inner.printed {
            eprintln!("{line}");
        }
        inner.kept.push_back(line);
    }

    pub fn hash(&self) -> u64 {
        self.lock().hash.finish()
    }

    pub fn lines(&self) -> u64 {
        self.lock().lines
    }

    /// The last `count` lines.
    pub fn last(&self, count: usize) -> Vec<String> {
        let inner = self.lock();
        let skipped = inner.kept.len().saturating_sub(count);
        inner.kept.iter().skip(skipped).cloned().collect()
    }
}
