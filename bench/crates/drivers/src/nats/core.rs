use std::collections::BTreeMap;
use std::fmt;

use async_nats::{Client, Subject, Subscriber};
use async_trait::async_trait;
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, Message, RECEIVE_WAIT, Received, Receiver, Return,
    Sender, Settle, Style, Tier, Topology,
};
use futures_util::FutureExt;
use futures_util::stream::{SelectAll, StreamExt};
use tokio::time::timeout;

use super::{Server, refused};
use crate::batching::{BatchWriter, BatchingSender};
use crate::told::named_values;

const SYSTEM: &str = "nats-core";
/// Largest number of messages between two flushes.
const BATCH: usize = 500;

#[derive(Debug)]
pub(super) struct Core {
    pub(super) server: Server,
    pub(super) window: u32,
}

#[async_trait]
impl Driver for Core {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "NATS core, no storage",
            client: "async-nats 0.51",
            sent_means: "it was written to the socket",
            hidden_means: "not at all: at most once, to one of those who listen",
            tiers: &[Tier::T0],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::Never,
            subscriptions: true,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, _topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[("window", &self.window), ("flush after", &BATCH)])
    }

    async fn version(&self) -> Result<String, Failure> {
        self.server.version().await
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)
    }

    async fn remove(&self, _topology: &Topology) -> Result<(), Failure> {
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let subject = |destination| Subject::from(topology.destination(destination));
        let subjects = (0..topology.destinations).map(subject).collect();
        let writer = Writer { client: self.server.open().await?, subjects };
        Ok(Box::new(BatchingSender::spawn(writer, self.window, BATCH)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let client = self.server.open().await?;
        let mut arriving = SelectAll::new();
        for &destination in destinations {
            let group = topology.subscription(subscription);
            let subject = topology.destination(destination);
            arriving.push(client.queue_subscribe(subject, group).await.map_err(refused)?);
        }
        // From here on the server has registered the subscriptions.
        client.flush().await.map_err(refused)?;
        Ok(Box::new(CoreReceiver { _client: client, arriving, deliveries: 0 }))
    }
}

struct Writer {
    client: Client,
    subjects: Vec<Subject>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("subjects", &self.subjects).finish_non_exhaustive()
    }
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        for (destination, message) in batch {
            let subject = self.subjects.get(*destination as usize).cloned();
            let subject =
                subject.ok_or_else(|| Failure::refused("there is no such destination"))?;
            self.client.publish(subject, message.body.clone()).await.map_err(refused)?;
        }
        self.client.flush().await.map_err(refused)?;
        Ok(batch.iter().map(|_| Ok(())).collect())
    }
}

struct CoreReceiver {
    /// The connection ends when it is dropped.
    _client: Client,
    arriving: SelectAll<Subscriber>,
    deliveries: u64,
}

impl fmt::Debug for CoreReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreReceiver").field("deliveries", &self.deliveries).finish_non_exhaustive()
    }
}

impl CoreReceiver {
    fn hand_out(&mut self, message: async_nats::Message) -> Received {
        self.deliveries += 1;
        Received { id: DeliveryId(self.deliveries), body: message.payload, redelivered: None }
    }
}

#[async_trait]
impl Receiver for CoreReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let ended = || Failure::unknown("the subscription ended");
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.arriving.next()).await {
            Err(_) => return Ok(received),
            Ok(next) => received.push(self.hand_out(next.ok_or_else(ended)?)),
        }
        while received.len() < max
            && let Some(next) = self.arriving.next().now_or_never()
        {
            received.push(self.hand_out(next.ok_or_else(ended)?));
        }
        Ok(received)
    }

    /// Received messages are already gone.
    async fn settle(&mut self, _settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
