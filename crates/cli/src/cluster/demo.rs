//! `postroad demo`: a cluster on this machine, for trying it out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use operations::time::{human_duration, parse_duration};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::command_error::CommandError;
use crate::output::Table;

#[derive(Args, Debug)]
pub struct DemoArguments {
    #[command(subcommand)]
    command: DemoCommand,
}

#[derive(Subcommand, Debug)]
enum DemoCommand {
    /// Run three nodes of a cluster on this machine until Ctrl-C
    ///
    /// Each is a process of its own, which may be killed: it is started again after a while. What they store stays,
    /// and is there the next time.
    Cluster(ClusterOptions),
}

#[derive(Args, Clone, Debug)]
struct ClusterOptions {
    /// Folder of the nodes' data directories and logs
    #[arg(long, value_name = "DIR", default_value = "postroad-demo")]
    data: PathBuf,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=5))]
    nodes: u16,
    /// Port for Kafka's clients of the first node; the others' come after it
    #[arg(long, value_name = "PORT", default_value_t = 9092, value_parser = port())]
    kafka_port: u16,
    /// Port for AMQP's clients of the first node; those of the others come after it
    #[arg(long, value_name = "PORT", default_value_t = 5672, value_parser = port())]
    amqp_port: u16,
    /// Port for HTTP's clients of the first node; those of the others come after it
    #[arg(long, value_name = "PORT", default_value_t = 15_672, value_parser = port())]
    http_port: u16,
    /// Port for other nodes of the first node; those of the others come after it
    #[arg(long, value_name = "PORT", default_value_t = 7701, value_parser = port())]
    peer_port: u16,
    /// A node that was killed is started again after so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    restart_after: Duration,
}

/// A port that leaves room for those of the other nodes.
fn port() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=65_000)
}

/// Time limits for a node's process to become ready, and to end.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: DemoArguments) -> Result<(), CommandError> {
    match arguments.command {
        DemoCommand::Cluster(options) => cluster(&options).await,
    }
}

async fn cluster(options: &ClusterOptions) -> Result<(), CommandError> {
    if options.nodes == 2 {
        let why = "--nodes 2: both would have to run for anything to work; say 1, 3, 4 or 5";
        return Err(CommandError::user(why));
    }
    fs::create_dir_all(&options.data).map_err(|error| {
        CommandError::user(format!("cannot make the folder {}: {error}", options.data.display()))
    })?;
    let program = std::env::current_exe()
        .map_err(|error| CommandError::server(format!("cannot find this program: {error}")))?;
    let nodes: Vec<Node> =
        (0..options.nodes).map(|place| Node::new(&program, options, place)).collect();
    let (stop, stopping) = watch::channel(false);
    // One permit for each ready node: two may become ready at the same moment.
    let ready = Semaphore::new(0);
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate()).map_err(CommandError::server)?,
        signal(SignalKind::interrupt()).map_err(CommandError::server)?,
    );
    eprintln!("starting {} nodes, data and logs in {}", nodes.len(), options.data.display());
    let mut running = Vec::new();
    for node in &nodes {
        running.push((node, node.spawn()?));
    }
    let keeping = running
        .into_iter()
        .map(|(node, child)| node.keep(child, options.restart_after, stopping.clone(), &ready));
    let keeping = async {
        let ended = join_all(keeping).await;
        ended.into_iter().collect::<Result<Vec<()>, _>>().map(drop)
    };
    let introducing = async {
        let all = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        if ready.acquire_many(all).await.is_ok() {
            introduce(&nodes);
        }
        std::future::pending::<()>().await;
    };
    let stopped = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        eprintln!("\nstopping");
        stop.send_replace(true);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = keeping => ended,
        () = introducing => Ok(()),
        () = stopped => Ok(()),
    }
}

/// Prints the nodes and some commands to try.
fn introduce(nodes: &[Node]) {
    let mut table = Table::new(&[">NODE", ">PID", "KAFKA", "AMQP", "HTTP", "DATA", "LOG"]);
    for node in nodes {
        table.row([
            node.number.to_string(),
            node.pid.load(Ordering::Relaxed).to_string(),
            node.kafka.clone(),
            node.amqp.clone(),
            node.http.clone(),
            node.data.display().to_string(),
            node.log.display().to_string(),
        ]);
    }
    let kafka: Vec<&str> = nodes.iter().map(|node| &*node.kafka).collect();
    let first = &nodes[0];
    println!("{}", table.render());
    println!("In another terminal:");
    println!("  export POSTROAD_BOOTSTRAP={}", kafka.join(","));
    println!("  postroad topic create orders --partitions 3");
    println!("  echo hello | postroad produce orders");
    println!("  kill -9 {}", first.pid.load(Ordering::Relaxed));
    println!("  postroad consume orders");
    println!();
    println!("Ctrl-C stops all of them; what they store stays in their folder.");
}

