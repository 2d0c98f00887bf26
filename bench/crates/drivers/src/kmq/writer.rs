use std::task::Poll;

use driver::Failure;
use futures_util::poll;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rdkafka::ClientConfig;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};

use super::marker::{Key, Marker};
use crate::kafka::client::refused;

/// Largest number of end markers in flight.
const UNDER_WAY_MAX: usize = 10_000;

/// As in KMQ's own library.
const LINGER_MS: &str = "1";

/// Writes markers. The outcomes of end markers are checked later.
pub(super) struct MarkerWriter {
    producer: FutureProducer,
    under_way: FuturesUnordered<DeliveryFuture>,
}

impl MarkerWriter {
    pub(super) fn new(mut config: ClientConfig) -> Result<Self, Failure> {
        config.set("linger.ms", LINGER_MS);
        let producer = config.create().map_err(refused)?;
        Ok(Self { producer, under_way: FuturesUnordered::new() })
    }

    /// Starts to write a marker; [`written`] waits for it.
    pub(super) fn begin(
        &self,
        topic: &str,
        key: Key,
        marker: Marker,
    ) -> Result<DeliveryFuture, Failure> {
        let (bytes, marker) = (key.encode(), marker.encode());
        // A marker has the partition of its message, so that one tracker reads both.
        let record = FutureRecord::to(topic).partition(key.partition).key(&bytes).payload(&marker);
        self.producer.send_result(record).map_err(|(error, _)| refused(error))
    }

    /// Writes an end marker without a wait.
    pub(super) async fn end(&mut self, topic: &str, key: Key) -> Result<(), Failure> {
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.one().await?;
        }
        self.under_way.push(self.begin(topic, key, Marker::End)?);
        Ok(())
    }

    async fn one(&mut self) -> Result<(), Failure> {
        match self.under_way.next().await {
            None => Ok(()),
            Some(delivered) => delivered_as(delivered),
        }
    }

    /// Fails if an end marker was not written.
    pub(super) async fn check(&mut self) -> Result<(), Failure> {
        while !self.under_way.is_empty() {
            let Poll::Ready(Some(delivered)) = poll!(self.under_way.next()) else { break };
            delivered_as(delivered)?;
        }
        Ok(())
    }

    /// Waits for all end markers.
    pub(super) async fn drained(&mut self) -> Result<(), Failure> {
        while !self.under_way.is_empty() {
            self.one().await?;
        }
        Ok(())
    }

    /// Dropping it joins a thread.
    pub(super) async fn close(mut self) -> Result<(), Failure> {
        let drained = self.drained().await;
        tokio::task::spawn_blocking(move || drop(self)).await.map_err(Failure::unknown)?;
        drained
    }
}

/// Waits until the marker is written.
pub(super) async fn written(delivery: DeliveryFuture) -> Result<(), Failure> {
    delivered_as(delivery.await)
}

fn delivered_as(delivered: <DeliveryFuture as Future>::Output) -> Result<(), Failure> {
    match delivered {
        Ok(Ok(_)) => Ok(()),
        Ok(Err((error, _))) => Err(refused(error)),
        Err(_) => Err(Failure::unknown("the producer is gone")),
    }
}
