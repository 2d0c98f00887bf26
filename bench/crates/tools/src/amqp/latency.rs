//! Latency below saturation: one publisher, limited to a rate that all contenders carry.

use super::perf_test::Plan;
use super::{Amqp, Contender, Figures};
use crate::failure::Outcome;
use crate::stage::Server;

impl Amqp {
    pub(super) fn latency(&self, server: &Server, contender: Contender) -> Outcome<Figures> {
        // Long intervals: a stall of one second then weighs in the p99 by its length.
        let (interval_seconds, measured) = if self.stage.quick { (3, 1) } else { (10, 2) };
        let plan = Plan { interval_seconds, warm_up: 1, measured };
        let mut arguments = vec!["--producers", "1", "--consumers", "1", "--queue", "bench"];
        arguments.extend(["--rate", "2000"]);
        arguments.extend(contender.queue_type());
        let run = self.perf_test.run((server, self.stage.folder()), &arguments, plan)?;
        Ok(Figures::of(&run, run.interval.received_per_second * run.seconds))
    }
}
