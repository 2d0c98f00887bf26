//! One message, ten queues: a fanout exchange with a producer, and a consumer at each queue.
//!
//! The disk usage of a message is compared with the workload of one queue: a broker that stores a
//! body once for each queue writes ten times as much.

use super::perf_test::Plan;
use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::Server;

pub(super) const QUEUES: u32 = 10;

impl Amqp {
    /// Measures deliveries as "consumed"; each message has [`QUEUES`].
    pub(super) fn fanout(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        let (warm_up, measured) = if self.stage.quick { (3, 5) } else { (8, 20) };
        let plan = Plan { interval_seconds: 1, warm_up, measured };
        let count = QUEUES.to_string();
        let mut arguments = vec!["--exchange", "bench-fanout", "--type", "fanout"];
        arguments.extend(["--producers", "1", "--consumers", &count]);
        arguments.extend(["--queue-pattern", "bench-%d"]);
        arguments.extend(["--queue-pattern-from", "1", "--queue-pattern-to", &count]);
        arguments.extend(contender.queue_type());
        let run = self.perf_test.run((server, self.stage.folder()), &arguments, plan)?;
        let consumed = run.interval.received_per_second * run.seconds;
        let disk_bytes_per_message = run.disk_bytes_per_confirmed();
        Ok(Figures { disk_bytes_per_message, ..Figures::of(&run, consumed) })
    }
}
