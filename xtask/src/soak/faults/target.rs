//! Clients of the workloads, with a request timeout of five seconds and a random first node.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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
pub(super) struct Target {
    pub(super) addresses: Addresses,
    pub(super) begun: Instant,
    stop: Arc<AtomicBool>,
}

impl Target {
    pub(super) fn new(addresses: Addresses) -> Target {
        Target { addresses, begun: Instant::now(), stop: Arc::default() }
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
    pub(super) fn new(target: &Target, first: usize) -> Kafka {
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

/// Response of an HTTP request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
}

/// Sends one request on a connection of its own.
pub(super) fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(body);
    stream.write_all(request.as_bytes())?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    parse(&String::from_utf8_lossy(&said))
        .ok_or_else(|| std::io::Error::other("the answer is no HTTP"))
}

fn parse(said: &str) -> Option<Answer> {
    let (head, _) = said.split_once("\r\n\r\n")?;
    let status = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let etag = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("etag").then(|| value.trim().to_owned())
    });
    Some(Answer { status, etag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_http_is_parsed_with_its_etag() {
        let said = "HTTP/1.1 412 Precondition Failed\r\nETag: \"v7\"\r\nx: y\r\n\r\n{\"a\":1}";
        let Answer { status, etag } = parse(said).unwrap();
        assert_eq!((status, etag.as_deref()), (412, Some("\"v7\"")));
        assert!(parse("cut").is_none());
    }
}
