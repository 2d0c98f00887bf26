use std::collections::HashMap;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use futures_util::FutureExt;
use futures_util::stream::StreamExt;
use pulsar::consumer::{InitialPosition, Message};
use pulsar::proto::MessageIdData;
use pulsar::{Consumer, ConsumerOptions, SubType, TokioExecutor};
use tokio::time::timeout;

use super::batches::Batches;
use super::{Client, failure};

pub(super) struct PulsarReceiver {
    consumer: Consumer<Vec<u8>, TokioExecutor>,
    open: HashMap<u64, Place>,
    batches: Batches,
    deliveries: u64,
}

/// The message id and batch that an acknowledgement requires.
struct Place {
    topic: String,
    id: MessageIdData,
    /// Number of its batch.
    batch: Option<u64>,
}

impl fmt::Debug for PulsarReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PulsarReceiver").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

/// Where lanes must be in order, one consumer owns a key at a time.
pub(super) fn kind(ordered: bool) -> SubType {
    if ordered { SubType::KeyShared } else { SubType::Shared }
}

impl PulsarReceiver {
    pub(super) async fn subscribe(
        client: &Client,
        topics: Vec<String>,
        subscription: String,
        prefetch: u32,
        ordered: bool,
    ) -> Result<Self, Failure> {
        let options = ConsumerOptions::default()
            .with_initial_position(InitialPosition::Earliest)
            .with_receiver_queue_size(prefetch);
        let consumer = client
            .consumer()
            .with_topics(topics)
            .with_subscription(subscription)
            .with_subscription_type(kind(ordered))
            .with_batch_size(prefetch)
            .with_options(options)
            .build()
            .await
            .map_err(failure)?;
        Ok(Self { consumer, open: HashMap::new(), batches: Batches::default(), deliveries: 0 })
    }

    fn hand_out(&mut self, message: Message<Vec<u8>>) -> Received {
        let Message { topic, payload, message_id, .. } = message;
        let mut id = message_id.id;
        // The batches' writer uses the same form for a batch of one.
        let size = payload.metadata.num_messages_in_batch.map(|size| size.max(1) as u32);
        let batch = size.zip(id.batch_index).map(|(size, index)| {
            self.batches.came((id.ledger_id, id.entry_id), index.max(0) as u32, size)
        });
        id.batch_index = None;
        self.deliveries += 1;
        self.open.insert(self.deliveries, Place { topic, id, batch });
        let body = Bytes::from(payload.data);
        Received { id: DeliveryId(self.deliveries), body, redelivered: None }
    }

    async fn settle_one(&mut self, place: Place, settle: Settle) -> Result<(), Failure> {
        let Place { topic, id, batch } = place;
        let settled = match settle {
            Settle::Accept if batch.is_none_or(|number| self.batches.accept(number)) => {
                self.consumer.ack_with_id(&topic, id).await
            }
            Settle::Release if batch.is_none_or(|number| self.batches.release(number)) => {
                self.consumer.nack_with_id(&topic, id).await
            }
            // The rest of its batch is open, or its batch was already released.
            Settle::Accept | Settle::Release => Ok(()),
        };
        settled.map_err(Failure::unknown)
    }
}

#[async_trait]
impl Receiver for PulsarReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let ended = || Failure::unknown("the consumer ended");
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.consumer.next()).await {
            Err(_) => return Ok(received),
            Ok(next) => {
                let message = next.ok_or_else(ended)?.map_err(failure)?;
                received.push(self.hand_out(message));
            }
        }
        while received.len() < max
            && let Some(next) = self.consumer.next().now_or_never()
        {
            let message = next.ok_or_else(ended)?.map_err(failure)?;
            received.push(self.hand_out(message));
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(delivery), settle) in settles {
            let Some(place) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            self.settle_one(place, settle).await?;
        }
        Ok(())
    }

    /// The broker redelivers open messages.
    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.consumer.close().await.map_err(failure)
    }
}
