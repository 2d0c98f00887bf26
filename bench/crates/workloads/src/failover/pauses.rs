//! Pauses of writes, computed from the acknowledgements of each sender. Pure functions on times,
//! without a clock or a system.

use std::time::Duration;

use load::Acknowledged;

/// Time from a fault to the confirmation of a write sent after it had taken effect. An earlier
/// write may have been acknowledged by the failed node. `None`: there is no such write.
pub(super) fn next_write(
    acknowledged: &[Acknowledged],
    fault_ns: u64,
    happened_ns: u64,
) -> Option<Duration> {
    let after = acknowledged.iter().filter(|one| one.sent_ns >= happened_ns);
    let first = after.map(|one| one.at_ns).min()?;
    Some(Duration::from_nanos(first.saturating_sub(fault_ns)))
}

/// Longest time in the interval without an acknowledgement to the sender.
pub(super) fn longest_silence(acknowledged: &[Acknowledged], from_ns: u64, to_ns: u64) -> Duration {
    let first = acknowledged.partition_point(|one| one.at_ns < from_ns);
    let within = acknowledged[first..].iter().map(|one| one.at_ns);
    let within = within.take_while(|at_ns| *at_ns < to_ns).chain([to_ns]);
    let mut last_ns = from_ns;
    let longest = within.map(|at_ns| at_ns.saturating_sub(std::mem::replace(&mut last_ns, at_ns)));
    Duration::from_nanos(longest.max().unwrap_or(0))
}

/// Pauses in order of length.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Pauses(Vec<Duration>);

impl Pauses {
    pub(super) fn of(pauses: impl IntoIterator<Item = Duration>) -> Self {
        let mut all: Vec<Duration> = pauses.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn worst(&self) -> Option<Duration> {
        self.0.last().copied()
    }

    /// The pause that this share of all does not exceed; with few pauses, the next longer one.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let place = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(place.max(1) - 1).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Send and acknowledgement times, in milliseconds.
    fn acknowledgements(pairs: &[(u64, u64)]) -> Vec<Acknowledged> {
        let one = |&(sent, at): &(u64, u64)| Acknowledged { sent_ns: sent * MS, at_ns: at * MS };
        pairs.iter().map(one).collect()
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn reply_of_the_failed_node_ends_no_pause() {
        // Killed at 100, gone at 110: it may have acknowledged the messages sent at 99 and 105
        // itself.
        let told = acknowledgements(&[(80, 90), (99, 101), (105, 109), (120, 420), (115, 430)]);
        assert_eq!(next_write(&told, 100 * MS, 110 * MS), Some(ms(320)));
        assert_eq!(next_write(&told, 500 * MS, 501 * MS), None);
    }

    #[test]
    fn silence_is_counted_within_its_bounds_only() {
        let told = acknowledgements(&[(10, 20), (95, 105), (120, 420), (430, 440), (440, 900)]);
        assert_eq!(longest_silence(&told, 100 * MS, 500 * MS), ms(315));
        assert_eq!(longest_silence(&told, 30 * MS, 110 * MS), ms(75), "from its beginning");
        assert_eq!(longest_silence(&told, 430 * MS, 700 * MS), ms(260), "to its end");
        assert_eq!(longest_silence(&[], 100 * MS, 300 * MS), ms(200));
        assert_eq!(longest_silence(&told, 300 * MS, 300 * MS), ms(0));
    }

    #[test]
    fn quantiles_are_actual_pauses() {
        let pauses = Pauses::of([30, 10, 20, 40].map(ms));
        assert_eq!((pauses.quantile(0.5), pauses.quantile(0.99)), (Some(ms(20)), Some(ms(40))));
        assert_eq!((pauses.worst(), pauses.count()), (Some(ms(40)), 4));
        assert_eq!(Pauses::of([]).quantile(0.5), None);
        assert_eq!(Pauses::of([ms(7)]).quantile(0.01), Some(ms(7)));
    }
}
