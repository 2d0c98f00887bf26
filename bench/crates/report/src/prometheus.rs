//! Metrics of a run in progress, for Prometheus: those of mqperf with its names, labels and
//! buckets, and the suite's own.
//!
//! mqperf's buckets begin at 50 ms; its percentiles below that are an artefact of interpolation in
//! the first bucket. They are kept exactly, including whole milliseconds, so that its dashboards
//! work. The histograms called `bench_` have buckets that resolve a broker's latencies. Tasks
//! record with relaxed atomics only, each into its own shard, and the exposition adds the shards
//! up.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use results::Latency;

/// Value of the response's `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of `mqperf_send_latency_ms`, in milliseconds.
const SEND_MS: [u64; 26] = [
    0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 1250, 1500, 1750,
    2000, 2500, 3000, 3500, 4000, 4500, 5000,
];
/// Upper bounds of `mqperf_latency_ms`: the same and further ones.
const RECEIVE_MS: [u64; 36] = [
    0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 1250, 1500, 1750,
    2000, 2500, 3000, 3500, 4000, 4500, 5000, 6000, 7000, 8000, 9000, 10_000, 20_000, 30_000,
    40_000, 50_000, 60_000,
];
/// Upper bounds of the suite's own histograms, in microseconds.
const FINE_US: [u64; 22] = [
    10,
    20,
    50,
    100,
    200,
    500,
    1000,
    2000,
    5000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    60_000_000,
    120_000_000,
];
const SHARDS_MAX: usize = 32;

/// The counters of one run. All methods take `&self` without locks.
#[derive(Debug)]
pub struct Live {
    labels: String,
    shards: Box<[Shard]>,
    sender_threads_done: AtomicU64,
    receiver_threads_done: AtomicU64,
    backlog: AtomicU64,
}

/// Aligned so that two shards never share a cache line, nor the adjacent one that is prefetched.
#[repr(align(128))]
#[derive(Debug)]
struct Shard {
    sent: AtomicU64,
    confirmed: AtomicU64,
    received: AtomicU64,
    settled: AtomicU64,
    redelivered: AtomicU64,
    errors: AtomicU64,
    send: Buckets<{ SEND_MS.len() }>,
    receive: Buckets<{ RECEIVE_MS.len() }>,
    send_fine: Buckets<{ FINE_US.len() }>,
    receive_fine: Buckets<{ FINE_US.len() }>,
    send_sum_us: AtomicU64,
    receive_sum_us: AtomicU64,
}

/// Counts by upper bound, not cumulative, and the count beyond the last bound.
#[derive(Debug)]
struct Buckets<const N: usize> {
    counts: [AtomicU64; N],
    beyond: AtomicU64,
}

impl<const N: usize> Buckets<N> {
    fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; N], beyond: AtomicU64::new(0) }
    }

    fn count(&self, bounds: &[u64; N], value: u64, times: u64) {
        let place = bounds.partition_point(|bound| *bound < value);
        self.counts.get(place).unwrap_or(&self.beyond).fetch_add(times, Relaxed);
    }
}

impl Shard {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            sent: zero(),
            confirmed: zero(),
            received: zero(),
            settled: zero(),
            redelivered: zero(),
            errors: zero(),
            send: Buckets::new(),
            receive: Buckets::new(),
            send_fine: Buckets::new(),
            receive_fine: Buckets::new(),
            send_sum_us: zero(),
            receive_sum_us: zero(),
        }
    }
}

thread_local! {
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
}
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);

/// Assigns a shard to each thread, in turn.
fn place() -> usize {
    PLACE.get().unwrap_or_else(|| {
        let place = NEXT_PLACE.fetch_add(1, Relaxed);
        PLACE.set(Some(place));
        place
    })
}

impl Live {
    /// The labels are mqperf's: the test's name, the run, and the machine of the suite.
    pub fn new(test: &str, run: &str, host: &str) -> Self {
        let labels = [("test", test), ("run", run), ("host", host)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",");
        let shards = thread::available_parallelism().map_or(1, |cores| cores.get().min(SHARDS_MAX));
        Self {
            labels,
            shards: (0..shards).map(|_| Shard::new()).collect(),
            sender_threads_done: AtomicU64::new(0),
            receiver_threads_done: AtomicU64::new(0),
            backlog: AtomicU64::new(0),
        }
    }

