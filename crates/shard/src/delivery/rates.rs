//! Records per second over the last seconds, without a timer.
//!
//! A meter counts by the second in a ring, and advances the ring when it is next used: an unused meter costs
//! nothing, and one that was quiet for a window restarts at zero.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{HashMap, TopicId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Window in seconds.
pub const RATE_WINDOW_SECONDS: usize = 10;
const WINDOW: i64 = RATE_WINDOW_SECONDS as i64;

/// Records per second over the last ten seconds, or since the first record if that is less (but at least a
/// second).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Records appended to the topic.
    pub published: f64,
    pub delivered: f64,
    pub settled: f64,
}

impl Rates {
    /// Adds the rates of another shard.
    pub fn and(self, other: Self) -> Self {
        Self {
            published: self.published + other.published,
            delivered: self.delivered + other.delivered,
            settled: self.settled + other.settled,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// By second, modulo the window.
    counts: [u32; RATE_WINDOW_SECONDS],
    /// The second of the last use; 0 = never used.
    second: i64,
    /// First record after a quiet time.
    since_ms: i64,
}

impl Meter {
    pub(crate) fn add(&mut self, now_ms: i64, records: u64) {
        if records == 0 {
            return;
        }
        self.turn(now_ms);
        if self.is_quiet() {
            self.since_ms = now_ms;
        }
        let count = &mut self.counts[place(self.second)];
        *count = count.saturating_add(u32::try_from(records).unwrap_or(u32::MAX));
    }

    pub(crate) fn per_second(mut self, now_ms: i64) -> f64 {
        self.turn(now_ms);
        let records: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        // The ring has the whole seconds before the current one, and a part of the current one.
        let covered_ms = (WINDOW - 1) * 1000 + now_ms.rem_euclid(1000);
        let since_ms = now_ms.saturating_sub(self.since_ms);
        records as f64 * 1000.0 / covered_ms.min(since_ms).max(1000) as f64
    }

    /// Drops the seconds outside the window. If the clock was set back, the meter continues at its last second.
    fn turn(&mut self, now_ms: i64) {
        let second = now_ms.div_euclid(1000);
        let passed = second.saturating_sub(self.second).clamp(0, WINDOW);
        for dropped in 0..passed {
            self.counts[place(second - dropped)] = 0;
        }
        self.second = self.second.max(second);
    }

    fn is_quiet(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }
}

fn place(second: i64) -> usize {
    second.rem_euclid(WINDOW) as usize
}

/// Counts since the group was first used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
}

impl Counts {
    fn since(self, earlier: Self) -> Self {
        Self {
            delivered: self.delivered - earlier.delivered,
            redelivered: self.redelivered - earlier.redelivered,
            settled: self.settled - earlier.settled,
            dead_letters: self.dead_letters - earlier.dead_letters,
        }
    }
}

/// Counts of all groups of a shard since the node started, deleted ones included. The driver adds to it once
/// per pass over a group.
#[derive(Debug, Default)]
pub struct Totals {
    delivered: AtomicU64,
    redelivered: AtomicU64,
    settled: AtomicU64,
    dead_letters: AtomicU64,
}

/// A snapshot of [`Totals`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeaseTotals {
    pub delivered: u64,
    pub redelivered: u64,
    /// By consumers, and as dead letters.
    pub settled: u64,
    pub dead_letters: u64,
}

