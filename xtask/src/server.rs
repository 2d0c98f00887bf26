//! A server under test as a child process: started on loopback, ready when it serves, and stopped by SIGTERM or
//! `kill -9`. It is killed when its owner is dropped, so that a failed chore leaves no server behind.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, Outcome};
use crate::paths;
use crate::random::Random;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    name: &'static str,
    child: Child,
    /// Address for clients: Postroad's Kafka port, unless the caller has set another one.
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

const QUICK_CHORES: &str =
    "group.initial.rebalance.delay.ms=0 log.retention.check.interval.ms=1000";

/// Binary, paths and arguments of `postroad serve`.
#[derive(Clone, Debug)]
pub(crate) struct Postroad {
    pub(crate) binary: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) port: u16,
    /// Further arguments of `postroad serve`.
    pub(crate) arguments: Vec<String>,
}

impl Postroad {
    /// Starts the server and returns at once.
    pub(crate) fn spawn(&self) -> Outcome<StartingServer> {
        self.spawn_with(&[])
    }

    /// Starts the server with these environment variables, and returns at once.
    pub(crate) fn spawn_with(&self, environment: &[(&str, &Path)]) -> Outcome<StartingServer> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--data").arg(&self.data).arg("--kafka").arg(address.to_string());
        // Several servers may run at a time, so AMQP and HTTP are off unless the arguments turn them on.
        command.env("POSTROAD_AMQP", "off").env("POSTROAD_HTTP", "off").args(&self.arguments);
        // As the suites configure Kafka: frequent background chores, and no wait for members.
        command.env("POSTROAD_KAFKA_CONFIG", QUICK_CHORES);
        command.envs(environment.iter().copied());
        let begun = Instant::now();
        let mut server = Server::spawn("postroad", command, address, self.log.clone(), true)?;
        let stdout = server.child.stdout.take().expect("stdout is piped");
        Ok(StartingServer { ready: ready_line(stdout, self.log.clone()), server, begun })
    }

    /// Starts the server and waits for its `ready` line. Returns the time that this took.
    pub(crate) fn start(&self, within: Duration) -> Outcome<(Server, Duration)> {
        self.spawn()?.ready(within)
    }

    /// Runs a command of the command line against the server, and returns its output.
    pub(crate) fn run_command(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.binary);
        let address = format!("127.0.0.1:{}", self.port);
        command.args(words).args(["--bootstrap", &address]).stdin(Stdio::null());
        let said = format!("postroad {}", words.join(" "));
        let output = command.output().context(|| format!("cannot run {said}"))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("{said} failed: {}", complaint.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command with `--output json`, and returns the parsed output.
    pub(crate) fn run_json_command(&self, words: &[&str]) -> Outcome<serde_json::Value> {
        let answer = self.run_command(&[words, &["--output", "json"]].concat())?;
        serde_json::from_str(&answer)
            .context(|| format!("postroad {} printed no JSON", words.join(" ")))
    }
}

/// A started Postroad that has not yet printed `ready`.
#[derive(Debug)]
pub(crate) struct StartingServer {
    pub(crate) server: Server,
    begun: Instant,
    ready: mpsc::Receiver<Instant>,
}

impl StartingServer {
    pub(crate) fn ready(mut self, within: Duration) -> Outcome<(Server, Duration)> {
        let left = within.saturating_sub(self.begun.elapsed());
        match self.ready.recv_timeout(left) {
            Ok(at) => Ok((self.server, at.duration_since(self.begun))),
            Err(_) => {
                let how = match self.server.child.try_wait()? {
                    Some(status) => format!("ended with {status} before its ready line"),
                    None => format!("said no ready line in {within:?}"),
                };
                Err(Failure::new(format!("postroad {how}\n{}", self.server.last_words()))
                    .remedy(format!("read {}", self.server.log.display())))
            }
        }
    }
}

/// Copies the server's stdout to its log and reports the line `ready`.
fn ready_line(stdout: std::process::ChildStdout, log: PathBuf) -> mpsc::Receiver<Instant> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut copy = File::options().append(true).open(&log).ok();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.trim() == "ready" {
                // The receiver may be gone; the log still gets the line.
                let _ = sender.send(Instant::now());
            }
            if let Some(copy) = &mut copy {
                let _ = writeln!(copy, "{line}");
            }
        }
    });
    receiver
}

impl Server {
    /// Starts any server program; its output is appended to `log`.
    pub(crate) fn spawn(
        name: &'static str,
        mut command: Command,
        address: SocketAddr,
        log: PathBuf,
        pipe_stdout: bool,
    ) -> Outcome<Server> {
        let open = || File::options().create(true).append(true).open(&log);
        let output = open().context(|| format!("cannot open {}", log.display()))?;
        let stdout = if pipe_stdout { Stdio::piped() } else { output.try_clone()?.into() };
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(output)
            .spawn()
            .context(|| format!("cannot start {name} ({:?})", command.get_program()))?;
        Ok(Server { name, child, address, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of the log if the server has ended.
    pub(crate) fn still_runs(&mut self) -> Outcome {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let what = format!("{} ended with {status}\n{}", self.name, self.last_words());
                Err(Failure::new(what).remedy(format!("read {}", self.log.display())))
            }
        }
    }

    /// SIGTERM, then waits; a server that does not end in time is killed and reported.
    pub(crate) fn stop(mut self, within: Duration) -> Outcome<ExitStatus> {
        self.terminate()?;
        self.ended(within)
    }

    /// Sends SIGTERM without waiting for the end.
    pub(crate) fn terminate(&mut self) -> Outcome {
        self.signal(rustix::process::Signal::TERM)
    }

    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) -> Outcome {
        self.still_runs()?;
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Waits for the end of a stopping server; after the time limit it is killed and reported.
    pub(crate) fn ended(mut self, within: Duration) -> Outcome<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(Failure::new(format!("{} did not end within {within:?} of SIGTERM", self.name))
            .remedy(format!("read {}", self.log.display())))
    }

    /// `kill -9`, then waits for the end.
    pub(crate) fn kill(mut self) -> Outcome {
        self.child.kill().context(|| format!("cannot kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(15)..];
        last.iter().map(|line| format!("    | {line}\n")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Below the ephemeral ports (Linux: from 32768; IANA: from 49152), so that no connection takes the port of a
/// server that is down or starts slowly.
const PORTS: RangeInclusive<u64> = 20_000..=31_999;

/// A port that is free now on loopback.
pub(crate) fn free_port() -> Outcome<u16> {
    let mut random = Random::new(Random::any_seed());
    let mut last = None;
    for _ in 0..100 {
        let port = random.between(*PORTS.start(), *PORTS.end()) as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(String::new, |error| format!(": {error}"));
    Err(Failure::new(format!("cannot bind a port of loopback{why}")))
}

/// The server's binary: the given one, or a release build of this checkout.
pub(crate) fn binary(named: Option<&Path>) -> Outcome<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().context(|| format!("cannot find {}", path.display()));
    }
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "postroad"])
        .current_dir(paths::root())
        .status()
        .context(|| "cannot run cargo")?;
    if !status.success() {
        return Err(Failure::new("the release build of postroad failed"));
    }
    Ok(paths::target().join("release").join("postroad"))
}