    fn shard(&self) -> &Shard {
        &self.shards[place() % self.shards.len()]
    }

    /// Messages sent and acknowledged, which mqperf counts as sent: confirmed ones.
    pub fn sent(&self, messages: u64) {
        self.shard().sent.fetch_add(messages, Relaxed);
    }

    /// Messages whose sender received a confirmation.
    pub fn confirmed(&self, messages: u64) {
        self.shard().confirmed.fetch_add(messages, Relaxed);
    }

    pub fn received(&self, messages: u64) {
        self.shard().received.fetch_add(messages, Relaxed);
    }

    pub fn settled(&self, messages: u64) {
        self.shard().settled.fetch_add(messages, Relaxed);
    }

    pub fn redelivered(&self, messages: u64) {
        self.shard().redelivered.fetch_add(messages, Relaxed);
    }

    pub fn errors(&self, errors: u64) {
        self.shard().errors.fetch_add(errors, Relaxed);
    }

    /// From the start of a send call to its confirmation. mqperf has one value for each call; here
    /// a call with several messages has one for each of them.
    pub fn send_latencies(&self, latencies: &Latency) {
        latencies.recorded().for_each(|(micros, times)| self.send_latency_us(micros, times));
    }

    /// From the start of the send to the receiver, for each message.
    pub fn receive_latencies(&self, latencies: &Latency) {
        latencies.recorded().for_each(|(micros, times)| self.receive_latency_us(micros, times));
    }

    fn send_latency_us(&self, micros: u64, times: u64) {
        let shard = self.shard();
        shard.send.count(&SEND_MS, micros / 1000, times);
        shard.send_fine.count(&FINE_US, micros, times);
        shard.send_sum_us.fetch_add(micros * times, Relaxed);
    }

    fn receive_latency_us(&self, micros: u64, times: u64) {
        let shard = self.shard();
        shard.receive.count(&RECEIVE_MS, micros / 1000, times);
        shard.receive_fine.count(&FINE_US, micros, times);
        shard.receive_sum_us.fetch_add(micros * times, Relaxed);
    }

    pub fn sender_threads_done(&self, threads: u64) {
        self.sender_threads_done.fetch_add(threads, Relaxed);
    }

    pub fn receiver_threads_done(&self, threads: u64) {
        self.receiver_threads_done.fetch_add(threads, Relaxed);
    }

    /// Messages confirmed and not yet received, over all subscriptions, at present.
    pub fn set_backlog(&self, messages: u64) {
        self.backlog.store(messages, Relaxed);
    }

    /// All metrics in Prometheus' text format.
    pub fn exposition(&self) -> String {
        let mut text = String::with_capacity(16 << 10);
        self.counters(&mut text);
        let gauges = [
            ("mqperf_sent_threads_done", "number of send threads done", &self.sender_threads_done),
            (
                "mqperf_receive_threads_done",
                "number of receive threads done",
                &self.receiver_threads_done,
            ),
            ("bench_backlog", "messages confirmed and not yet received", &self.backlog),
        ];
        for (name, help, value) in gauges {
            self.single(&mut text, (name, help, "gauge"), value.load(Relaxed));
        }
        let millis = |bound: u64| format!("{bound}.0");
        self.histogram(
            &mut text,
            ("mqperf_send_latency_ms", "latency of sent messages"),
            &SEND_MS,
            millis,
            1e3,
            |shard| (&shard.send, &shard.send_sum_us),
        );
        self.histogram(
            &mut text,
            ("mqperf_latency_ms", "latency of received messages"),
            &RECEIVE_MS,
            millis,
            1e3,
            |shard| (&shard.receive, &shard.receive_sum_us),
        );
        let seconds = |bound: u64| format!("{:?}", bound as f64 / 1e6);
        self.histogram(
            &mut text,
            ("bench_send_latency_seconds", "start of a send to its confirmation"),
            &FINE_US,
            seconds,
            1e6,
            |shard| (&shard.send_fine, &shard.send_sum_us),
        );
        self.histogram(
            &mut text,
            ("bench_receive_latency_seconds", "start of a send to a receiver"),
            &FINE_US,
            seconds,
            1e6,
            |shard| (&shard.receive_fine, &shard.receive_sum_us),
        );
        text
    }

