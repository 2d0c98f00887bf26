//! Clients of the workloads, with a request timeout of five seconds and a random first node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::CallError;
use client::blocking::Connection;
use kafka_protocol::protocol::Request;

use super::site::{Addresses, FOUNDERS};
use crate::random::Random;

/// A request that takes longer has failed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// State that all workloads of a run share.
#[derive(Clone, Debug)]
pub(super) struct WorkloadContext {
    pub(super) addresses: Addresses,
    pub(super) begun: Instant,
    stop: Arc<AtomicBool>,
}

impl WorkloadContext {
    pub(super) fn new(addresses: Addresses) -> WorkloadContext {
        WorkloadContext { addresses, begun: Instant::now(), stop: Arc::default() }
    }

    /// Milliseconds since the run began.
    pub(super) fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn any(&self, random: &mut Random) -> usize {
        random.between(0, FOUNDERS as u64 - 1) as usize
    }
}

/// Connections to each node by Kafka's protocol, opened when needed and dropped after an error.
#[derive(Debug)]
pub(super) struct Kafka {
    addresses: Vec<SocketAddr>,
    connections: Vec<Option<Connection>>,
    next: usize,
}

impl Kafka {
    pub(super) fn new(target: &WorkloadContext, first: usize) -> Kafka {
        let addresses = target.addresses.kafka.clone();
        let connections = addresses.iter().map(|_| None).collect();
        Kafka { addresses, connections, next: first }
    }

    /// Runs a call on a connection to the node.
    pub(super) fn at<T>(
        &mut self,
        place: usize,
        ask: impl FnOnce(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let slot = &mut self.connections[place];
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => Connection::open(self.addresses[place], TIMEOUT)?,
        };
        let asked = ask(&mut connection)?;
        *slot = Some(connection);
        Ok(asked)
    }

    pub(super) fn call<R: Request>(
        &mut self,
        place: usize,
        version: i16,
        request: &R,
    ) -> Result<R::Response, CallError> {
        self.at(place, |connection| connection.call(version, request))
    }

    /// The leader of a partition, according to the metadata of the next node.
    pub(super) fn leader(&mut self, topic: &str, partition: usize) -> Option<usize> {
        self.next = (self.next + 1) % self.addresses.len();
        let place = self.next;
        let said = self.at(place, |connection| connection.metadata(&[topic.to_owned()]));
        let said = said.ok()?;
        let mut partitions = said.topics.iter().flat_map(|topic| &topic.partitions);
        let found = partitions.find(|it| it.partition_index == partition as i32)?;
        let broker = said.brokers.iter().find(|broker| broker.node_id == found.leader_id)?;
        self.place_of(broker.port)
    }

    /// The node at this port.
    pub(super) fn place_of(&self, port: i32) -> Option<usize> {
        self.addresses.iter().position(|address| i32::from(address.port()) == port)
    }
}
