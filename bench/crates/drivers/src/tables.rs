//! Queues that are tables or collections of a database: one for each subscription of a destination.
//! A receiver hides a message until a time. There are no notifications, so receivers poll.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle, Topology};

/// The table of a destination for a subscription.
pub(crate) fn table(topology: &Topology, destination: u32, subscription: u32) -> String {
    format!("{}-{subscription}", topology.destination(destination))
}

/// The tables of a destination, by subscription.
pub(crate) fn tables_of(
    topology: &Topology,
    destination: u32,
) -> impl Iterator<Item = String> + '_ {
    let subscriptions = 0..topology.subscriptions.max(1);
    subscriptions.map(move |subscription| table(topology, destination, subscription))
}

pub(crate) fn all_tables(topology: &Topology) -> impl Iterator<Item = String> + '_ {
    (0..topology.destinations).flat_map(|destination| tables_of(topology, destination))
}

/// A receiver's view of one table.
#[async_trait]
pub(crate) trait Table: Send + Sync + Debug + 'static {
    /// Identifies a message.
    type Key: Clone + Send + Sync + Debug + 'static;

    /// Hides due messages, at most `max`, until the lease is over.
    async fn take(&self, max: usize) -> Result<Vec<Taken<Self::Key>>, Failure>;

    /// Removes taken messages.
    async fn accept(&self, keys: Vec<Self::Key>) -> Result<(), Failure>;

    /// Makes messages visible again, now.
    async fn release(&self, keys: Vec<Self::Key>) -> Result<(), Failure>;
}

/// A taken message.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Taken<K> {
    pub(crate) key: K,
    pub(crate) body: Bytes,
    pub(crate) redelivered: bool,
}

/// Receives from several tables.
#[derive(Debug)]
pub(crate) struct TableReceiver<T: Table> {
    tables: Vec<T>,
    /// Index of the table to read first, so that none starves.
    next: usize,
    /// Pause when there is no message.
    poll: Duration,
    /// By delivery: the table, and the message's key.
    open: HashMap<u64, (usize, T::Key)>,
    deliveries: u64,
}

impl<T: Table> TableReceiver<T> {
    pub(crate) fn new(tables: Vec<T>, poll: Duration) -> Self {
        Self { tables, next: 0, poll, open: HashMap::new(), deliveries: 0 }
    }

    async fn take(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        for turn in 0..self.tables.len() {
            let left = max - received.len();
            if left == 0 {
                break;
            }
            let index = (self.next + turn) % self.tables.len();
            for Taken { key, body, redelivered } in self.tables[index].take(left).await? {
                self.deliveries += 1;
                self.open.insert(self.deliveries, (index, key));
                let (id, redelivered) = (DeliveryId(self.deliveries), Some(redelivered));
                received.push(Received { id, body, redelivered });
            }
        }
        self.next += 1;
        Ok(received)
    }

    async fn accept(&self, messages: Vec<(usize, T::Key)>) -> Result<(), Failure> {
        for (table, keys) in by_table(messages) {
            self.tables[table].accept(keys).await?;
        }
        Ok(())
    }

    async fn release(&self, messages: Vec<(usize, T::Key)>) -> Result<(), Failure> {
        for (table, keys) in by_table(messages) {
            self.tables[table].release(keys).await?;
        }
        Ok(())
    }
}

fn by_table<K>(messages: Vec<(usize, K)>) -> HashMap<usize, Vec<K>> {
    let mut grouped: HashMap<usize, Vec<K>> = HashMap::new();
    for (table, key) in messages {
        grouped.entry(table).or_default().push(key);
    }
    grouped
}

#[async_trait]
impl<T: Table> Receiver for TableReceiver<T> {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        loop {
            let received = self.take(max).await?;
            if !received.is_empty() || Instant::now() >= deadline {
                return Ok(received);
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let (mut accepted, mut released) = (Vec::new(), Vec::new());
        for &(DeliveryId(delivery), settle) in settles {
            let Some(message) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            match settle {
                Settle::Accept => accepted.push(message),
                Settle::Release => released.push(message),
            }
        }
        self.accept(accepted).await?;
        self.release(released).await
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let open = std::mem::take(&mut self.open).into_values().collect();
        self.release(open).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use driver::{Style, Tier};
    use parking_lot::Mutex;

    use super::*;

    /// A table of numbers, with the accepted ones.
    #[derive(Debug, Default)]
    struct Numbers {
        due: Mutex<Vec<u8>>,
        accepted: Mutex<Vec<u8>>,
    }

    #[async_trait]
    impl Table for Arc<Numbers> {
        type Key = u8;

        async fn take(&self, max: usize) -> Result<Vec<Taken<u8>>, Failure> {
            let mut due = self.due.lock();
            let taken = due.len().min(max);
            let taken = due.drain(..taken);
            let body = Bytes::from_static(b"n");
            Ok(taken.map(|key| Taken { key, body: body.clone(), redelivered: false }).collect())
        }

        async fn accept(&self, keys: Vec<u8>) -> Result<(), Failure> {
            self.accepted.lock().extend(keys);
            Ok(())
        }

        async fn release(&self, keys: Vec<u8>) -> Result<(), Failure> {
            self.due.lock().extend(keys);
            Ok(())
        }
    }

    fn with(due: &[u8]) -> Arc<Numbers> {
        Arc::new(Numbers { due: Mutex::new(due.to_vec()), accepted: Mutex::default() })
    }

    #[test]
    fn each_subscription_of_a_destination_has_a_table() {
        let mut topology = Topology::new("t", Style::Queue, Tier::T0);
        (topology.destinations, topology.subscriptions) = (2, 2);
        let all: Vec<_> = all_tables(&topology).collect();
        assert_eq!(all, ["t-0-0", "t-0-1", "t-1-0", "t-1-1"]);
    }

    #[tokio::test]
    async fn tables_take_turns_and_get_their_released_messages_back() {
        let tables = [with(&[1, 2, 3]), with(&[11, 12])];
        let mut receiver = TableReceiver::new(tables.to_vec(), Duration::from_millis(1));
        let first = receiver.receive(1).await.expect("there is one");
        let second = receiver.receive(1).await.expect("there is one");
        let third = receiver.receive(1).await.expect("there is one");
        let ids = [first[0].id, second[0].id, third[0].id];
        let settles = [(ids[0], Settle::Accept), (ids[1], Settle::Release)];
        receiver.settle(&settles).await.expect("they are open");
        assert!(receiver.settle(&settles[..1]).await.is_err(), "it is settled");
        assert_eq!(*tables[0].accepted.lock(), [1]);
        assert_eq!(*tables[1].due.lock(), [12, 11], "it was the other's turn");
        Box::new(receiver).close().await.expect("closes");
        assert_eq!(*tables[0].due.lock(), [3, 2], "what is open goes back");
    }

    #[tokio::test]
    async fn receive_fills_up_from_other_tables() {
        let tables = vec![with(&[]), with(&[11, 12]), with(&[21, 22])];
        let mut receiver = TableReceiver::new(tables, Duration::from_millis(1));
        assert_eq!(receiver.receive(3).await.expect("they are there").len(), 3);
    }
}