    fn counters(&self, text: &mut String) {
        type Of = fn(&Shard) -> &AtomicU64;
        let counters: [(&str, &str, Of); 6] = [
            ("mqperf_sent_total", "number of sent messages", |shard| &shard.sent),
            ("mqperf_received_total", "number of received messages", |shard| &shard.received),
            (
                "bench_confirmed_total",
                "messages whose sender was told that they are safe",
                |shard| &shard.confirmed,
            ),
            ("bench_settled_total", "messages settled by their receivers", |shard| &shard.settled),
            ("bench_redelivered_total", "deliveries of what was delivered before", |shard| {
                &shard.redelivered
            }),
            ("bench_errors_total", "calls that failed", |shard| &shard.errors),
        ];
        for (name, help, of) in counters {
            let sum = self.shards.iter().map(|shard| of(shard).load(Relaxed)).sum();
            self.single(text, (name, help, "counter"), sum);
        }
    }

    fn single(&self, text: &mut String, (name, help, kind): (&str, &str, &str), value: u64) {
        push(
            text,
            format_args!(
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{{}}} {value}\n",
                self.labels
            ),
        );
    }

    /// `per_unit`: microseconds in the unit of the sum.
    fn histogram<const N: usize>(
        &self,
        text: &mut String,
        (name, help): (&str, &str),
        bounds: &[u64; N],
        written: impl Fn(u64) -> String,
        per_unit: f64,
        of: impl Fn(&Shard) -> (&Buckets<N>, &AtomicU64),
    ) {
        push(text, format_args!("# HELP {name} {help}\n# TYPE {name} histogram\n"));
        let total = |count: &dyn Fn(&Shard) -> u64| self.shards.iter().map(count).sum::<u64>();
        let labels = &self.labels;
        let mut below = 0;
        for (place, bound) in bounds.iter().enumerate() {
            below += total(&|shard| of(shard).0.counts[place].load(Relaxed));
            push(
                text,
                format_args!("{name}_bucket{{{labels},le=\"{}\"}} {below}\n", written(*bound)),
            );
        }
        // The count is the sum of the buckets, so that both agree despite concurrent recording.
        let all = below + total(&|shard| of(shard).0.beyond.load(Relaxed));
        let sum = total(&|shard| of(shard).1.load(Relaxed)) as f64 / per_unit;
        push(
            text,
            format_args!(
                "{name}_bucket{{{labels},le=\"+Inf\"}} {all}\n{name}_sum{{{labels}}} {sum:?}\n{name}_count{{{labels}}} {all}\n"
            ),
        );
    }
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writes to memory");
}

