//! One message, ten queues: a fanout exchange with a producer, and a consumer at each queue.
//!
//! What a message costs on the disk is held against the workload with one queue: a broker that stores a
//! body once a queue writes ten times as much.

use super::perf_test::Plan;
use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::{Server, Used};

pub(super) const QUEUES: u32 = 10;

impl Amqp {
    /// "Consumed" are deliveries, of which a message has [`QUEUES`].
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
        let (confirmed, consumed) =
            (run.interval.confirmed_per_second, run.interval.received_per_second);
        Ok(Figures {
            consumed_per_second: Some(consumed),
            confirmed_per_second: Some(confirmed),
            confirm_p50_us: Some(run.interval.confirm.p50_us),
            confirm_p99_us: Some(run.interval.confirm.p99_us),
            consumer_p50_us: Some(run.interval.consumer.p50_us),
            consumer_p99_us: Some(run.interval.consumer.p99_us),
            client_cores: Some(run.client_cpu_seconds / run.seconds),
            disk_bytes_per_message: run.disk_bytes_per_confirmed(),
            used: Some(Used::of(run.server_cpu_seconds, consumed * run.seconds)),
            ..Figures::default()
        })
    }
}
