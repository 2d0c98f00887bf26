//! AMQP messages at the leader of their queue, and at a node that forwards them to the leader.

use std::time::{Duration, Instant};

use client_amqp::Mode;
use client_amqp::blocking::Connection;
use host::probe;

use super::nodes::Nodes;
use crate::failure::{Context, Failure, Outcome};
use crate::measure::PATIENCE;

const QUEUE: &str = "hop";
const BODY: [u8; 1024] = [b'x'; 1024];
const UNCONFIRMED_MAX: usize = 1_000;
const ONE_BY_ONE: usize = 1_000;
const WARM_UP: Duration = Duration::from_secs(1);

pub(super) struct Hop {
    /// Latency of one message at a time, until its confirm.
    pub(super) p50_us: f64,
    /// Processor seconds of all nodes per million messages, at full speed.
    pub(super) processor: f64,
}

/// Declares the queue. Returns its name, which is also its topic's.
pub(super) fn declare(nodes: &Nodes) -> Outcome<String> {
    let mut connection = open(nodes, 0)?;
    connection.declare(&[QUEUE.to_owned()], "classic").context(|| "cannot declare the queue")?;
    connection.close().context(|| "cannot close")?;
    Ok(QUEUE.to_owned())
}

pub(super) fn measure(nodes: &Nodes, queue: &str, place: usize, time: Duration) -> Outcome<Hop> {
    let mut connection = open(nodes, place)?;
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for _ in 0..ONE_BY_ONE {
        let begun = Instant::now();
        connection.publish(queue, &BODY);
        await_confirms(&mut connection, 0)?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    publish(&mut connection, queue, WARM_UP)?;
    let used = nodes.cpu_seconds()?;
    let messages = publish(&mut connection, queue, time)? as f64;
    let used = nodes.cpu_seconds()? - used;
    connection.close().context(|| "cannot close")?;
    let p50_us = probe::quantile_us(&times, 0.5);
    Ok(Hop { p50_us, processor: used / messages * 1e6 })
}

fn open(nodes: &Nodes, place: usize) -> Outcome<Connection> {
    let connection = Connection::open(nodes.amqp(place), PATIENCE, Mode::Confirms);
    connection.context(|| "cannot connect by AMQP")
}

/// Returns the number of confirmed messages.
fn publish(connection: &mut Connection, queue: &str, time: Duration) -> Outcome<u64> {
    let (begun, mut messages) = (Instant::now(), 0);
    while begun.elapsed() < time {
        connection.publish(queue, &BODY);
        messages += 1;
        await_confirms(connection, UNCONFIRMED_MAX)?;
    }
    await_confirms(connection, 0)?;
    Ok(messages)
}

/// Waits until at most `unconfirmed_max` messages are unconfirmed.
fn await_confirms(connection: &mut Connection, unconfirmed_max: usize) -> Outcome {
    while connection.unconfirmed() > unconfirmed_max {
        let confirms = connection.confirms().context(|| "no confirm came")?;
        if confirms.iter().any(|confirm| !confirm.taken) {
            return Err(Failure::new("a message was refused"));
        }
    }
    Ok(())
}
