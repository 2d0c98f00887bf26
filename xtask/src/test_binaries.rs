//! Runs the tests of a workspace, several test binaries at once.
//!
//! `cargo test` runs one binary after the other. Many of ours wait for elections, leases and disks, and would leave
//! one of two cores idle. The documentation has no examples to run (a rule of `crates/tasks/tests/tidy.rs`).

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use serde_json::Value;

use crate::cargo::linting_cargo_command;
use crate::compat::Counts;
use crate::failure::{Context, Failure, Outcome};
use crate::side_by_side::{at_once, side_by_side};

/// Time that a binary's output may stay open after its end: a process that it left behind keeps the output open,
/// and may never end.
const LEFT_OPEN_MAX: Duration = Duration::from_secs(10);

/// Time after which a test binary is killed. The longest takes six minutes on two idle cores.
const BINARY_LIMIT: Duration = Duration::from_secs(25 * 60);

/// Binaries that take minutes. They start first, so that none of them runs alone at the end.
const LONGEST: [&str; 9] = [
    "consensus group",
    "nodes membership",
    "sim seeds",
    "journal transfer",
    "server cli",
    "broker broker",
    "kafka protocol",
    "sim crash",
    "test-cluster compaction",
];

struct Binary {
    /// `PACKAGE TARGET`, as shown to people.
    name: String,
    path: PathBuf,
    /// Directory of its package; cargo runs it there.
    directory: PathBuf,
}

struct TestRun {
    name: String,
    took: Duration,
    output: String,
    /// Whether its process succeeded.
    succeeded: bool,
    /// Whether it exceeded its time.
    is_killed: bool,
}

/// Builds, runs and counts all tests of a workspace. `of`: cargo arguments that select the workspace.
pub(crate) fn run(of: &[&str]) -> Outcome<Counts> {
    let mut counts = Counts::default();
    let mut failed = Vec::new();
    side_by_side(
        build(of)?,
        at_once(),
        |binary| run_binary(&binary),
        |ran| {
            let ran = ran?;
            println!("\n     Ran {} in {:.1} s\n{}", ran.name, ran.took.as_secs_f64(), ran.output);
            let results: Vec<(u64, u64)> = ran.output.lines().filter_map(test_result).collect();
            counts.passed += results.iter().map(|(passed, _)| passed).sum::<u64>();
            counts.failed += results.iter().map(|(_, failed)| failed).sum::<u64>();
            if !ran.succeeded {
                failed.push(ran.name);
            }
            Ok(())
        },
    )?;
    if !failed.is_empty() {
        let (passed, not) = (counts.passed, counts.failed);
        let of = failed.join(", ");
        return Err(Failure::new(format!("{passed} passed, {not} failed, in {of}")));
    }
    Ok(counts)
}

/// Runs the long tests of a test binary whole, of which [`run`] tries a part. `filter`: a part of their names.
pub(crate) fn run_thoroughly(name: &str, filter: &str) -> Outcome<Counts> {
    let found = build(&[])?.into_iter().find(|binary| binary.name == name);
    let binary = found.ok_or_else(|| Failure::new(format!("there is no test binary {name}")))?;
    let mut command = binary.command();
    let status = command.arg(filter).env("THOROUGH", "1").status()?;
    if !status.success() {
        return Err(Failure::new(format!("a test of {name} failed")));
    }
    Ok(Counts { passed: 1, failed: 0 })
}

/// The command that builds all test binaries of a workspace.
pub(crate) fn build_only(of: &[&str]) -> Command {
    let all = ["test", "--locked", "--workspace", "--no-run"];
    linting_cargo_command(&[&all[..], of].concat())
}

/// Builds all test binaries, and returns them.
fn build(of: &[&str]) -> Outcome<Vec<Binary>> {
    let built = build_only(of)
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context(|| "cannot run cargo")?;
    if !built.status.success() {
        return Err(Failure::new("the tests do not compile"));
    }
    let told = String::from_utf8_lossy(&built.stdout);
    let mut binaries: Vec<Binary> = told.lines().filter_map(binary).collect();
    binaries.sort_by_key(|binary| !LONGEST.contains(&&binary.name[..]));
    if binaries.is_empty() {
        return Err(Failure::new("cargo named no test binary"));
    }
    Ok(binaries)
}

