//! Highest throughput: published, confirmed, consumed and acknowledged.

use super::perf_test::Plan;
use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::Server;

impl Amqp {
    /// Runs with this many queues, each with a producer and a consumer.
    pub(super) fn throughput(
        &self,
        server: &Server,
        contender: Contender,
        queues: u32,
    ) -> Outcome<Figures> {
        let (warm_up, measured) = if self.stage.quick { (3, 5) } else { (8, 20) };
        let plan = Plan { interval_seconds: 1, warm_up, measured };
        let count = queues.to_string();
        let mut arguments = vec!["--producers", &count, "--consumers", &count];
        arguments.extend(["--queue-pattern", "bench-%d"]);
        arguments.extend(["--queue-pattern-from", "1", "--queue-pattern-to", &count]);
        arguments.extend(contender.queue_type());
        let run = self.perf_test.run((server, self.stage.folder()), &arguments, plan)?;
        let (confirmed, consumed) =
            (run.interval.confirmed_per_second, run.interval.received_per_second);
        // Where producers outrun consumers, a waiting message has had half of its work.
        let messages = (confirmed + consumed) / 2.0 * run.seconds;
        let disk_bytes_per_message = run.disk_bytes_per_confirmed();
        Ok(Figures { disk_bytes_per_message, ..Figures::of(&run, messages) })
    }
}

impl Contender {
    /// PerfTest declares classic durable queues by default.
    pub(super) fn queue_type(self) -> Option<&'static str> {
        (self == Contender::RabbitmqQuorum).then_some("--quorum-queue")
    }
}
