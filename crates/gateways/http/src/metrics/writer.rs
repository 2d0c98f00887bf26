//! Encodes metric families with their series.

use std::fmt::Result;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Writes families, each with all its series.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// A label's name and value.
pub(super) type Label = (&'static str, String);

impl<'a> Writer<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self { encoder }
    }

    /// `_total` is added to the name.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Into<Number>) -> Result {
        self.counters(name, help, [(Vec::new(), value.into())])
    }

    pub(super) fn counters<N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Vec<Label>, N)>,
    ) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            match value.into() {
                Number::Whole(value) => family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None),
                Number::Part(value) => family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value, None),
            }?;
        }
        Ok(())
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Into<Number>) -> Result {
        self.gauges(name, help, [(Vec::new(), value.into())])
    }

    pub(super) fn gauges<N: Into<Number>>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Vec<Label>, N)>,
    ) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            match value.into() {
                // No value of ours is larger.
                Number::Whole(value) => {
                    let value = i64::try_from(value).unwrap_or(i64::MAX);
                    family.encode_family(&labels)?.encode_gauge(&value)
                }
                Number::Part(value) => family.encode_family(&labels)?.encode_gauge(&value),
            }?;
        }
        Ok(())
    }

    /// A metric whose information is in its labels.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: Vec<Label>) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        family.encode_info(&labels)
    }

    /// A histogram of durations. `buckets` are upper bounds in seconds with the counts that fall between them and the
    /// previous ones; the last is for the rest.
    pub(super) fn durations(
        &mut self,
        name: &str,
        help: &str,
        sum_secs: f64,
        buckets: &[(f64, u64)],
    ) -> Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let count = buckets.iter().map(|(_, count)| count).sum();
        family.encode_histogram::<NoLabelSet>(sum_secs, count, buckets, None)
    }
}

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Whole(u64),
    Part(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Part(value)
    }
}
