use std::collections::HashMap;
use std::fmt;

use async_trait::async_trait;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use rumqttc::{
    AsyncClient, Event, EventLoop, Packet, Publish, QoS, SubscribeFilter, SubscribeReasonCode,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;

pub(super) struct MqttReceiver {
    client: AsyncClient,
    arriving: mpsc::UnboundedReceiver<Publish>,
    task: JoinHandle<()>,
    /// The packet of each delivery without its body, as its acknowledgement requires.
    open: HashMap<u64, Publish>,
    deliveries: u64,
}

impl fmt::Debug for MqttReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttReceiver").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl MqttReceiver {
    /// Returns when the broker has granted the subscriptions.
    pub(super) async fn listen(
        client: AsyncClient,
        mut events: EventLoop,
        topics: &[String],
    ) -> Result<Self, Failure> {
        let filters =
            topics.iter().map(|topic| SubscribeFilter::new(topic.clone(), QoS::AtLeastOnce));
        client.subscribe_many(filters).await.map_err(Failure::unknown)?;
        let (arrived, arriving) = mpsc::unbounded_channel();
        let granted = timeout(PATIENCE, async {
            loop {
                match events.poll().await.map_err(Failure::unknown)? {
                    Event::Incoming(Packet::SubAck(answer)) => {
                        let refused = answer.return_codes.contains(&SubscribeReasonCode::Failure);
                        return match refused {
                            true => Err(Failure::refused("the subscription")),
                            false => Ok(()),
                        };
                    }
                    Event::Incoming(Packet::Publish(publish)) => drop(arrived.send(publish)),
                    _ => {}
                }
            }
        });
        granted.await.map_err(|_| Failure::unknown("no answer to the subscription"))??;
        // Bounded by the broker, which limits the unacknowledged messages.
        let task = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                if let Event::Incoming(Packet::Publish(publish)) = event {
                    let _ = arrived.send(publish);
                }
            }
        });
        Ok(Self { client, arriving, task, open: HashMap::new(), deliveries: 0 })
    }

    fn hand_out(&mut self, mut publish: Publish) -> Received {
        let body = std::mem::take(&mut publish.payload);
        let redelivered = Some(publish.dup);
        self.deliveries += 1;
        self.open.insert(self.deliveries, publish);
        Received { id: DeliveryId(self.deliveries), body, redelivered }
    }
}

#[async_trait]
impl Receiver for MqttReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.arriving.recv()).await {
            Err(_) => return Ok(received),
            Ok(None) => return Err(Failure::unknown("the connection is gone")),
            Ok(Some(publish)) => received.push(self.hand_out(publish)),
        }
        while received.len() < max
            && let Ok(publish) = self.arriving.try_recv()
        {
            received.push(self.hand_out(publish));
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(delivery), settle) in settles {
            if settle == Settle::Release {
                let what = "way to give a message back".into();
                return Err(Failure::Unsupported { system: super::SYSTEM, what });
            }
            let Some(publish) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            self.client.ack(&publish).await.map_err(Failure::unknown)?;
        }
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        let _ = self.client.disconnect().await;
        let _ = self.task.await;
        Ok(())
    }
}
