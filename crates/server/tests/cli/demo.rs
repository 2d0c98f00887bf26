//! `postroad demo cluster`: three nodes from one command.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{CommandOutput, PATIENCE, postroad, run, seq, wait};
use crate::http::get;

/// The first of three consecutive free ports.
fn three_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = first.local_addr().expect("it is bound").port();
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if port < 65_000 && free(port + 1) && free(port + 2) {
            return port;
        }
    }
}

struct Demo {
    child: Child,
    bootstrap: String,
    /// HTTP address of the first node.
    http: SocketAddr,
    /// Processes of its nodes.
    pids: Vec<i32>,
    complaints: mpsc::Receiver<String>,
}

impl Demo {
    fn start(folder: &std::path::Path) -> Self {
        let [kafka, amqp, http, peers] = [(); 4].map(|()| three_ports());
        let mut child = postroad()
            // All nodes inherit it.
            .env("POSTROAD_RACK", "here")
            .args(["demo", "cluster", "--restart-after", "1s", "--data"])
            .arg(folder)
            .args(["--kafka-port", &kafka.to_string(), "--amqp-port", &amqp.to_string()])
            .args(["--http-port", &http.to_string(), "--peer-port", &peers.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("piped");
        let mut pids = Vec::new();
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("text");
            let mut words = line.split_whitespace();
            if let (Some(Ok(1..=3)), Some(pid)) =
                (words.next().map(str::parse::<u16>), words.next())
            {
                pids.push(pid.parse().expect("a process"));
            }
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        let bootstrap: Vec<String> =
            (kafka..kafka + 3).map(|port| format!("127.0.0.1:{port}")).collect();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, complaints) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let http = SocketAddr::from(([127, 0, 0, 1], http));
        Self { child, bootstrap: bootstrap.join(","), http, pids, complaints }
    }

    /// Waits until it prints these words.
    fn says(&self, words: &str) {
        loop {
            let line = self.complaints.recv_timeout(PATIENCE);
            if line.unwrap_or_else(|_| panic!("it does not say {words:?}")).contains(words) {
                return;
            }
        }
    }

    /// Waits until each node has reported its rack, as seen over HTTP.
    fn shows_racks(&self) {
        let begun = Instant::now();
        loop {
            let answer = get(self.http, "/v1/cluster", &[]).expect("an answer");
            if answer.text.matches(r#""rack":"here""#).count() == 3 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", answer.text);
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = postroad();
        command.args(words).args(["--bootstrap", &self.bootstrap]);
        command
    }

    fn run(&self, words: &[&str], input: &str) -> CommandOutput {
        run(self.command(words), input.as_bytes())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Its nodes end with it.
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let _ = self.child.wait();
        }
    }
}

#[test]
fn three_nodes_tolerate_the_kill_of_one_and_restart_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut demo = Demo::start(folder.path());
    assert_eq!(demo.pids.len(), 3);
    demo.run(&["topic", "create", "orders", "--partitions", "3"], "").ok();
    demo.run(&["produce", "orders"], &seq(1..=50)).ok();
    demo.shows_racks();
    let killed = Pid::from_raw(demo.pids[0]).expect("a process");
    kill_process(killed, Signal::KILL).expect("it runs");
    demo.run(&["produce", "orders"], &seq(51..=100)).ok();
    let read = demo.run(&["consume", "orders"], "").ok();
    assert_eq!(read.lines().count(), 100);
    demo.says("node 1 has ended");
    demo.says("node 1 is back");
    let begun = Instant::now();
    let pid = Pid::from_child(&demo.child);
    kill_process(pid, Signal::INT).expect("it runs");
    assert!(wait(&mut demo.child).success());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn two_nodes_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = postroad();
    command.args(["demo", "cluster", "--nodes", "2", "--data"]).arg(folder.path());
    run(command, b"").fails(1, &["--nodes 2", "3"]);
}
