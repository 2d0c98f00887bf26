//! A rolling upgrade of three processes under load: the same binary acts as version N and as N+1, selected by the
//! environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    Broker, CommandOutput, eventually, log, postroad, run, seq, serve, serve_at, wait,
};

/// Feature level of version N+1.
const NEXT: u16 = 2;
const LINES_AT_A_TIME: u32 = 20;

/// Three nodes, some of which may be down.
struct Cluster {
    folder: TempDir,
    /// Loopback addresses, so that a node has the same addresses after a restart.
    hosts: Vec<String>,
    nodes: Vec<Option<Broker>>,
}

impl Cluster {
    fn found() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let process = std::process::id();
        let host = |node| format!("127.{}.{}.{node}", 180 + process / 250 % 30, 1 + process % 250);
        let hosts = (1..=3).map(host).collect();
        let mut cluster = Self { folder, hosts, nodes: vec![None, None, None] };
        let starting = (1..=3).map(|node| {
            let (command, data) = (cluster.serve(node, 1), cluster.data(node));
            thread::spawn(move || Broker::start_with(command, &data))
        });
        let starting: Vec<JoinHandle<Broker>> = starting.collect();
        cluster.nodes =
            starting.into_iter().map(|node| Some(node.join().expect("it starts"))).collect();
        cluster
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    /// `newest`: the feature level that the program supports.
    fn serve(&self, node: usize, newest: u16) -> Command {
        let peer = |host: &String| format!("{host}:7701");
        let host = &self.hosts[node - 1];
        let seeds: Vec<String> = self.hosts.iter().map(peer).collect();
        let mut command = serve_at(&self.data(node), &format!("{host}:9092"));
        command.args(["--peer", &peer(host), "--seeds", &seeds.join(",")]);
        acting(command, newest)
    }

    fn bootstrap(&self) -> String {
        let at: Vec<String> = self.hosts.iter().map(|host| format!("{host}:9092")).collect();
        at.join(",")
    }

    fn start(&mut self, node: usize, newest: u16) {
        let (command, data) = (self.serve(node, newest), self.data(node));
        self.nodes[node - 1] = Some(Broker::start_with(command, &data));
    }

    fn take(&mut self, node: usize) -> Broker {
        self.nodes[node - 1].take().expect("it runs")
    }

    /// Stops a node and starts it with another program.
    fn restart(&mut self, node: usize, newest: u16) {
        let (status, log) = self.take(node).terminate();
        assert!(status.success(), "{log}");
        self.start(node, newest);
        self.says(node, newest);
    }

    /// `kill -9`, and a restart with the given program.
    fn kill(&mut self, node: usize, newest: u16) {
        self.take(node).kill();
        self.start(node, newest);
        self.says(node, newest);
    }

    /// Waits until each node knows the level of this one.
    fn says(&self, node: usize, newest: u16) {
        let says = |said: Value| {
            let nodes = said["nodes"].as_array().cloned().unwrap_or_default();
            nodes
                .iter()
                .any(|it| it["node"] == node && it["level_max"] == newest && it["live"] == true)
        };
        eventually("each node knows what this one can", || {
            self.nodes.iter().flatten().all(|at| says(upgrade(at)))
        });
    }

    fn run(&self, node: usize, arguments: &[&str]) -> CommandOutput {
        self.nodes[node - 1].as_ref().expect("it runs").run(arguments)
    }

    /// Starts a program that is too old, and checks that it ends.
    fn refuses(&self, node: usize, newest: u16, words: &[&str]) {
        let mut command = self.serve(node, newest);
        let mut child = command.stdout(Stdio::null()).spawn().expect("the binary starts");
        assert!(!wait(&mut child).success(), "it ends with an error");
        let log = log(&self.data(node));
        // The line may be followed by output of other parts that end with it.
        let says = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(log.lines().any(says), "{log}");
    }
}

fn upgrade(at: &Broker) -> Value {
    let said = at.run(&["cluster", "upgrade", "--output", "json"]);
    serde_json::from_str(&said.out).unwrap_or_default()
}

/// Appends continuously, and records the acknowledged lines.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<String>>,
}

impl Load {
    fn on(cluster: &Cluster) -> Self {
        let (stop, bootstrap) = (Arc::<AtomicBool>::default(), cluster.bootstrap());
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut acknowledged = BTreeSet::new();
            for first in (1..).step_by(LINES_AT_A_TIME as usize) {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let lines = seq(first..=first + LINES_AT_A_TIME - 1);
                let mut command = postroad();
                command.args(["produce", "orders", "--bootstrap", &bootstrap]);
                // The error of a killed leader does not matter: those lines are not acknowledged.
                if run(command, lines.as_bytes()).code == Some(0) {
                    acknowledged.extend(lines.lines().map(str::to_owned));
                }
            }
            acknowledged
        });
        Self { stop, thread }
    }

    fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("it does not panic")
    }
}

