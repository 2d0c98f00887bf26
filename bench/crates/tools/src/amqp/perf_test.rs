//! RabbitMQ's PerfTest, from Maven Central, run against the server of each turn. Its lines are read
//! on arrival, so that the CPU time of server and client covers exactly the measured intervals. Its
//! closing summary is not used, because it includes the warm-up of its virtual machine.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use peers::Tool;

use crate::failure::{Failure, Outcome, last_lines};
use crate::java::java;
use crate::stage::{CpuClock, DiskClock, Server, Stage};

/// Its name in messages.
const PROGRAM: &str = "PerfTest";
/// Time limit from its start to its first line, and from its last line to its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// An installed PerfTest.
#[derive(Debug)]
pub(super) struct PerfTest {
    class_path: Vec<PathBuf>,
}

/// Length of a run, and its measured part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) interval_seconds: u32,
    /// Intervals before the measured ones.
    pub(super) warm_up: usize,
    pub(super) measured: usize,
}

/// Means over the measured intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) interval: Interval,
    pub(super) server_cpu_seconds: f64,
    pub(super) client_cpu_seconds: f64,
    /// Bytes written to the disk; `None` where the kernel does not report them.
    disk_bytes: Option<f64>,
}

impl Measured {
    pub(super) fn disk_bytes_per_confirmed(&self) -> Option<f64> {
        Some(self.disk_bytes? / (self.interval.confirmed_per_second * self.seconds))
    }
}

/// One output line. A latency is the quantile of a sample of about 1,000 messages of the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Interval {
    /// Seconds since its start.
    at_seconds: f64,
    pub(super) confirmed_per_second: f64,
    pub(super) nacked_per_second: f64,
    pub(super) received_per_second: f64,
    pub(super) consumer: Latency,
    pub(super) confirm: Latency,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl PerfTest {
    pub(super) fn install(stage: &Stage) -> Outcome<PerfTest> {
        let libraries = stage.peers.install_tool(Tool::PerfTest, stage.progress)?;
        Ok(PerfTest { class_path: vec![libraries.join("*")] })
    }

    /// Runs with 1 KB persistent messages, 200 unconfirmed for each producer, manual
    /// acknowledgements, and at most 100 unacknowledged for each consumer. `arguments` define the
    /// queues. The server's data is below `folder`.
    pub(super) fn run(
        &self,
        (server, folder): (&Server, &Path),
        arguments: &[&str],
        plan: Plan,
    ) -> Outcome<Measured> {
        let lines = plan.warm_up + plan.measured;
        // Some extra seconds, so that the last interval ends before the run does.
        let seconds = lines as u64 * u64::from(plan.interval_seconds) + 3;
        let mut command = java(&self.class_path);
        // Rates below 10 have a decimal, which some locales write with a comma.
        command.arg("-Duser.language=en").arg("com.rabbitmq.perf.PerfTest");
        command.args(["--uri", &uri(server.address), "--size", "1024", "--flag", "persistent"]);
        command.args(["--confirm", "200", "--qos", "100", "--auto-delete", "false"]);
        command.args(["--interval", &plan.interval_seconds.to_string()]);
        command.args(["--time", &seconds.to_string()]).args(arguments);
        let run = Run::start(command, PATIENCE + Duration::from_secs(seconds))?;
        run.measure(server, folder, plan)
    }
}

fn uri(address: SocketAddr) -> String {
    format!("amqp://guest:guest@{address}")
}

/// A run in progress.
#[derive(Debug)]
struct Run {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
    /// Its last lines that were not intervals.
    said: Vec<String>,
}

