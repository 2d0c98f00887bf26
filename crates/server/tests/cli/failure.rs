//! Panics in every task and thread of a real node (`docs/internals/failure.md`). A vital one ends the process within a
//! second, with exit code 2, and a restart has every acknowledged record. A panic of a session ends only that session.

mod pushes;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client_amqp::Mode;
use client_amqp::blocking::Connection;
use rustix::process::Signal;
use tasks::{EndConsequence, Task};
use tempfile::TempDir;

use self::pushes::*;
use crate::harness::{Broker, log, run, seq, serve, wait};
use crate::security;

const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit from the panic to the end of the process.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const QUEUE: &str = "work";

/// A node that can be made to panic in a task.
struct FailingNode {
    folder: TempDir,
    task: Task,
}

impl FailingNode {
    fn new(task: Task) -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder"), task }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn trigger(&self) -> PathBuf {
        self.folder.path().join("panic")
    }

    fn command(&self) -> Command {
        let mut command = serve(&self.data());
        let injection = format!("{}:{}", self.task.name(), self.trigger().display());
        command.env(tasks::inject::VARIABLE, injection);
        // Resolving symbols for a backtrace takes a debug build about as long as the time limit.
        command.env("RUST_BACKTRACE", "0");
        match self.task {
            Task::Certificates => security::encrypt(&mut command, self.folder.path()),
            Task::TokenKeys => security::trust_tokens(&mut command, self.folder.path()),
            Task::Audit => drop(command.args(["--audit", "on"])),
            Task::TraceCollecting | Task::TraceExporting => {
                command.args(["--otel-endpoint", "http://127.0.0.1:1"]);
            }
            _ => {}
        }
        command
    }

    fn start(&self) -> Broker {
        Broker::start_with(self.command(), &self.data())
    }

    /// Restarts without the injected panic.
    fn restart(&self) -> Broker {
        Broker::start_on(&self.data())
    }

    fn panic_now(&self) {
        std::fs::write(self.trigger(), "").expect("a file");
    }

    /// Waits until the task has taken the file: it panics now.
    fn has_panicked(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.trigger().exists() {
            assert!(Instant::now() < deadline, "{} never panicked", self.task.name());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Checks that the process ends as required.
    #[track_caller]
    fn ends(&self, broker: Broker) {
        self.has_panicked();
        let panicked = Instant::now();
        let (status, log) = broker.end();
        let took = panicked.elapsed();
        assert_eq!(status.code(), Some(2), "{log}");
        println!("{}: ended {} ms after the panic", self.task.name(), took.as_millis());
        assert!(took <= ENDS_WITHIN, "{took:?}");
        self.says_why(&log);
    }

    #[track_caller]
    fn says_why(&self, log: &str) {
        let name = self.task.name();
        let said = format!("postroad: {name} panicked: injected into {name} (");
        assert!(log.contains(&said), "no {said:?} in:\n{log}");
        assert!(log.contains("Start it again: everything acknowledged is on disk."), "{log}");
    }
}

fn connect(address: SocketAddr) -> Connection {
    Connection::open(address, PATIENCE, Mode::Confirms).expect("a connection")
}

/// Publishes to a queue until the server is gone, each message after the confirm of the previous one. Returns the
/// number of confirmed messages.
fn publish_until_it_ends(address: SocketAddr) -> JoinHandle<u32> {
    let mut connection = connect(address);
    connection.declare(&[QUEUE.to_owned()], "quorum").expect("declared");
    std::thread::spawn(move || {
        let mut confirmed = 0;
        let queues = [QUEUE.to_owned()];
        while connection.publish_to_each(&queues, confirmed.to_string().as_bytes()).is_ok() {
            confirmed += 1;
        }
        confirmed
    })
}

/// Checks that each confirmed message is in the queue once.
#[track_caller]
fn are_all_there(confirmed: u32, address: SocketAddr) {
    let mut connection = connect(address);
    connection.consume(QUEUE, 0).expect("consuming");
    let mut missing: BTreeSet<u32> = (0..confirmed).collect();
    // The last published message may be there, too, although it is unconfirmed.
    let mut unconfirmed = BTreeSet::from([confirmed]);
    while !missing.is_empty() {
        let message = connection.delivery(PATIENCE).expect("a delivery");
        let Some(message) = message else { panic!("confirmed and lost: {missing:?}") };
        let number = String::from_utf8(message.body.to_vec()).expect("text");
        let number = number.parse().expect("a number");
        assert!(missing.remove(&number) || unconfirmed.remove(&number), "{number} came twice");
    }
}

/// With active Kafka and AMQP clients.
#[track_caller]
fn ends_the_process(task: Task, push: Push) {
    let scene = FailingNode::new(task);
    let broker = scene.start();
    broker.run(&["topic", "create", "t"]).ok();
    broker.run(&["topic", "create", "filler"]).ok();
    broker.feed(&["produce", "t"], seq(1..=100)).ok();
    let publishing = publish_until_it_ends(broker.amqp());
    scene.panic_now();
    push(&broker);
    scene.ends(broker);
    let confirmed = publishing.join().expect("publishing does not panic");

    let broker = scene.restart();
    assert_eq!(broker.run(&["consume", "t"]).ok(), seq(1..=100));
    are_all_there(confirmed, broker.amqp());
}

macro_rules! vital {
    ($($name:ident: $task:ident, $push:expr;)*) => {
        /// Tasks tested by the table, in addition to those with their own tests.
        const TESTED: &[Task] = &[$(Task::$task,)*];

        mod vital {
            use super::*;

            $(#[test]
            fn $name() {
                ends_the_process(Task::$task, $push);
            })*
        }
    };
}

vital! {
    main: Main, by_itself;
    sequencer: Sequencer, by_itself;
    adoption: Adoption, by_itself;
    channels: Channels, by_itself;
    delivery: Delivery, by_itself;
    delivery_decoding: DeliveryDecoding, deliver_compressed;
    housekeeping: Housekeeping, by_itself;
    housekeeping_disk: HousekeepingDisk, by_itself;
    disk_watchdog: DiskWatchdog, by_itself;
    scrub: Scrub, by_itself;
    consensus: Consensus, by_itself;
    consensus_end: ConsensusEnd, by_itself;
    consensus_role: ConsensusRole, by_itself;
    apply: Apply, by_itself;
    snapshots: Snapshots, by_itself;
    snapshot_writing: SnapshotWriting, fill_segments;
    journal_writer: JournalWriter, by_itself;
    journal_preparer: JournalPreparer, by_itself;
    journal_sealer: JournalSealer, fill_segments;
    journal_reader: JournalReader, look_up_a_time;
    journal_closing: JournalClosing, |broker| broker.signal(Signal::TERM);
    feature_level: FeatureLevel, by_itself;
    moves: Moves, by_itself;
    certificates: Certificates, by_itself;
    token_keys: TokenKeys, by_itself;
    kafka_listener: KafkaListener, by_itself;
    kafka_group_timers: KafkaGroupTimers, by_itself;
    kafka_group_members: KafkaGroupMembers, by_itself;
    kafka_offset_expiry: KafkaOffsetExpiry, by_itself;
    amqp_listener: AmqpListener, by_itself;
    amqp_queue_expiry: AmqpQueueExpiry, by_itself;
    amqp_topology: AmqpTopology, declare_a_queue;
    amqp_projection: AmqpProjection, by_itself;
    amqp_sweep: AmqpSweep, by_itself;
    amqp_users: AmqpUsers, by_itself;
    quotas: Quotas, by_itself;
    audit: Audit, |broker| drop(broker.run(&["topic", "create", "written"]));
    trace_writing: TraceWriting, by_itself;
    trace_collecting: TraceCollecting, by_itself;
    trace_exporting: TraceExporting, by_itself;
    http_listener: HttpListener, by_itself;
}

/// Tasks tested below, or next to their subject.
const TESTED_BELOW: &[Task] = &[
    Task::ConsensusDisk,
    Task::CertificateFiles,
    Task::TokenKeyFile,
    Task::TraceAuthorities,
    Task::AmqpDiskAlarm,
    Task::KafkaSession,
    Task::KafkaLateProduce,
    Task::Unpacking,
    Task::AmqpSession,
    Task::AmqpStreamReader,
    Task::AmqpOperation,
    Task::AmqpSessionEnd,
    Task::AmqpPassword,
    Task::OverviewEnd,
    Task::HttpSession,
];

#[test]
fn every_task_has_a_test_here() {
    for task in Task::ALL.iter().filter(|task| !task.name().starts_with("peer-")) {
        let tested = TESTED.iter().chain(TESTED_BELOW).filter(|tested| *tested == task).count();
        assert_eq!(tested, 1, "tests of {}", task.name());
    }
    for task in TESTED {
        assert_eq!(task.end(), EndConsequence::Process, "{}", task.name());
    }
}

/// The vote is written while the node starts.
#[test]
fn panic_during_the_start_ends_the_process() {
    let scene = FailingNode::new(Task::ConsensusDisk);
    let broker = scene.restart();
    broker.run(&["topic", "create", "t"]).ok();
    broker.feed(&["produce", "t"], seq(1..=100)).ok();
    broker.kill();
    scene.panic_now();
    let mut child = scene.command().stdout(Stdio::null()).spawn().expect("the binary starts");
    assert_eq!(wait(&mut child).code(), Some(2));
    scene.says_why(&log(&scene.data()));
    assert_eq!(scene.restart().run(&["consume", "t"]).ok(), seq(1..=100));
}

/// Without the task that clears it, the alarm would block publishers forever.
#[test]
fn the_disk_alarm_ends_the_process() {
    let scene = FailingNode::new(Task::AmqpDiskAlarm);
    let broker = scene.restart();
    let mut connection = connect(broker.amqp());
    let queues = [QUEUE.to_owned()];
    connection.declare(&queues, "quorum").expect("declared");
    connection.publish_to_each(&queues, b"0").expect("confirmed");
    broker.kill();

    let mut command = scene.command();
    command.args(["--disk-reserve", "1000TiB"]);
    let broker = Broker::start_with(command, &scene.data());
    scene.panic_now();
    let address = broker.amqp();
    let publishing = std::thread::spawn(move || {
        let mut connection = connect(address);
        while connection.publish_to_each(&[QUEUE.to_owned()], b"refused").is_err() {
            match Connection::open(address, PATIENCE, Mode::Confirms) {
                Ok(again) => connection = again,
                Err(_) => return,
            }
        }
    });
    scene.ends(broker);
    publishing.join().expect("it ends with the server");
    are_all_there(1, scene.restart().amqp());
}

/// The parent process may have stopped reading the node's output.
#[test]
fn unread_message_does_not_delay_the_exit() {
    let scene = FailingNode::new(Task::Sequencer);
    let (_unread, full) = std::io::pipe().expect("a pipe");
    let mut filling = full.try_clone().expect("another end of it");
    let mut command = scene.command();
    command.stderr(full);
    let broker = Broker::start_with(command, &scene.data());
    rustix::io::ioctl_fionbio(&filling, true).expect("does not wait");
    while filling.write(&[b'x'; 4096]).is_ok() {}
    while filling.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&filling, false).expect("waits");
    scene.panic_now();
    scene.has_panicked();
    let panicked = Instant::now();
    let (status, _) = broker.end();
    assert_eq!(status.code(), Some(2));
    assert!(panicked.elapsed() <= ENDS_WITHIN, "{:?}", panicked.elapsed());
}

