//! Postroad and a rival in turns on this machine, with the rival's own tools as the client of both:
//! Kafka's performance tools, RabbitMQ's PerfTest. The result is a ratio, because other load on the
//! machine affects both halves.
//!
//! * [`kafka`], [`amqp`]: the comparisons, with their workloads and contenders
//! * [`Options`]: the options of both
//!
//! The suite's own tests drive all systems with the same load. Here the load is the one that the
//! rival's users know, so that readers need not trust the suite's load.

pub mod amqp;
mod contest;
mod failure;
mod java;
pub mod kafka;
mod report;
mod stage;

use peers::{Peers, Progress};

pub use contest::Options;
pub use failure::Failure;

/// Compares with Apache Kafka, by Kafka's own performance tools.
pub fn kafka(
    options: &Options<kafka::Workload, kafka::Contender>,
    peers: Peers,
    progress: &'static dyn Progress,
) -> Result<(), Failure> {
    contest::run::<kafka::Kafka>(options, peers, progress)
}

/// Compares with RabbitMQ, by RabbitMQ's PerfTest.
pub fn amqp(
    options: &Options<amqp::Workload, amqp::Contender>,
    peers: Peers,
    progress: &'static dyn Progress,
) -> Result<(), Failure> {
    contest::run::<amqp::Amqp>(options, peers, progress)
}

/// Stops the brokers that an interrupted comparison has left running.
pub fn interrupt<W, C>(options: &Options<W, C>, peers: Peers) -> Result<(), Failure>
where
    W: clap::ValueEnum + Send + Sync + 'static,
    C: clap::ValueEnum + Send + Sync + 'static,
{
    let peers = options.place(peers)?;
    for running in peers.running() {
        peers.stop(&running.name)?;
    }
    Ok(())
}
