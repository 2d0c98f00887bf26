use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// Latencies in microseconds, three significant digits, up to an hour.
#[derive(Clone, PartialEq, Debug)]
pub struct Latency(Histogram<u64>);

/// Figures of a histogram for display, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    pub count: u64,
    pub mean: f64,
    pub min: u64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub p9999: u64,
    pub max: u64,
}

const HOUR_US: u64 = 3_600_000_000;

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, HOUR_US, 3).expect("the bounds are sound"))
    }
}

impl Latency {
    /// Values above an hour count as an hour.
    pub fn record_us(&mut self, micros: u64) {
        self.0.saturating_record(micros.max(1));
    }

    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Latency that is not exceeded by this share (0 to 1) of all values.
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    pub fn summary(&self) -> LatencySummary {
        let at = |share| self.0.value_at_quantile(share);
        LatencySummary {
            count: self.0.len(),
            mean: self.0.mean(),
            min: self.0.min(),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.0.max(),
        }
    }

    /// Number of values up to `micros`.
    pub fn count_up_to_us(&self, micros: u64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.count_between(0, micros) }
    }

    /// Recorded latencies in microseconds, and the count of each.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let step = |step: hdrhistogram::iterators::IterationValue<u64>| {
            (step.value_iterated_to(), step.count_since_last_iteration())
        };
        self.0.iter_recorded().map(step)
    }

    /// Points of the percentile curve, for a plot: share and microseconds.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        self.0
            .iter_quantiles(5)
            .map(|point| (point.quantile_iterated_to(), point.value_iterated_to()))
            .collect()
    }
}

/// The text does not decode to a histogram.
#[derive(Debug)]
struct Unreadable(String);

impl Latency {
    fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("writes to memory");
        STANDARD.encode(bytes)
    }

    fn decode(text: &str) -> Result<Self, Unreadable> {
        let bytes = STANDARD.decode(text).map_err(|error| Unreadable(error.to_string()))?;
        let read = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice());
        let mut latency = Self::default();
        let read = read.map_err(|error| Unreadable(error.to_string()))?;
        latency.0.add(&read).map_err(|error| Unreadable(error.to_string()))?;
        Ok(latency)
    }
}

/// Format in the file: the summary for people, the HDR histogram (V2, base64) for tools.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(default)]
    summary_us: LatencySummary,
    hdr: String,
}

impl Serialize for Latency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written { summary_us: self.summary(), hdr: self.encode() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        Self::decode(&written.hdr).map_err(|Unreadable(why)| serde::de::Error::custom(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_round_trips() {
        let mut latency = Latency::default();
        for micros in 1..10_000 {
            latency.record_us(micros * 7);
        }
        let text = serde_json::to_string(&latency).expect("writes");
        let read: Latency = serde_json::from_str(&text).expect("reads");
        assert_eq!(read.summary(), latency.summary());
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in [r#"{"hdr":"????"}"#, r#"{"hdr":"AAAA"}"#, r#"{}"#] {
            assert!(serde_json::from_str::<Latency>(garbage).is_err(), "{garbage}");
        }
    }

    #[test]
    fn recorded_values_are_listed_with_counts() {
        let mut latency = Latency::default();
        for micros in [3, 3, 700, 45_000] {
            latency.record_us(micros);
        }
        let recorded: Vec<_> = latency.recorded().collect();
        assert_eq!(recorded.iter().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!(recorded[..2], [(3, 2), (700, 1)]);
        assert!((45_000..45_100).contains(&recorded[2].0));
    }

    #[test]
    fn values_above_an_hour_count_as_an_hour() {
        let mut latency = Latency::default();
        latency.record_us(u64::MAX);
        assert_eq!(latency.count(), 1);
        assert!(latency.summary().max >= HOUR_US);
    }
}
