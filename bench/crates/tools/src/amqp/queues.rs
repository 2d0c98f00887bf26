//! What a queue with one message costs in memory: 10,000 of them, declared and published to by our
//! own small client, as PerfTest would need a thousand connections for it.

use std::net::SocketAddr;
use std::time::Duration;

use client_amqp::blocking::Connection;
use client_amqp::{AmqpError, Mode};

use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::Server;

const QUEUES: u32 = 10_000;
/// So many declarations or messages are under way at once.
const WINDOW: usize = 100;
const BODY_BYTES: usize = 1024;
/// For each answer of the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// After it, garbage is collected and idle queues have been evicted from memory.
const SETTLE: Duration = Duration::from_secs(15);

impl Amqp {
    pub(super) fn queues(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        let kind = match contender {
            Contender::RabbitmqQuorum => "quorum",
            Contender::RabbitmqClassic | Contender::Postroad => "classic",
        };
        let (count, settle) = match self.stage.quick {
            true => (QUEUES / 10, SETTLE / 5),
            false => (QUEUES, SETTLE),
        };
        let idle = server.resident_mb()?;
        let names: Vec<String> = (1..=count).map(|number| format!("bench-{number}")).collect();
        fill(server.address, &names, kind)?;
        std::thread::sleep(settle);
        let grown = (server.resident_mb()? - idle) * f64::from(1 << 20);
        Ok(Figures { bytes_per_queue: Some(grown / f64::from(count)), ..Figures::default() })
    }
}

/// Declares them and publishes a message to each; returns once all are confirmed. The connection is
/// closed then, so that what it took is not counted.
fn fill(address: SocketAddr, names: &[String], kind: &str) -> Result<(), AmqpError> {
    let body = [b'x'; BODY_BYTES];
    let mut connection = Connection::open(address, PATIENCE, Mode::Confirms)?;
    for names in names.chunks(WINDOW) {
        connection.declare(names, kind)?;
        connection.publish_to_each(names, &body)?;
    }
    connection.close()
}