#[test]
fn unknown_task_name_for_a_panic_is_rejected() {
    let scene = FailingNode::new(Task::Main);
    let mut command = scene.command();
    command.env(tasks::inject::VARIABLE, "lunch:/tmp/x").stderr(Stdio::piped());
    run(command, b"").fails(2, &["POSTROAD_PANIC_IN=lunch:/tmp/x", "TASK:FILE"]);
}

/// Sends a request of a Kafka client. Returns whether a response arrives.
fn kafka_answers(socket: &mut TcpStream) -> bool {
    // ApiVersions of version 0, without a client id.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let mut size = [0; 4];
    if socket.write_all(&request).is_err() || socket.read_exact(&mut size).is_err() {
        return false;
    }
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    socket.read_exact(&mut answer).is_ok()
}

#[test]
fn a_panic_in_a_kafka_session_ends_that_session_only() {
    let scene = FailingNode::new(Task::KafkaSession);
    let broker = scene.start();
    let connect = || {
        let socket = TcpStream::connect(&broker.address).expect("connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("is set");
        socket
    };
    let (mut panics, mut other) = (connect(), connect());
    assert!(kafka_answers(&mut panics) && kafka_answers(&mut other));
    scene.panic_now();
    assert!(!kafka_answers(&mut panics), "its connection is closed");
    scene.has_panicked();
    assert!(kafka_answers(&mut other), "another goes on");
    broker.run(&["topic", "create", "t"]).ok();
    let (status, log) = broker.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("a session panicked; its connection is closed"), "{log}");
}

