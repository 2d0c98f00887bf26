use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;
use driver::{Failure, Message, Receipt, Sender, Topology};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{Producer, ProducerOptions, TokioExecutor, producer};

use super::{Client, Options, failure};
use crate::pending::{Confirmer, Outstanding, Window, send_by_post};

/// As in the Java client.
pub(super) const BATCH_BYTES_MAX: usize = 128 << 10;

/// Number of producers that are created concurrently.
const PRODUCERS_AT_ONCE: usize = 50;

pub(super) struct PulsarSender {
    /// One for each destination.
    producers: Vec<Producer<TokioExecutor>>,
    /// Destinations with a possibly incomplete batch.
    unflushed: BTreeSet<u32>,
    ordered: bool,
    window: Window,
    confirmer: Confirmer,
}

impl fmt::Debug for PulsarSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let producers = self.producers.len();
        f.debug_struct("PulsarSender").field("producers", &producers).finish_non_exhaustive()
    }
}

impl PulsarSender {
    pub(super) async fn open(
        client: &Client,
        options: &Options,
        topics: Vec<String>,
        topology: &Topology,
    ) -> Result<Self, Failure> {
        let batching = options.is_batching(topology);
        let producing = ProducerOptions {
            batch_size: batching.then_some(options.batch),
            batch_byte_size: batching.then_some(BATCH_BYTES_MAX),
            batch_timeout: batching.then_some(options.linger),
            block_queue_if_full: true,
            // Keyed messages are routed by their key.
            routing_policy: Some(RoutingPolicy::RoundRobin),
            ..ProducerOptions::default()
        };
        let builders = topics.into_iter().map(|topic| {
            let builder = client.producer().with_topic(topic);
            builder.with_options(producing.clone()).build()
        });
        let made = stream::iter(builders).buffered(PRODUCERS_AT_ONCE).try_collect().await;
        Ok(Self {
            producers: made.map_err(failure)?,
            unflushed: BTreeSet::new(),
            ordered: topology.ordered,
            window: Window::new(options.window),
            confirmer: Confirmer::spawn(),
        })
    }
}

#[async_trait]
impl Sender for PulsarSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let Some(producer) = self.producers.get_mut(destination as usize) else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        let partition_key = self.ordered.then(|| message.key());
        let payload = message.body.into();
        let message = producer::Message { payload, partition_key, ..Default::default() };
        if producer.options().batch_size.is_some() {
            self.unflushed.insert(destination);
        }
        match producer.send_non_blocking(message).await {
            Ok(sent) => {
                let confirmation = async move { sent.await.map(drop).map_err(failure) };
                self.confirmer.begin(confirmation, outstanding).await;
            }
            Err(error) => outstanding.resolve(Err(failure(error))),
        }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        while let Some(destination) = self.unflushed.pop_first() {
            let producer = &mut self.producers[destination as usize];
            producer.send_batch().await.map_err(failure)?;
        }
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let flushed = self.flush().await;
        self.window.drained().await;
        self.confirmer.close().await;
        for producer in &mut self.producers {
            producer.close().await.map_err(failure)?;
        }
        flushed
    }
}
