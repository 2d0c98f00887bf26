use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use futures_util::stream::{SelectAll, StreamExt};
use futures_util::{FutureExt, future};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use tokio::time::timeout;

use super::{close, refused};

pub(super) struct AmqpReceiver {
    connection: Connection,
    channel: Channel,
    consumers: SelectAll<Consumer>,
}

impl fmt::Debug for AmqpReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpReceiver")
            .field("queues", &self.consumers.len())
            .finish_non_exhaustive()
    }
}

impl AmqpReceiver {
    pub(super) async fn open(
        connection: Connection,
        channel: Channel,
        queues: &[String],
        prefetch: u16,
    ) -> Result<Self, Failure> {
        channel.basic_qos(prefetch, BasicQosOptions::default()).await.map_err(refused)?;
        let mut consumers = SelectAll::new();
        for queue in queues {
            let consumer = channel.basic_consume(
                queue.as_str().into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            consumers.push(consumer.await.map_err(refused)?);
        }
        Ok(Self { connection, channel, consumers })
    }

    async fn settle_one(&self, tag: u64, settle: Settle) -> Result<(), Failure> {
        let settled = match settle {
            Settle::Accept => self.channel.basic_ack(tag, BasicAckOptions::default()).await,
            Settle::Release => {
                let options = BasicNackOptions { requeue: true, ..Default::default() };
                self.channel.basic_nack(tag, options).await
            }
        };
        settled.map_err(refused)
    }
}

fn received(delivery: Delivery) -> Received {
    Received {
        id: DeliveryId(delivery.delivery_tag),
        body: Bytes::from(delivery.data),
        redelivered: Some(delivery.redelivered),
    }
}

#[async_trait]
impl Receiver for AmqpReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let ended = || Failure::unknown("the server ended the consumer");
        let mut taken = Vec::new();
        match timeout(RECEIVE_WAIT, self.consumers.next()).await {
            Err(_) => return Ok(taken),
            Ok(next) => taken.push(received(next.ok_or_else(ended)?.map_err(refused)?)),
        }
        while taken.len() < max
            && let Some(next) = self.consumers.next().now_or_never()
        {
            taken.push(received(next.ok_or_else(ended)?.map_err(refused)?));
        }
        Ok(taken)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        // Each ack is written at its first poll; together they wait for the socket once.
        let settling =
            settles.iter().map(|&(DeliveryId(tag), settle)| self.settle_one(tag, settle));
        future::try_join_all(settling).await.map(drop)
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        close(self.connection).await
    }
}
