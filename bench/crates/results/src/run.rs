use std::collections::BTreeMap;

use driver::Tier;
use serde::{Deserialize, Serialize};

use crate::{Agent, Audit, Host, Latency};

/// One run of one test on one system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    pub schema: u32,
    /// Version and commit of the suite.
    pub suite: String,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub test: Test,
    pub system: System,
    pub host: Host,
    /// The machines that sent and received, if agents did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
    pub verdict: Verdict,
    /// Caveats for the reader: `client-bound`, errors.
    pub remarks: Vec<String>,
    /// The figures of the test; the first one is its headline.
    pub measures: Vec<Measure>,
    pub seconds: Vec<Second>,
    /// Events: `kill -9 node 1`, `consumers paused`.
    pub marks: Vec<Mark>,
    /// Successive steps of the run, if it has any: shares of the load, tried rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// By name: `send` (from the start of the call), `send-due` (from the due time), `send-delay`
    /// (between the two), `receive` (sent to received), `receive-due`, `settle` (sent to settled),
    /// and those that a test adds.
    pub latencies: BTreeMap<String, Latency>,
    pub processes: Vec<Process>,
    pub audit: Audit,
    /// The same results in the terms of other suites: `omb`, `mqperf`, `perftest`.
    pub compatibility: BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Test {
    /// `mqperf/base`.
    pub name: String,
    /// The question that the test answers, in a sentence.
    #[serde(default)]
    pub asks: String,
    /// `local` or `full`.
    pub form: String,
    /// A sender waits for a reply before its next message, so a slow system gets less load.
    pub closed_loop: bool,
    pub parameters: BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct System {
    /// `rabbitmq-quorum`.
    pub name: String,
    pub title: String,
    pub version: String,
    pub client: String,
    pub tier: Tier,
    pub sent_means: String,
    /// All settings of server and client that differ from their defaults.
    pub settings: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "is", content = "why", rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    /// It lost, reordered or duplicated messages against the rules, or did not complete the test.
    Failed(Vec<String>),
    /// Ended early by the user or by a failure. The results are those so far.
    Interrupted(String),
    /// The test needs a feature that the system lacks: nothing was run.
    NotSupported(String),
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measure {
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Standard deviation of a figure that was measured several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    pub better: Better,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// Events of one second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Since the start of the load; negative in the warm-up.
    pub at: i64,
    pub sent: u64,
    pub confirmed: u64,
    pub received: u64,
    pub settled: u64,
    pub errors: u64,
    pub redelivered: u64,
    /// Messages confirmed and not yet received, over all subscriptions.
    pub backlog: u64,
    /// Microseconds.
    pub send_p50: u64,
    pub send_p99: u64,
    pub receive_p50: u64,
    pub receive_p99: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds since the start of the load.
    pub at: f64,
    pub what: String,
}

/// Figures at one of several settings within a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The varied parameter: `offered rate`. The same in all steps of a run.
    pub parameter: String,
    pub value: f64,
    pub unit: String,
    /// The first one is the main figure of the step.
    pub measures: Vec<Measure>,
}

/// Resource usage of a process. The suite's own processes are included.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// `broker`, `broker 2`; the suite's own: `suite`, `agent 1`.
    pub name: String,
    pub usage: Vec<Usage>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds since the start of the load.
    pub at: f64,
    /// CPU seconds used since the process began.
    pub cpu: f64,
    /// Shared pages are counted once.
    pub resident_bytes: u64,
    /// Bytes that it caused to be written since it began.
    pub written_bytes: u64,
}

impl Run {
    pub fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }

    /// Reason that nothing was run, if so.
    pub fn not_supported(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::NotSupported(why) => Some(why),
            _ => None,
        }
    }

    pub fn counts(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}

impl Process {
    /// CPU seconds between the first sample and the last. A decrease means that the process was
    /// killed and restarted: all usage of the new one counts.
    pub fn cpu_seconds(&self) -> f64 {
        let between = |pair: &[Usage]| match pair[1].cpu - pair[0].cpu {
            used if used >= 0.0 => used,
            _ => pair[1].cpu,
        };
        self.usage.windows(2).map(between).sum()
    }

    /// Whether it belongs to the suite, and not to the system under test.
    pub fn is_suite(&self) -> bool {
        self.name.starts_with("suite") || self.is_agent()
    }

    /// Whether it is an agent, which runs on a machine of its own.
    pub fn is_agent(&self) -> bool {
        self.name.starts_with("agent")
    }

    /// Bytes that it caused to be written between the first sample and the last.
    pub fn written_bytes(&self) -> u64 {
        let at = |usage: Option<&Usage>| usage.map_or(0, |usage| usage.written_bytes);
        at(self.usage.last()).saturating_sub(at(self.usage.first()))
    }

    pub fn resident_bytes_max(&self) -> u64 {
        self.usage.iter().map(|usage| usage.resident_bytes).max().unwrap_or(0)
    }
}
