//! Latency below saturation: one publisher, limited to a rate that all contenders carry.

use super::perf_test::Plan;
use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::{Server, Used};

impl Amqp {
    pub(super) fn latency(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        // Long intervals: a stall of one second then weighs in the p99 as much as it lasted.
        let (interval_seconds, measured) = if self.stage.quick { (3, 1) } else { (10, 2) };
        let plan = Plan { interval_seconds, warm_up: 1, measured };
        let mut arguments = vec!["--producers", "1", "--consumers", "1", "--queue", "bench"];
        arguments.extend(["--rate", "2000"]);
        arguments.extend(contender.queue_type());
        let run = self.perf_test.run((server, self.stage.folder()), &arguments, plan)?;
        let consumed = run.interval.received_per_second;
        Ok(Figures {
            consumed_per_second: Some(consumed),
            confirmed_per_second: Some(run.interval.confirmed_per_second),
            confirm_p50_us: Some(run.interval.confirm.p50_us),
            confirm_p99_us: Some(run.interval.confirm.p99_us),
            consumer_p50_us: Some(run.interval.consumer.p50_us),
            consumer_p99_us: Some(run.interval.consumer.p99_us),
            client_cores: Some(run.client_cpu_seconds / run.seconds),
            used: Some(Used::of(run.server_cpu_seconds, consumed * run.seconds)),
            ..Figures::default()
        })
    }
}