/// Large compressed batches are unpacked on another thread; a panic there belongs to the session.
#[test]
fn a_panic_while_a_batch_is_unpacked_ends_that_session_only() {
    let scene = FailingNode::new(Task::Unpacking);
    let broker = scene.start();
    broker.run(&["topic", "create", "t"]).ok();
    let mut other = TcpStream::connect(&broker.address).expect("connects");
    other.set_read_timeout(Some(PATIENCE)).expect("is set");
    assert!(kafka_answers(&mut other));
    // Numbers that do not compress well.
    let mixed = (1_u64..20_000).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let lines: String = mixed.map(|number| format!("{number:x}\n")).collect();
    let send = || broker.feed(&["produce", "t", "--compression", "zstd"], &lines);
    scene.panic_now();
    // Its client may have retried on another connection.
    let _ = send();
    scene.has_panicked();
    assert!(kafka_answers(&mut other), "another goes on");
    send().ok();
    assert_eq!(broker.terminate().0.code(), Some(0));
}

/// Causes a panic in one client's session through `push`. Afterwards an older connection of another client still works.
/// Returns the result of `push`.
#[track_caller]
fn ends_one_amqp_session<R>(task: Task, push: impl FnOnce(&Broker, Connection) -> R) -> R {
    let scene = FailingNode::new(task);
    let broker = scene.start();
    let queues = [QUEUE.to_owned()];
    let mut other = connect(broker.amqp());
    other.declare(&queues, "quorum").expect("declared");
    let panics = connect(broker.amqp());
    scene.panic_now();
    let seen = push(&broker, panics);
    scene.has_panicked();
    other.publish_to_each(&queues, b"0").expect("another goes on");
    are_all_there(1, broker.amqp());
    let (status, log) = broker.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains(&format!("injected into {}", task.name())), "{log}");
    seen
}