impl Totals {
    fn add(&self, counts: Counts) {
        let Counts { delivered, redelivered, settled, dead_letters } = counts;
        for (total, more) in [
            (&self.delivered, delivered),
            (&self.redelivered, redelivered),
            (&self.settled, settled),
            (&self.dead_letters, dead_letters),
        ] {
            if more > 0 {
                total.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub fn seen(&self) -> LeaseTotals {
        let seen = |total: &AtomicU64| total.load(Ordering::Relaxed);
        LeaseTotals {
            delivered: seen(&self.delivered),
            redelivered: seen(&self.redelivered),
            settled: seen(&self.settled),
            dead_letters: seen(&self.dead_letters),
        }
    }
}

/// Rates of a group, derived from its counts.
#[derive(Clone, Copy, Debug)]
pub struct GroupMeters {
    delivered: Meter,
    settled: Meter,
    noted: Counts,
}

impl GroupMeters {
    /// Starts from these counts.
    pub fn new(counts: Counts) -> Self {
        Self { delivered: Meter::default(), settled: Meter::default(), noted: counts }
    }

    /// Adds the difference since the last call, here and to the node's totals.
    pub fn note(&mut self, counts: Counts, now_ms: i64, totals: &Totals) {
        self.delivered.add(now_ms, counts.delivered - self.noted.delivered);
        self.settled.add(now_ms, counts.settled - self.noted.settled);
        totals.add(counts.since(self.noted));
        self.noted = counts;
    }

    pub fn rates(&self, now_ms: i64) -> Rates {
        Rates {
            published: 0.0,
            delivered: self.delivered.per_second(now_ms),
            settled: self.settled.per_second(now_ms),
        }
    }
}

/// Append rates of topics. The sequencer counts once per proposal.
#[derive(Debug, Default)]
pub struct AppendRates {
    topics: Mutex<Topics>,
}

#[derive(Debug, Default)]
struct Topics {
    meters: HashMap<TopicId, Meter>,
    swept_ms: i64,
}

impl AppendRates {
    pub fn add(&self, now_ms: i64, records: impl IntoIterator<Item = (TopicId, u32)>) {
        let mut topics = self.topics.lock();
        for (topic, records) in records {
            topics.meters.entry(topic).or_default().add(now_ms, records.into());
        }
        topics.sweep(now_ms);
    }

    pub fn per_second(&self, topic: TopicId, now_ms: i64) -> f64 {
        let mut topics = self.topics.lock();
        topics.sweep(now_ms);
        topics.meters.get(&topic).map_or(0.0, |meter| meter.per_second(now_ms))
    }
}

impl Topics {
    /// Forgets topics that were quiet for a window.
    fn sweep(&mut self, now_ms: i64) {
        if now_ms.saturating_sub(self.swept_ms) < WINDOW * 1000 {
            return;
        }
        self.swept_ms = now_ms;
        let oldest = now_ms.div_euclid(1000) - WINDOW;
        self.meters.retain(|_, meter| meter.second > oldest);
        self.meters.shrink_to(64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: i64 = 1_700_000_000_300;

    #[test]
    fn steady_rate_is_accurate_after_the_first_second() {
        let mut meter = Meter::default();
        for tick in 0..300 {
            let now_ms = START_MS + tick * 100;
            meter.add(now_ms, 50);
            if tick >= 10 {
                let rate = meter.per_second(now_ms);
                assert!((495.0..=550.0).contains(&rate), "{rate} after {tick}");
            }
        }
    }

    #[test]
    fn rate_drops_to_zero_after_a_quiet_window_and_restarts() {
        let mut meter = Meter::default();
        assert_eq!(meter.per_second(START_MS), 0.0);
        meter.add(START_MS, 100);
        assert_eq!(meter.per_second(START_MS), 100.0, "over a second, not over nothing");
        assert_eq!(meter.per_second(START_MS + 4_000), 25.0);
        assert_eq!(meter.per_second(START_MS + 10_000), 0.0);
        assert_eq!(meter.per_second(START_MS + 10_000_000), 0.0);
        meter.add(START_MS + 60_000, 10);
        assert_eq!(meter.per_second(START_MS + 60_500), 10.0);
        // The clock was set back: nothing is lost or counted twice.
        meter.add(START_MS, 10);
        assert_eq!(meter.per_second(START_MS), 20.0);
    }

    #[test]
    fn quiet_topics_are_forgotten() {
        let published = AppendRates::default();
        published.add(START_MS, (1..=1_000).map(|topic| (TopicId(topic), 3)));
        assert_eq!(published.per_second(TopicId(7), START_MS), 3.0);
        published.add(START_MS + 11_000, [(TopicId(7), 5)]);
        assert_eq!(published.per_second(TopicId(7), START_MS + 11_000), 5.0);
        assert_eq!(published.topics.lock().meters.len(), 1);
    }
}
