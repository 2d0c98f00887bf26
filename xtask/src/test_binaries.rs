//! Runs the tests of a workspace, several test binaries at once.
//!
//! `cargo test` runs one binary after the other. Many of ours wait for elections, leases and disks, and would leave
//! one of two cores idle. The documentation has no examples to run (a rule of `crates/tasks/tests/tidy.rs`).

use std::io::{PipeReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
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

/// Binaries that take minutes. They start first, so that none of them runs alone at the end.
const LONGEST: [&str; 3] = ["broker broker", "kafka protocol", "sim seeds"];

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

/// Runs a test binary in its package's folder, as cargo does.
fn run_binary(binary: &Binary) -> Outcome<TestRun> {
    let mut command = Command::new(&binary.path);
    command.current_dir(&binary.directory).env("CARGO_MANIFEST_DIR", &binary.directory);
    run_command(&binary.name, command)
}

fn run_command(name: &str, command: Command) -> Outcome<TestRun> {
    let begun = Instant::now();
    let (mut child, output) = start(command).context(|| format!("cannot run {name}"))?;
    let succeeded = child.wait()?.success();
    let output = match output.recv_timeout(LEFT_OPEN_MAX) {
        Ok(output) => output?,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            let why = "left a process behind that keeps its output open";
            return Err(Failure::new(format!("a test of {name} {why}")));
        }
    };
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(TestRun { name: name.to_owned(), took: begun.elapsed(), output, succeeded })
}

/// Starts a command; its whole output is sent once the output is closed.
fn start(mut command: Command) -> io::Result<(Child, Receiver<io::Result<Vec<u8>>>)> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let child = command.spawn()?;
    // The command holds the writing ends, which would keep the output open.
    drop(command);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || drop(sender.send(read_all(reader))));
    Ok((child, receiver))
}

fn read_all(mut reader: PipeReader) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    Ok(output)
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
            run_command("some tests", command)
        };
        let ran = shell("echo out; echo err >&2; exit 3").expect("it ran");
        assert!(!ran.succeeded && ran.output == "out\nerr\n", "{}", ran.output);
        let told = shell("sleep 15 &").err().expect("a process is left behind");
        assert!(told.to_string().contains("left a process behind"), "{told}");
    }
}