/// Escapes a label value for the text format.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_buckets_match_mqperf() {
        let live = Live::new("mqperf/base", "1", "node \"a\"\\\n");
        live.sent(10);
        live.send_latency_us(900, 1);
        live.send_latency_us(50_400, 1);
        live.send_latency_us(6_000_000, 1);
        live.received(3);
        live.receive_latency_us(61_000_000, 1);
        live.sender_threads_done(1);
        let text = live.exposition();
        let labels = r#"test="mqperf/base",run="1",host="node \"a\"\\\n""#;
        for line in [
            format!("mqperf_sent_total{{{labels}}} 10"),
            format!("mqperf_received_total{{{labels}}} 3"),
            format!("mqperf_sent_threads_done{{{labels}}} 1"),
            format!("mqperf_receive_threads_done{{{labels}}} 0"),
            // Less than a millisecond counts as zero, as with a clock of whole milliseconds.
            format!("mqperf_send_latency_ms_bucket{{{labels},le=\"0.0\"}} 1"),
            format!("mqperf_send_latency_ms_bucket{{{labels},le=\"50.0\"}} 2"),
            format!("mqperf_send_latency_ms_bucket{{{labels},le=\"5000.0\"}} 2"),
            format!("mqperf_send_latency_ms_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("mqperf_send_latency_ms_count{{{labels}}} 3"),
            format!("mqperf_send_latency_ms_sum{{{labels}}} 6051.3"),
            format!("mqperf_latency_ms_bucket{{{labels},le=\"60000.0\"}} 0"),
            format!("mqperf_latency_ms_bucket{{{labels},le=\"+Inf\"}} 1"),
            format!("bench_send_latency_seconds_bucket{{{labels},le=\"0.001\"}} 1"),
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }

    /// Checks each line against the format's grammar: help and type before the samples, each family
    /// in one piece, buckets cumulative and in order, `+Inf` equal to the count.
    #[test]
    fn exposition_follows_the_text_format() {
        let live = Live::new("a", "b", "c");
        (0..5_000).for_each(|step| live.receive_latency_us(step * step, 1));
        let text = live.exposition();
        assert!(text.ends_with('\n'));
        let mut family = String::new();
        let mut seen = Vec::new();
        let (mut last_bound, mut last_count) = (f64::NEG_INFINITY, 0);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap_or("").to_owned();
                assert!(!seen.contains(&family), "{family} twice");
                seen.push(family.clone());
                (last_bound, last_count) = (f64::NEG_INFINITY, 0);
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(rest.starts_with(&family));
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').expect("labels");
            assert!(name.starts_with(&family) && labels.ends_with('}'), "{line}");
            let value: f64 = value.parse().expect("a number");
            if let Some((_, bound)) = labels.split_once("le=\"") {
                let bound = bound.trim_end_matches("\"}").replace("+Inf", "inf");
                let bound: f64 = bound.parse().expect("a bound");
                assert!(bound > last_bound && value as u64 >= last_count, "{line}");
                (last_bound, last_count) = (bound, value as u64);
            } else if name.ends_with("_count") {
                assert_eq!(value as u64, last_count, "{line}");
            }
        }
        assert_eq!(seen.len(), 13);
    }

    #[test]
    fn concurrent_counts_add_up() {
        let live = Live::new("a", "b", "c");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        live.confirmed(2);
                        live.receive_latency_us(70, 1);
                    }
                });
            }
        });
        let text = live.exposition();
        assert!(text.contains("bench_confirmed_total{test=\"a\",run=\"b\",host=\"c\"} 16000\n"));
        assert!(text.contains("mqperf_latency_ms_count{test=\"a\",run=\"b\",host=\"c\"} 8000\n"));
    }

    #[test]
    fn histogram_input_counts_like_single_values() {
        let (one_by_one, at_once) = (Live::new("a", "b", "c"), Live::new("a", "b", "c"));
        let mut latency = Latency::default();
        for micros in [120, 120, 480, 999, 70_016] {
            latency.record_us(micros);
            one_by_one.send_latency_us(micros, 1);
            one_by_one.receive_latency_us(micros, 1);
        }
        at_once.send_latencies(&latency);
        at_once.receive_latencies(&latency);
        let lines = |live: &Live| {
            let text = live.exposition();
            // A histogram's values have three digits, so its sum is only approximate.
            text.lines()
                .filter(|line| !line.contains("_sum{"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&one_by_one), lines(&at_once));
    }

    /// A panel with an unknown metric shows nothing, and no error.
    #[test]
    fn dashboard_queries_only_existing_metrics() {
        let dashboard = include_str!("../../../deploy/grafana.json");
        let read: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
        let text = Live::new("a", "b", "c").exposition();
        let panels = read["panels"].as_array().expect("panels");
        let asked =
            panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let mut names = 0;
        for target in asked {
            let asked = target["expr"].as_str().expect("an expression");
            let words = asked.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in
                words.filter(|word| word.starts_with("mqperf_") || word.starts_with("bench_"))
            {
                assert!(text.contains(&format!("{name}{{")), "{name}");
                names += 1;
            }
        }
        assert!(names >= 10);
    }
}
