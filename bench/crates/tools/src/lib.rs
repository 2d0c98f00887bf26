//! Postroad and a rival in turns on this machine, with the rival's own tools as the client of both:
//! Kafka's performance tools, RabbitMQ's PerfTest. The result is the ratio: how busy the machine was
//! is in both halves.
//!
//! * [`kafka`], [`amqp`]: a comparison each, its workloads and contenders
//! * [`Options`]: what both are told
//!
//! The suite's own tests drive all systems by one load; here the load is the one that the rival's
//! users know, so that nobody has to trust ours.

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

/// Beside Apache Kafka, with Kafka's own performance tools.
pub fn kafka(
    options: &Options<kafka::Workload, kafka::Contender>,
    peers: Peers,
    progress: &'static dyn Progress,
) -> Result<(), Failure> {
    contest::run::<kafka::Kafka>(options, peers, progress)
}

/// Beside RabbitMQ, with RabbitMQ's PerfTest.
pub fn amqp(
    options: &Options<amqp::Workload, amqp::Contender>,
    peers: Peers,
    progress: &'static dyn Progress,
) -> Result<(), Failure> {
    contest::run::<amqp::Amqp>(options, peers, progress)
}

/// Ends the brokers that a comparison which was interrupted has left running.
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
