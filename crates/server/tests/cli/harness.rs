//! A separate broker for each test, and commands against it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn postroad() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postroad"));
    // The environment of the developer must not affect the tests.
    for name in [
        "BOOTSTRAP",
        "DATA",
        "KAFKA",
        "CONFIG",
        "TOKEN",
        "TOKEN_FILE",
        "LOGIN",
        "PASSWORD",
        "TLS_CA",
    ] {
        command.env_remove(format!("POSTROAD_{name}"));
    }
    // Tests run concurrently, and next to processes that use the default port.
    command.env("POSTROAD_AMQP", "127.0.0.1:0");
    command.env("POSTROAD_HTTP", "127.0.0.1:0");
    command
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// Checks that the command failed with `code`, and printed all of `words` on standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in: {}", self.err);
        }
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("one JSON document")
    }
}

/// Runs a command to its end, with `input` on its standard input.
pub(crate) fn run(mut command: Command, input: &[u8]) -> CommandOutput {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // A command may end before it has read all of its input.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    feeding.join().expect("feeding does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    CommandOutput { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A broker. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    pub(crate) address: String,
    pub(crate) announcement: String,
    data: PathBuf,
    /// Deleted with the broker that uses it.
    _folder: Option<TempDir>,
}

impl Broker {
    pub(crate) fn start() -> Broker {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        let mut broker = Broker::start_on(&data);
        broker._folder = Some(folder);
        broker
    }

    /// On data owned by the caller.
    pub(crate) fn start_on(data: &Path) -> Broker {
        Broker::start_with(serve(data), data)
    }

    pub(crate) fn start_with(mut command: Command, data: &Path) -> Broker {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let stdout = child.stdout.take().expect("piped");
        let announcement = announcement(stdout).unwrap_or_else(|| {
            let _ = child.kill();
            panic!("no ready line; the log:\n{}", log(data));
        });
        let address = announcement
            .split_once("kafka ")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .expect("the line says where it listens")
            .to_owned();
        Broker { child, address, announcement, data: data.to_owned(), _folder: None }
    }

    /// A command with this broker's address.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = postroad();
        command.args(arguments).env("POSTROAD_BOOTSTRAP", &self.address);
        // If the broker requires a login, the command finds the operator token there.
        command.env("POSTROAD_DATA", &self.data);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        run(self.command(arguments), b"")
    }

    pub(crate) fn feed(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> CommandOutput {
        run(self.command(arguments), input.as_ref())
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> RunningCommand {
        RunningCommand::start(self.command(arguments))
    }

    /// Sends SIGTERM. Returns the exit status and the log.
    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        signal(&self.child, Signal::TERM);
        let status = wait(&mut self.child);
        (status, log(&self.data))
    }

    /// Address for AMQP clients.
    pub(crate) fn amqp(&self) -> SocketAddr {
        self.port("amqp ")
    }

    /// Address for HTTP clients.
    pub(crate) fn http(&self) -> SocketAddr {
        self.port("http ")
    }

    /// Address of a port, by its name in the start-up line.
    pub(crate) fn port(&self, name: &str) -> SocketAddr {
        let (_, rest) = self.announcement.split_once(name).expect("the line says it");
        rest.split(',').next().and_then(|address| address.parse().ok()).expect("an address")
    }

    pub(crate) fn signal(&self, sent: Signal) {
        signal(&self.child, sent);
    }

    /// Waits for the end. Returns the exit status and the log.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        (status, log(&self.data))
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `serve` on a free port, with its log next to the data.
pub(crate) fn serve(data: &Path) -> Command {
    serve_at(data, "127.0.0.1:0")
}

pub(crate) fn serve_with_shards(data: &Path, shards: u32) -> Command {
    let mut command = serve(data);
    command.args(["--shards", &shards.to_string()]);
    command
}

pub(crate) fn serve_at(data: &Path, address: &str) -> Command {
    let log = File::options().create(true).append(true).open(log_path(data)).expect("a log");
    let mut command = postroad();
    command
        .args(["serve", "--kafka", address, "--segment-bytes", "16MiB", "--data"])
        .arg(data)
        // As in Kafka's own tests: the first member of a group need not wait for others.
        .env("POSTROAD_KAFKA_CONFIG", "group.initial.rebalance.delay.ms=0")
        .stdin(Stdio::null())
        .stderr(log);
    command
}

pub(crate) fn log_path(data: &Path) -> PathBuf {
    data.with_extension("log")
}

pub(crate) fn log(data: &Path) -> String {
    std::fs::read_to_string(log_path(data)).unwrap_or_default()
}

/// Returns the start-up line, once `ready` follows. Continues reading so that the pipe stays open.
fn announcement(stdout: ChildStdout) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The receiver is gone after `ready`.
            let _ = sender.send(line);
        }
    });
    let first = receiver.recv_timeout(PATIENCE).ok()?;
    let second = receiver.recv_timeout(PATIENCE).ok()?;
    (second == "ready").then_some(first)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running command.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl RunningCommand {
    fn start(mut command: Command) -> RunningCommand {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        RunningCommand { child, lines }
    }

    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(text.as_bytes()).expect("it reads");
        stdin.flush().expect("it reads");
    }

    /// Sends Ctrl-C. Returns the remaining output.
    pub(crate) fn interrupt(self) -> CommandOutput {
        signal(&self.child, Signal::INT);
        self.end()
    }

    pub(crate) fn end(mut self) -> CommandOutput {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child);
        let mut err = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut err).expect("text");
        let lines: Vec<String> = self.lines.iter().collect();
        CommandOutput { code: status.code(), out: lines.join("\n"), err }
    }
}

/// Waits until `holds`. Each check costs a command.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `1\n2\n...`, as `seq` prints it.
pub(crate) fn seq(numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|number| format!("{number}\n")).collect()
}
