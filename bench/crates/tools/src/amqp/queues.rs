//! Memory of a queue with one message. A small client of our own declares 10,000 queues and
//! publishes to them, as PerfTest would need a thousand connections for it.

use std::net::SocketAddr;
use std::time::Duration;

use client_amqp::blocking::Connection;
use client_amqp::{AmqpError, Mode};

use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::Server;

const QUEUES: u32 = 10_000;
/// Number of declarations or messages in flight.
const WINDOW: usize = 100;
const BODY_BYTES: usize = 1024;
/// Time limit of each reply from the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after which garbage is collected and idle queues are evicted from memory.
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

/// Declares the queues and publishes a message to each; returns once all are confirmed. The
/// connection is then closed, so that its memory is not counted.
fn fill(address: SocketAddr, names: &[String], kind: &str) -> Result<(), AmqpError> {
    let body = [b'x'; BODY_BYTES];
    let mut connection = Connection::open(address, PATIENCE, Mode::Confirms)?;
    for names in names.chunks(WINDOW) {
        connection.declare(names, kind)?;
        connection.publish_to_each(names, &body)?;
    }
    connection.close()
}
