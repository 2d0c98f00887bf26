//! `cargo xtask bench`: Postroad and a peer in turns on this machine, with the peer's own tools as
//! the client of both. The result is the ratio: the machine's mood is in both halves.

mod amqp;
mod contest;
mod jars;
mod kafka;
mod report;
mod stage;

use clap::Subcommand;

use crate::failure::Outcome;
use amqp::Amqp;
use contest::Options;
pub(crate) use jars::output_of;
use kafka::Kafka;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Against Apache Kafka, with Kafka's own performance tools: pairs, medians, ratios, targets
    Kafka(Options<kafka::Workload, kafka::Contender>),
    /// Against RabbitMQ, with RabbitMQ's own PerfTest: pairs, medians, ratios, targets
    Amqp(Options<amqp::Workload, amqp::Contender>),
}

pub(crate) fn run(bench: &Bench) -> Outcome {
    match bench {
        Bench::Kafka(options) => contest::run::<Kafka>(options),
        Bench::Amqp(options) => contest::run::<Amqp>(options),
    }
}