fn all_lines(cluster: &Cluster, node: usize) -> BTreeSet<String> {
    cluster.run(node, &["consume", "orders"]).ok().lines().map(str::to_owned).collect()
}

#[test]
fn rolling_upgrade_under_load_is_reversible_until_it_is_finalized() {
    let mut cluster = Cluster::found();
    cluster.run(1, &["topic", "create", "orders", "--partitions", "3"]).ok();
    let load = Load::on(&cluster);
    cluster.restart(1, NEXT);
    cluster.kill(1, NEXT);
    cluster.restart(2, NEXT);
    let words = ["node 3 supports level 1", "level 2, as node 1 runs"];
    cluster.run(2, &["cluster", "upgrade", "--finalize"]).fails(1, &words);
    // Back to the former version, halfway and after the last node.
    cluster.restart(1, 1);
    cluster.kill(2, 1);
    for node in [3, 1, 2] {
        cluster.restart(node, NEXT);
    }
    let status = cluster.run(1, &["status"]).ok();
    assert!(
        status.contains("every node supports level 2: type `postroad cluster upgrade --finalize`"),
        "{status}"
    );

    cluster.kill(3, NEXT);
    let said = cluster.run(3, &["cluster", "upgrade", "--finalize"]).ok();
    assert!(said.ends_with("The cluster is raised to feature level 2.\n"), "{said}");
    cluster.kill(3, NEXT);
    for node in 1..=3 {
        eventually("level 2", || {
            upgrade(cluster.nodes[node - 1].as_ref().expect("it runs"))["level"] == NEXT
        });
    }
    cluster.take(1).kill();
    cluster.refuses(1, 1, &["the cluster is at feature level 2", "this program supports level 1"]);
    // Without the level file the other nodes reject it.
    std::fs::remove_file(cluster.data(1).join("level")).expect("it says the level");
    cluster.refuses(1, 1, &["feature level 2", "supports level 1"]);
    cluster.start(1, NEXT);
    cluster.says(1, NEXT);

    let acknowledged = load.stop();
    assert!(acknowledged.len() > 200, "{} were acknowledged", acknowledged.len());
    for node in 1..=3_usize {
        // The node leads every shard, and has every record itself.
        let others = (1..=3).filter(|it| *it != node);
        cluster.run(1, &["node", "resume", &node.to_string()]).ok();
        for other in others {
            cluster.run(1, &["node", "drain", &other.to_string()]).ok();
        }
        eventually("it leads everything", || {
            let status = cluster.run(node, &["cluster", "status", "--output", "json"]).json();
            let shards = status["shards"].as_array().cloned().unwrap_or_default();
            shards.iter().all(|shard| shard["leader"] == node)
        });
        assert!(all_lines(&cluster, node).is_superset(&acknowledged), "at node {node}");
    }
}

#[test]
fn single_node_has_a_feature_level() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data: &Path = &folder.path().join("data");
    let before = || Broker::start_with(acting(serve(data), 1), data);
    let next = || Broker::start_with(acting(serve(data), NEXT), data);
    let broker = before();
    broker.run(&["topic", "create", "kept"]).ok();
    broker.feed(&["produce", "kept"], "two\n").ok();
    let said = broker.run(&["cluster", "upgrade", "--finalize"]).ok();
    assert!(said.ends_with("The cluster is at feature level 1.\n"), "{said}");
    broker.terminate();

    let broker = next();
    assert_eq!(upgrade(&broker)["possible"], NEXT);
    broker.feed(&["produce", "kept"], "three\n").ok();
    broker.kill();
    // The level is not raised yet.
    let broker = before();
    broker.feed(&["produce", "kept"], "four\n").ok();
    broker.kill();

    let broker = next();
    broker.run(&["cluster", "upgrade", "--finalize"]).ok();
    broker.kill();
    let mut child = acting(serve(data), 1);
    let mut child = child.stdout(Stdio::null()).spawn().expect("the binary starts");
    assert!(!wait(&mut child).success());
    assert!(log(data).contains("this program supports level 1: start postroad"), "{}", log(data));
    let broker = next();
    broker.feed(&["produce", "kept"], "five\n").ok();
    let read = broker.run(&["consume", "kept"]).ok();
    assert!(read.ends_with("two\nthree\nfour\nfive\n"), "{read}");
    let found = next_founds(&folder.path().join("new"));
    assert_eq!(found, u64::from(NEXT), "a new node is founded at the newest level");
}

/// Acts as a program that supports the levels up to `newest`.
fn acting(mut command: Command, newest: u16) -> Command {
    command.env("POSTROAD_TEST_LEVEL", newest.to_string());
    command
}

fn next_founds(data: &Path) -> u64 {
    let broker = Broker::start_with(acting(serve(data), NEXT), data);
    upgrade(&broker)["level"].as_u64().expect("a level")
}
