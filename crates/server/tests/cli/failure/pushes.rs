//! Actions that make a task run, so that it panics.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{PATIENCE, connect};
use crate::harness::Broker;

pub(super) type Push = fn(&Broker);

pub(super) fn by_itself(_: &Broker) {}

/// Writes more than a segment.
pub(super) fn fill_segments(broker: &Broker) {
    let line = "x".repeat(10_000) + "\n";
    let mut child = broker
        .command(&["produce", "filler", "--compression", "none"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    // The broker may end before it acknowledges everything, and the command may end with it.
    let _ = child.stdin.take().expect("piped").write_all(line.repeat(4_000).as_bytes());
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("a child").is_none() && Instant::now() < deadline {
        if TcpStream::connect(&broker.address).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The journal's readers look up a time, whatever is cached.
pub(super) fn look_up_a_time(broker: &Broker) {
    run_unheeded(broker, &["consume", "t", "--from", "1h ago"]);
}

/// Deliveries from compressed batches are unpacked outside the session's loop.
pub(super) fn deliver_compressed(broker: &Broker) {
    let mut connection = connect(broker.amqp());
    connection.declare(&["packed".to_owned()], "quorum").expect("declared");
    broker.feed(&["produce", "packed", "--compression", "zstd"], "x\n".repeat(1_000)).ok();
    let consumed = connection.consume("packed", 0).and_then(|()| connection.delivery(PATIENCE));
    assert!(!consumed.is_ok_and(|message| message.is_some()), "it was to be unpacked first");
}

/// A session changes the routing topology of all sessions.
pub(super) fn declare_a_queue(broker: &Broker) {
    let declared = connect(broker.amqp()).declare(&["another".to_owned()], "quorum");
    assert!(declared.is_err(), "nobody is left to answer");
}

/// Runs a command whose broker ends meanwhile.
pub(super) fn run_unheeded(broker: &Broker, arguments: &[&str]) {
    let mut child = broker
        .command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    std::thread::sleep(Duration::from_secs(1));
    let _ = child.kill();
    let _ = child.wait();
}
