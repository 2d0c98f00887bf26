//! One node, or a cluster of several.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use client::blocking::Connection;
use host::process::{self, Memory};

use crate::cluster::{Cluster, NodeFault, leaders};
use crate::failure::{Context, Failure, Outcome};
use crate::measure::{PATIENCE, postroad};
use crate::server::{self, Server};

pub(super) enum Nodes {
    One { server: Server, amqp: SocketAddr },
    Several(Cluster),
}

impl Nodes {
    /// Starts nodes with this number of shards in total.
    pub(super) fn start(
        binary: &Path,
        folder: &Path,
        count: usize,
        shards: usize,
        serve: &[String],
    ) -> Outcome<Self> {
        let mut serve = serve.to_vec();
        serve.extend(["--shards".to_owned(), shards.to_string()]);
        if count > 1 {
            let how = NodeFault::Kill;
            let founded = Cluster::found_of(count, binary, folder, &serve, how, true, PATIENCE);
            return founded.map(Self::Several);
        }
        let amqp = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
        serve.extend(["--amqp".to_owned(), amqp.to_string()]);
        let (server, _) = postroad(Some(binary), folder, &serve)?.start(PATIENCE)?;
        Ok(Self::One { server, amqp })
    }

    pub(super) fn kafka(&self, place: usize) -> SocketAddr {
        match self {
            Self::One { server, .. } => server.address,
            Self::Several(cluster) => cluster.address(place),
        }
    }

    pub(super) fn amqp(&self, place: usize) -> SocketAddr {
        match self {
            Self::One { amqp, .. } => *amqp,
            Self::Several(cluster) => cluster.amqp[place],
        }
    }

    pub(super) fn connect(&self, place: usize) -> Outcome<Connection> {
        let connection = Connection::open(self.kafka(place), PATIENCE);
        connection.context(|| "cannot connect to postroad")
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::One { server, .. } => vec![server.pid()],
            Self::Several(cluster) => cluster.pids().collect(),
        }
    }

    /// Processor seconds of all nodes.
    pub(super) fn cpu_seconds(&self) -> Outcome<f64> {
        let mut sum = 0.0;
        for pid in self.pids() {
            sum += process::cpu_seconds(pid)?;
        }
        Ok(sum)
    }

    /// Resident memory of all nodes.
    pub(super) fn memory_bytes(&self) -> Outcome<f64> {
        let mut sum = 0.0;
        for pid in self.pids() {
            sum += process::memory_bytes(pid, Memory::Resident)? as f64;
        }
        Ok(sum)
    }

    pub(super) fn create_topic(&self, topic: &str, partitions: usize) -> Outcome {
        let made = self.connect(0)?.create_topic(topic, partitions as i32, &[]);
        made.context(|| "cannot create the topic")
    }

    /// The place of each partition's leader, once all partitions have one.
    pub(super) fn leaders(&self, topic: &str, partitions: usize) -> Outcome<Vec<usize>> {
        let (mut connection, deadline) = (self.connect(0)?, Instant::now() + PATIENCE);
        loop {
            let found = leaders(&mut connection, topic, partitions);
            let found = found.context(|| "no node says who leads")?;
            if let Some(all) = found.into_iter().collect::<Option<Vec<usize>>>() {
                return Ok(all);
            }
            if Instant::now() > deadline {
                return Err(Failure::new("a partition has no leader"));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    pub(super) fn stop(self) -> Outcome {
        match self {
            Self::One { server, .. } => server.stop(PATIENCE).map(drop),
            Self::Several(mut cluster) => cluster.stop(PATIENCE),
        }
    }
}
