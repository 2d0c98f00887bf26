//! Counters of this gateway's own requests.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// Histogram bounds of request durations, in seconds.
pub(crate) const BUCKETS_SECS: [f64; 11] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 20.0, 60.0];
/// Routes times their statuses. More indicate a bug, and are counted together.
const SERIES_MAX: usize = 500;

/// Counters of HTTP requests. One lock for each request is negligible; records are not counted here.
#[derive(Debug, Default)]
pub(crate) struct Requests(pub(crate) Mutex<RequestCounts>);

#[derive(Debug, Default)]
pub(crate) struct RequestCounts {
    pub(crate) by_route: BTreeMap<(Box<str>, u16), u64>,
    pub(crate) seconds: f64,
    pub(crate) buckets: [u64; BUCKETS_SECS.len() + 1],
}

impl Requests {
    pub(crate) fn note(&self, route: &str, status: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut counted = self.0.lock();
        let is_known = counted.by_route.len() < SERIES_MAX
            || counted.by_route.contains_key(&(Box::from(route), status));
        let key = if is_known { (Box::from(route), status) } else { (Box::from("other"), 0) };
        *counted.by_route.entry(key).or_default() += 1;
        counted.seconds += seconds;
        counted.buckets[BUCKETS_SECS.partition_point(|bound| *bound < seconds)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_series_is_bounded() {
        let requests = Requests::default();
        for i in 0..SERIES_MAX * 2 {
            requests.note(&i.to_string(), 200, Duration::from_millis(3));
        }
        requests.note("0", 200, Duration::from_secs(100));
        let counted = requests.0.lock();
        assert_eq!(counted.by_route.len(), SERIES_MAX + 1);
        assert_eq!(counted.by_route[&("0".into(), 200)], 2);
        assert_eq!(counted.buckets.iter().sum::<u64>(), SERIES_MAX as u64 * 2 + 1);
        assert_eq!(counted.buckets[BUCKETS_SECS.len()], 1);
    }
}
