//! Kafka's own performance tools, run against the broker of each turn.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use peers::Tool;

use crate::failure::{Failure, Outcome, last_lines};
use crate::java::{java, output_of};
use crate::stage::Stage;

const LOGGING: &str = "Configuration:
  Appenders:
    Console: { name: out, target: SYSTEM_ERR, PatternLayout: { pattern: '%d %p %c{1}: %m%n' } }
  Loggers:
    Root: { level: WARN, AppenderRef: { ref: out } }
";
const ROUND_TRIP: &str = include_str!("../../java/RoundTrip.java");

/// The installed tools.
#[derive(Debug)]
pub(super) struct Tools {
    class_path: Vec<PathBuf>,
}

/// Final output of ProducerPerformance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Produced {
    pub(super) records_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// Final output of ConsumerPerformance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Consumed {
    /// Over the whole run, including the join of the group.
    pub(super) records_per_second: f64,
    /// While fetching only.
    pub(super) fetched_per_second: f64,
}

/// In whole milliseconds from EndToEndLatency, in microseconds from our RoundTrip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndToEnd {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// RoundTrip's figures, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundTrip {
    pub(super) acknowledged_p50_us: f64,
    pub(super) consumed_p50_us: f64,
    pub(super) consumed_p99_us: f64,
}

impl Tools {
    /// Installs Kafka unless it is installed, and compiles our own program beside the data, so that
    /// the installation is not modified.
    pub(super) fn install(stage: &Stage) -> Outcome<Tools> {
        let libraries = stage.peers.install_tool(Tool::Kafka, stage.progress)?;
        let home = stage.folder().join("kafka-tools");
        fs::create_dir_all(&home).map_err(Failure::file("create", &home))?;
        let source = home.join("RoundTrip.java");
        for (path, text) in [(&home.join("log4j2.yaml"), LOGGING), (&source, ROUND_TRIP)] {
            fs::write(path, text).map_err(Failure::file("write", path))?;
        }
        let mut compiler = Command::new("javac");
        compiler.arg("-cp").arg(libraries.join("*")).arg("-d").arg(&home).arg(&source);
        output_of(compiler, "javac").map_err(Failure::compiler)?;
        Ok(Tools { class_path: vec![home, libraries.join("*")] })
    }

    fn java(&self) -> Command {
        java(&self.class_path)
    }

    /// ProducerPerformance, unthrottled, `acks=all`, one fixed line as every record's value.
    pub(super) fn produce(
        &self,
        address: SocketAddr,
        topic: &str,
        records: u64,
        payload: &Path,
    ) -> Outcome<Produced> {
        let mut tool = self.java();
        tool.arg("org.apache.kafka.tools.ProducerPerformance");
        tool.args(["--topic", topic, "--throughput", "-1", "--num-records", &records.to_string()]);
        tool.arg("--payload-file").arg(payload);
        tool.arg("--command-property").arg(format!("bootstrap.servers={address}"));
        tool.args(["acks=all", "linger.ms=5", "batch.size=65536", "buffer.memory=67108864"]);
        let output = output_of(tool, "ProducerPerformance")?;
        parse_produced(&output).ok_or_else(|| unread("ProducerPerformance", &output))
    }

    /// ConsumerPerformance: one consumer in a fresh group reads `records` from the beginning.
    pub(super) fn consume(
        &self,
        address: SocketAddr,
        topic: &str,
        records: u64,
    ) -> Outcome<Consumed> {
        let mut tool = self.java();
        tool.arg("org.apache.kafka.tools.ConsumerPerformance");
        tool.args(["--bootstrap-server", &address.to_string(), "--topic", topic, "--hide-header"]);
        tool.args(["--num-records", &records.to_string(), "--timeout", "60000"]);
        let output = output_of(tool, "ConsumerPerformance")?;
        parse_consumed(&output).ok_or_else(|| unread("ConsumerPerformance", &output))
    }

    /// EndToEndLatency, 1 KB, one at a time.
    pub(super) fn end_to_end(
        &self,
        address: SocketAddr,
        topic: &str,
        records: u64,
    ) -> Outcome<EndToEnd> {
        let mut tool = self.java();
        tool.arg("org.apache.kafka.tools.EndToEndLatency");
        tool.args([&address.to_string(), topic, &records.to_string(), "all", "1024"]);
        let output = output_of(tool, "EndToEndLatency")?;
        parse_end_to_end(&output).ok_or_else(|| unread("EndToEndLatency", &output))
    }

