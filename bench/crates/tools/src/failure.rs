//! Reasons that a comparison failed: the error, and the last lines of the program's output.

use std::io;
use std::path::{Path, PathBuf};

use client::CallError;
use client_amqp::AmqpError;
use peers::{InstallError, OpenError, StartError, StopError};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Failure {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{}", source.with_details())]
    Install {
        #[from]
        source: InstallError,
    },
    #[error("{}", source.with_details())]
    Start {
        #[from]
        source: StartError,
    },
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error(transparent)]
    Process(#[from] host::process::Unreadable),
    #[error(transparent)]
    Probe(#[from] host::probe::ProbeError),
    #[error("cannot {what} {}: {why}", path.display())]
    File { what: &'static str, path: PathBuf, why: io::Error },
    #[error("cannot run {program}: {why}")]
    NotRun { program: &'static str, why: io::Error },
    #[error("{program} {how}{}", quoted(said))]
    Tool { program: &'static str, how: String, said: Vec<String> },
    #[error(
        "{program} printed no result that is understood; a newer version may print it differently: \
         see {see}{}",
        quoted(said)
    )]
    NotUnderstood { program: &'static str, see: &'static str, said: Vec<String> },
    #[error("{0}\n  what to do: install a JDK (apt-get install default-jdk)")]
    Compiler(Box<Failure>),
    #[error("cannot {what}: {why}")]
    Call { what: &'static str, why: CallError },
    #[error("cannot fill the queues: {0}")]
    Queues(#[from] AmqpError),
    #[error("{led} of {wanted} partitions have a leader")]
    NoLeaders { led: usize, wanted: i32 },
    #[error("{count} partitions refuse records")]
    Refused { count: usize },
    #[error("{broker} speaks no {protocol}")]
    Silent { broker: String, protocol: &'static str },
    #[error("no workload is left to run: choose workloads that the chosen brokers take part in")]
    NoWorkload,
    #[error("{workload}, {contender}: {why}")]
    Turn { workload: &'static str, contender: &'static str, why: Box<Failure> },
    #[error("{count} target(s) missed")]
    Missed { count: usize },
}

impl Failure {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
        let path = path.to_path_buf();
        move |why| Failure::File { what, path, why }
    }

    pub(crate) fn compiler(why: Failure) -> Failure {
        Failure::Compiler(Box::new(why))
    }

    pub(crate) fn call(what: &'static str) -> impl FnOnce(CallError) -> Failure {
        move |why| Failure::Call { what, why }
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Number of lines of a tool's output or a log that are shown.
const LAST_LINES: usize = 15;

pub(crate) fn last_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let lines: Vec<&str> = lines.into_iter().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|&line| line.to_owned()).collect()
}

fn quoted(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n    | {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_quotes_the_last_lines_of_the_tool() {
        let said: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
        let said = last_lines(said.iter().map(String::as_str));
        let failure = Failure::Tool { program: "PerfTest", how: "did not end".to_owned(), said };
        let text = failure.to_string();
        assert!(text.starts_with("PerfTest did not end\n    | 6\n"), "{text}");
        assert!(text.ends_with("    | 20"), "{text}");
    }
}
