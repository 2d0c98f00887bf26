//! The part of the interface of `base2histogram` 0.2.3 that openraft uses, without the histograms.
//!
//! openraft measures its batches and latencies in every group, for displays that Postroad does not have. The original
//! crate allocates 26 MB for its tables at the first use, and counts each batch. Here nothing is counted, and all
//! percentiles are 0.

use std::fmt;
use std::marker::PhantomData;

/// Accepts values and stores none.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram<T = ()>(PhantomData<T>);

/// Percentiles of a histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not counted")
    }
}

impl<T> Histogram<T> {
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    pub fn record(&mut self, _value: u64) {}

    pub fn record_n(&mut self, _value: u64, _count: u64) {}

    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats::default()
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Histogram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Histogram")
    }
}

/// A chart of several histograms: always empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsciiChart;

impl AsciiChart {
    pub fn new() -> Self {
        Self
    }

    pub fn add<T>(self, _name: &str, _histogram: Histogram<T>) -> Self {
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