/// A node, and its addresses.
#[derive(Debug)]
struct Node {
    number: u16,
    /// Process id; 0 before the first start.
    pid: AtomicU32,
    program: PathBuf,
    kafka: String,
    amqp: String,
    http: String,
    data: PathBuf,
    log: PathBuf,
    /// Arguments of `postroad serve`.
    arguments: Vec<String>,
}

impl Node {
    fn new(program: &Path, options: &ClusterOptions, place: u16) -> Self {
        let local = |first: u16, place: u16| format!("127.0.0.1:{}", first + place);
        let (kafka, amqp) = (local(options.kafka_port, place), local(options.amqp_port, place));
        let (http, peer) = (local(options.http_port, place), local(options.peer_port, place));
        let seeds: Vec<String> =
            (0..options.nodes).map(|place| local(options.peer_port, place)).collect();
        let number = place + 1;
        let data = options.data.join(format!("node-{number}"));
        let said = [
            ("--data", data.display().to_string()),
            ("--kafka", kafka.clone()),
            ("--amqp", amqp.clone()),
            ("--http", http.clone()),
            ("--peer", peer),
            ("--seeds", seeds.join(",")),
        ];
        let arguments = said.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        Self {
            number,
            pid: AtomicU32::new(0),
            program: program.to_owned(),
            kafka,
            amqp,
            http,
            log: options.data.join(format!("node-{number}.log")),
            data,
            arguments: arguments.collect(),
        }
    }

    fn spawn(&self) -> Result<Child, CommandError> {
        let opened = File::options().create(true).append(true).open(&self.log);
        let log = opened.map_err(|error| {
            CommandError::user(format!("cannot write {}: {error}", self.log.display()))
        })?;
        let child = Command::new(&self.program)
            .arg("serve")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // Ctrl-C reaches only this program, which then stops the nodes.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                CommandError::server(format!("cannot start node {}: {error}", self.number))
            })?;
        self.pid.store(child.id().unwrap_or(0), Ordering::Relaxed);
        Ok(child)
    }

    /// Runs until the demo stops. A process that dies is restarted, unless it never became ready.
    async fn keep(
        &self,
        mut child: Child,
        restart_after: Duration,
        mut stopping: watch::Receiver<bool>,
        ready: &Semaphore,
    ) -> Result<(), CommandError> {
        let mut served = false;
        loop {
            let stdout = child.stdout.take().expect("it is piped");
            let ended = tokio::select! {
                ended = serves(&mut child, stdout, || {
                    if served {
                        let pid = self.pid.load(Ordering::Relaxed);
                        eprintln!("node {} is back, process {pid}", self.number);
                    } else {
                        ready.add_permits(1);
                    }
                    served = true;
                }) => ended?,
                _ = stopping.wait_for(|stop| *stop) => return self.stop(child).await,
            };
            let (number, log) = (self.number, self.log.display());
            if !served {
                let why = format!("node {number} did not start ({ended}): read {log}");
                return Err(CommandError::user(why));
            }
            let after = human_duration(restart_after);
            eprintln!("node {number} has ended ({ended}); it is started again in {after}");
            tokio::select! {
                () = sleep(restart_after) => child = self.spawn()?,
                _ = stopping.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    }

    async fn stop(&self, mut child: Child) -> Result<(), CommandError> {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // It may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        match timeout(ENDS_WITHIN, child.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(CommandError::server(error)),
            Err(_) => {
                let log = self.log.display();
                Err(CommandError::server(format!("node {} does not end: read {log}", self.number)))
            }
        }
    }
}

/// Reports when the node is ready, and returns when its process has ended.
async fn serves(
    child: &mut Child,
    stdout: ChildStdout,
    mut on_ready: impl FnMut(),
) -> Result<ExitStatus, CommandError> {
    let mut lines = BufReader::new(stdout).lines();
    let served = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line == "ready" {
                return true;
            }
        }
        false
    };
    match timeout(READY_WITHIN, served).await {
        Ok(true) => on_ready(),
        // It has ended.
        Ok(false) => {}
        Err(_) => eprintln!("a node is not ready yet: are its ports free?"),
    }
    child.wait().await.map_err(CommandError::server)
}