    /// The same measurement by our own program in microseconds, after a warm-up.
    pub(super) fn round_trip(
        &self,
        address: SocketAddr,
        topic: &str,
        records: u64,
    ) -> Outcome<RoundTrip> {
        let mut tool = self.java();
        tool.arg("RoundTrip").args([&address.to_string(), topic, &records.to_string()]);
        tool.args([&records.to_string(), "1024"]);
        let output = output_of(tool, "RoundTrip")?;
        parse_round_trip(&output).ok_or_else(|| unread("RoundTrip", &output))
    }
}

fn unread(program: &'static str, output: &str) -> Failure {
    let see = "bench/crates/tools/src/kafka/tools.rs";
    Failure::NotUnderstood { program, see, said: last_lines(output.lines()) }
}

/// `600000 records sent, 130492.0 records/sec (127.43 MB/sec), 340.1 ms avg latency, 900.00 ms max
/// latency, 340 ms 50th, 600 ms 95th, 707 ms 99th, 720 ms 99.9th.`
fn parse_produced(output: &str) -> Option<Produced> {
    let line = output.lines().rev().find(|line| line.contains(" 99.9th"))?;
    let before = |mark: &str| -> Option<f64> {
        let (head, _) = line.split_once(mark)?;
        head.rsplit([' ', '(']).next()?.replace(',', "").parse().ok()
    };
    Some(Produced {
        records_per_second: before(" records/sec")?,
        p50_ms: before(" ms 50th")?,
        p99_ms: before(" ms 99th")?,
    })
}

/// `start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s`
fn parse_consumed(output: &str) -> Option<Consumed> {
    let columns = |line: &str| line.split(", ").map(|field| field.trim().to_owned()).collect();
    let line: Vec<String> =
        output.lines().rev().map(columns).find(|line: &Vec<String>| line.len() == 10)?;
    Some(Consumed {
        records_per_second: line[5].parse().ok()?,
        fetched_per_second: line[9].parse().ok()?,
    })
}

/// `Avg latency: 1.42 ms` and `Percentiles: 50th = 1, 99th = 6, 99.9th = 14`
fn parse_end_to_end(output: &str) -> Option<EndToEnd> {
    let line = output.lines().rev().find(|line| line.starts_with("Percentiles:"))?;
    let after = |mark: &str| -> Option<f64> {
        line.split_once(mark)?.1.split(',').next()?.trim().parse().ok()
    };
    Some(EndToEnd { p50_ms: after("50th = ")?, p99_ms: after(" 99th = ")? })
}

fn parse_round_trip(output: &str) -> Option<RoundTrip> {
    let figures = |name: &str| -> Option<Vec<f64>> {
        let line = output.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|figure| figure.parse().ok()).collect()
    };
    let (acknowledged, consumed) = (figures("acknowledged ")?, figures("consumed ")?);
    Some(RoundTrip {
        acknowledged_p50_us: *acknowledged.first()?,
        consumed_p50_us: *consumed.first()?,
        consumed_p99_us: *consumed.get(1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_lines_of_kafkas_tools_are_parsed() {
        let produced = "501 records sent, 100.2 records/sec (0.10 MB/sec)\n\
            600000 records sent, 130491.5 records/sec (127.43 MB/sec), 340.10 ms avg latency, \
            900.00 ms max latency, 340 ms 50th, 600 ms 95th, 707 ms 99th, 720 ms 99.9th.\n";
        let wanted = Produced { records_per_second: 130_491.5, p50_ms: 340.0, p99_ms: 707.0 };
        assert_eq!(parse_produced(produced), Some(wanted));

        let consumed = "2026-11-21 19:00:00:000, 2026-11-21 19:00:05:000, 1757.8125, 351.5, \
            1800000, 407424.2, 312, 4688, 374.9, 383959.0\n";
        let wanted = Consumed { records_per_second: 407_424.2, fetched_per_second: 383_959.0 };
        assert_eq!(parse_consumed(consumed), Some(wanted));

        let latency = "Avg latency: 1.4200 ms\n\nPercentiles: 50th = 1, 99th = 6, 99.9th = 14\n";
        assert_eq!(parse_end_to_end(latency), Some(EndToEnd { p50_ms: 1.0, p99_ms: 6.0 }));

        let round_trip = "acknowledged 500.1 900.0 1200.0 5000.0\nconsumed 800.5 1500.0 2.0 3.0\n";
        let wanted = RoundTrip {
            acknowledged_p50_us: 500.1,
            consumed_p50_us: 800.5,
            consumed_p99_us: 1500.0,
        };
        assert_eq!(parse_round_trip(round_trip), Some(wanted));
        assert_eq!(parse_produced("Exception in thread main"), None);
    }
}