impl Run {
    fn start(mut command: Command, within: Duration) -> Outcome<Run> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| Failure::NotRun { program: PROGRAM, why })?;
        let (sender, lines) = mpsc::channel();
        pass_on(child.stdout.take().expect("stdout is piped"), sender.clone());
        pass_on(child.stderr.take().expect("stderr is piped"), sender);
        Ok(Run { child, lines, deadline: Instant::now() + within, said: Vec::new() })
    }

    fn measure(mut self, server: &Server, folder: &Path, plan: Plan) -> Outcome<Measured> {
        let mut begun = self.interval()?;
        for _ in 1..plan.warm_up {
            begun = self.interval()?;
        }
        let (server_clock, client_clock) =
            (server.cpu_clock()?, CpuClock::start(vec![self.child.id()])?);
        let disk_clock = DiskClock::start(folder);
        let mut intervals = Vec::with_capacity(plan.measured);
        for _ in 0..plan.measured {
            intervals.push(self.interval()?);
        }
        let measured = Measured {
            server_cpu_seconds: server_clock.seconds()?,
            client_cpu_seconds: client_clock.seconds()?,
            disk_bytes: disk_clock.and_then(|clock| clock.bytes()),
            ..mean(begun.at_seconds, &intervals)
        };
        if measured.interval.nacked_per_second > 0.0 {
            return Err(self.failure("saw messages that were not confirmed but refused"));
        }
        if measured.interval.received_per_second == 0.0 {
            return Err(self.failure("received nothing"));
        }
        self.end()?;
        Ok(measured)
    }

    /// The next interval's line.
    fn interval(&mut self) -> Outcome<Interval> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return Err(self.not_understood());
            };
            match parse(&line) {
                Some(interval) => return Ok(interval),
                None => self.said.push(line),
            }
        }
    }

    /// Waits for its end: closing its channels and connections is part of the run.
    fn end(&mut self) -> Outcome {
        while Instant::now() < self.deadline {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.failure(&format!("ended with {status}"))),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(why) => return Err(Failure::NotRun { program: PROGRAM, why }),
            }
        }
        Err(self.failure("did not end"))
    }

    fn failure(&mut self, how: &str) -> Failure {
        self.said.extend(self.lines.try_iter());
        let said = last_lines(self.said.iter().map(String::as_str));
        Failure::Tool { program: PROGRAM, how: how.to_owned(), said }
    }

    fn not_understood(&mut self) -> Failure {
        self.said.extend(self.lines.try_iter());
        let said = last_lines(self.said.iter().map(String::as_str));
        let see = "bench/crates/tools/src/amqp/perf_test.rs";
        Failure::NotUnderstood { program: PROGRAM, see, said }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Both fail if it has already ended, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pass_on(stream: impl Read + Send + 'static, lines: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
}

/// Means of all figures, weighted by the length of the intervals.
fn mean(begun_seconds: f64, intervals: &[Interval]) -> Measured {
    let seconds = intervals.last().map_or(0.0, |last| last.at_seconds) - begun_seconds;
    let starts =
        std::iter::once(begun_seconds).chain(intervals.iter().map(|interval| interval.at_seconds));
    let mean = |figure: fn(&Interval) -> f64| {
        let weighted = intervals.iter().zip(starts.clone());
        weighted.map(|(of, start)| figure(of) * (of.at_seconds - start)).sum::<f64>() / seconds
    };
    let interval = Interval {
        at_seconds: begun_seconds + seconds,
        confirmed_per_second: mean(|of| of.confirmed_per_second),
        nacked_per_second: mean(|of| of.nacked_per_second),
        received_per_second: mean(|of| of.received_per_second),
        consumer: Latency {
            p50_us: mean(|of| of.consumer.p50_us),
            p99_us: mean(|of| of.consumer.p99_us),
        },
        confirm: Latency {
            p50_us: mean(|of| of.confirm.p50_us),
            p99_us: mean(|of| of.confirm.p99_us),
        },
    };
    Measured { seconds, interval, ..Measured::default() }
}

/// `id: test-191530-422, time 1.000 s, sent: 9000 msg/s, confirmed: 8900 msg/s, nacked: 0 msg/s,
/// received: 8800 msg/s, min/median/75th/95th/99th/max consumer latency: 1/2/3/4/5/6 µs, confirm
/// latency: 1/2/3/4/5/6 µs`
fn parse(line: &str) -> Option<Interval> {
    let after = |mark: &str| line.split_once(mark)?.1.split_whitespace().next();
    let number = |mark: &str| after(mark)?.parse().ok();
    let latency = |mark: &str| {
        let quantiles: Vec<&str> = after(mark)?.split('/').collect();
        let quantile = |index: usize| quantiles.get(index)?.parse().ok();
        Some(Latency { p50_us: quantile(1)?, p99_us: quantile(4)? })
    };
    Some(Interval {
        at_seconds: number(", time ")?,
        confirmed_per_second: number(", confirmed: ")?,
        nacked_per_second: number(", nacked: ")?,
        received_per_second: number(", received: ")?,
        consumer: latency("consumer latency: ")?,
        confirm: latency("confirm latency: ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_interval_lines_are_parsed() {
        let line = "id: test-191530-422, time 2.000 s, sent: 9000 msg/s, confirmed: 8900 msg/s, \
            nacked: 0 msg/s, received: 9.5 msg/s, min/median/75th/95th/99th/max \
            consumer latency: 1/20/30/40/500/600 µs, confirm latency: 2/30/40/50/600/700 µs";
        let wanted = Interval {
            at_seconds: 2.0,
            confirmed_per_second: 8900.0,
            nacked_per_second: 0.0,
            received_per_second: 9.5,
            consumer: Latency { p50_us: 20.0, p99_us: 500.0 },
            confirm: Latency { p50_us: 30.0, p99_us: 600.0 },
        };
        assert_eq!(parse(line), Some(wanted));
        assert_eq!(parse("id: test-191530-422, sending rate avg: 9000 msg/s"), None);
    }

    #[test]
    fn intervals_are_weighted_by_their_length() {
        let interval = |at_seconds, received_per_second| Interval {
            at_seconds,
            received_per_second,
            ..Interval::default()
        };
        let measured = mean(10.0, &[interval(11.0, 100.0), interval(14.0, 300.0)]);
        assert_eq!((measured.seconds, measured.interval.received_per_second), (4.0, 250.0));
    }
}