/// The test binary that a message of cargo describes, if it does.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let directory = manifest.parent()?.to_owned();
    let package = directory.file_name()?.to_string_lossy();
    let name = format!("{package} {}", message["target"]["name"].as_str()?);
    Some(Binary { name, path, directory })
}

impl Binary {
    /// Runs it in its package's folder, as cargo does.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

fn run_binary(binary: &Binary) -> Outcome<TestRun> {
    let mut ran = run_command(&binary.name, binary.command(), BINARY_LIMIT)?;
    if ran.is_killed {
        let listed = binary.command().args(["--list", "--format", "terse"]).output()?;
        let names = String::from_utf8_lossy(&listed.stdout);
        let unfinished = unfinished_tests(&names, &ran.output).join(", ");
        let limit = BINARY_LIMIT.as_secs();
        ran.output += &format!("\nkilled after {limit} s; tests without a result: {unfinished}\n");
    }
    Ok(ran)
}

/// Names in a listing by a test binary that have no result in its output.
fn unfinished_tests<'a>(listing: &'a str, output: &str) -> Vec<&'a str> {
    let names = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| !output.contains(&format!("test {name} ... "))).collect()
}

fn run_command(name: &str, command: Command, limit: Duration) -> Outcome<TestRun> {
    let begun = Instant::now();
    let (mut child, output) = start(command).context(|| format!("cannot run {name}"))?;
    let (succeeded, is_killed) = loop {
        if let Some(status) = child.try_wait()? {
            break (status.success(), false);
        }
        if begun.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            break (false, true);
        }
        thread::sleep(Duration::from_millis(100));
    };
    if output.closed.recv_timeout(LEFT_OPEN_MAX).is_err() && !is_killed {
        let why = "left a process behind that keeps its output open";
        return Err(Failure::new(format!("a test of {name} {why}")));
    }
    let output = output.so_far();
    Ok(TestRun { name: name.to_owned(), took: begun.elapsed(), output, succeeded, is_killed })
}

/// Output of a command, read by a thread of its own.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Receives one value once the output is closed.
    closed: Receiver<()>,
}

impl Output {
    fn so_far(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn start(mut command: Command) -> io::Result<(Child, Output)> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let child = command.spawn()?;
    // The command holds the writing ends, which would keep the output open.
    drop(command);
    let (sender, closed) = mpsc::channel();
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&bytes);
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            read.extend_from_slice(&line);
            read.push(b'\n');
        }
        let _ = sender.send(());
    });
    Ok((child, Output { bytes, closed }))
}

/// Parses `test result: ok. 14 passed; 0 failed; ...`.
fn test_result(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_a_test_binary_are_counted() {
        let line =
            "test result: FAILED. 14 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(test_result(line), Some((14, 2)));
        assert_eq!(test_result("test a_result ... ok"), None);
    }

    #[test]
    fn only_test_binaries_are_taken_from_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            let manifest = "/w/crates/journal/Cargo.toml";
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","target":{{"name":"crash"}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = binary(&message(true, r#""/w/target/debug/deps/crash-1""#)).expect("a binary");
        assert_eq!(found.name, "journal crash");
        assert_eq!(found.directory, PathBuf::from("/w/crates/journal"));
        assert!(binary(&message(false, r#""/w/target/debug/postroad""#)).is_none());
        assert!(binary(&message(true, "null")).is_none());
        assert!(binary(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(binary("warning: not JSON").is_none());
    }

    #[test]
    fn output_is_kept_and_a_process_left_behind_is_reported() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run_command("some tests", command, Duration::from_secs(60))
        };
        let ran = shell("echo out; echo err >&2; exit 3").expect("it ran");
        assert!(!ran.succeeded && ran.output == "out\nerr\n", "{}", ran.output);
        let told = shell("sleep 15 &").err().expect("a process is left behind");
        assert!(told.to_string().contains("left a process behind"), "{told}");
    }

    #[test]
    fn binary_beyond_its_time_is_killed_and_its_unfinished_tests_are_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo test quick ... ok; exec sleep 60"]);
        let ran = run_command("some tests", command, Duration::from_millis(500)).expect("it ran");
        assert!(ran.is_killed && !ran.succeeded, "{}", ran.output);
        let listing = "quick: test\nstuck: test\n\n2 tests, 0 benchmarks\n";
        assert_eq!(unfinished_tests(listing, &ran.output), ["stuck"]);
    }
}
