//! Traffic of the connections of each protocol since the node started.
//!
//! Counters belong to the node and are not sums over open connections, so they never decrease. A session adds to them
//! once per batch, and holds the counters of its protocol, so that it takes no lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counters of one protocol. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    records_received: AtomicU64,
    bytes_received: AtomicU64,
    bytes_delivered: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficSeen {
    pub connections: u64,
    pub connections_opened: u64,
    pub connections_closed: u64,
    /// Rejected because the limit of connections was reached.
    pub connections_refused: u64,
    /// Passed to the broker, whether or not it accepted them.
    pub records_received: u64,
    pub bytes_received: u64,
    pub bytes_delivered: u64,
}

impl Traffic {
    pub(crate) fn opened(&self) {
        self.0.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts records passed to the broker.
    pub fn received(&self, records: u64, bytes: u64) {
        self.0.records_received.fetch_add(records, Ordering::Relaxed);
        self.0.bytes_received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts records sent to a client.
    pub fn delivered(&self, bytes: u64) {
        self.0.bytes_delivered.fetch_add(bytes, Ordering::Relaxed);
    }

    fn seen(&self) -> TrafficSeen {
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Closed ones are read first, so that they never exceed the opened ones.
        let connections_closed = seen(&self.0.closed);
        let connections_opened = seen(&self.0.opened);
        TrafficSeen {
            connections: connections_opened.saturating_sub(connections_closed),
            connections_opened,
            connections_closed,
            connections_refused: seen(&self.0.refused),
            records_received: seen(&self.0.records_received),
            bytes_received: seen(&self.0.bytes_received),
            bytes_delivered: seen(&self.0.bytes_delivered),
        }
    }
}

/// Counters of all protocols.
#[derive(Debug, Default)]
pub(crate) struct TrafficOfAll(Mutex<BTreeMap<&'static str, Traffic>>);

impl TrafficOfAll {
    pub(crate) fn of(&self, protocol: &'static str) -> Traffic {
        self.0.lock().entry(protocol).or_default().clone()
    }

    pub(crate) fn seen(&self) -> Vec<(&'static str, TrafficSeen)> {
        self.0.lock().iter().map(|(protocol, traffic)| (*protocol, traffic.seen())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_per_protocol_and_outlive_connections() {
        let all = TrafficOfAll::default();
        let kafka = all.of("kafka");
        kafka.opened();
        all.of("kafka").opened();
        kafka.closed();
        kafka.received(3, 100);
        all.of("amqp").refused();
        let seen = all.seen();
        assert_eq!(
            seen.iter().map(|(protocol, _)| *protocol).collect::<Vec<_>>(),
            ["amqp", "kafka"]
        );
        let (amqp, kafka) = (seen[0].1, seen[1].1);
        assert_eq!((kafka.connections, kafka.connections_opened), (1, 2));
        assert_eq!((kafka.records_received, kafka.bytes_received), (3, 100));
        assert_eq!((amqp.connections_refused, amqp.connections), (1, 0));
    }
}