#[test]
fn a_panic_in_an_amqp_session_ends_that_session_only() {
    let answer = ends_one_amqp_session(Task::AmqpSession, |_, mut connection| {
        // The message may be stored, but it is not confirmed.
        connection.publish_to_each(&[QUEUE.to_owned()], b"1")
    });
    answer.expect_err("its connection is closed");
}

#[test]
fn a_panic_in_an_amqp_operation_ends_that_session_only() {
    let answer = ends_one_amqp_session(Task::AmqpOperation, |_, mut connection| {
        connection.declare(&["another".to_owned()], "quorum")
    });
    answer.expect_err("its connection is closed");
}

#[test]
fn a_panic_of_a_streams_reader_ends_that_session_only() {
    let answer = ends_one_amqp_session(Task::AmqpStreamReader, |_, mut connection| {
        connection.declare(&["stream".to_owned()], "stream")?;
        connection.consume("stream", 10)?;
        connection.delivery(PATIENCE)
    });
    answer.expect_err("its connection is closed");
}

#[test]
fn panic_after_the_end_of_a_session_affects_no_other_session() {
    ends_one_amqp_session(Task::AmqpSessionEnd, |_, connection| drop(connection));
}

#[test]
fn panic_while_a_password_is_checked_rejects_only_that_login() {
    let scene = FailingNode::new(Task::AmqpPassword);
    let broker = scene.start();
    broker.run(&["user", "add", "app", "secret"]).ok();
    broker.run(&["user", "allow", "app", ".*", ".*", ".*"]).ok();
    let log_in = || Connection::open_as(broker.amqp(), PATIENCE, Mode::Confirms, ["app", "secret"]);
    scene.panic_now();
    log_in().expect_err("nobody has checked the password");
    scene.has_panicked();
    log_in().and_then(Connection::close).expect("the next login is taken");
    assert_eq!(broker.terminate().0.code(), Some(0));
}
