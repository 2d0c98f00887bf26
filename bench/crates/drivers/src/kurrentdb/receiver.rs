use std::collections::HashMap;
use std::fmt;

use async_trait::async_trait;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use kurrentdb::{
    Client, NakAction, PersistentSubscription, PersistentSubscriptionEvent, ResolvedEvent,
    SubscribeToPersistentSubscriptionOptions,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use super::failure;

/// Each stream's subscription runs in its own task. The client can either read from it or settle,
/// and drops its task when the server ends it.
struct Reading {
    settles: mpsc::UnboundedSender<(Vec<Uuid>, Settle)>,
    task: JoinHandle<()>,
}

pub(super) struct KurrentReceiver {
    streams: Vec<Reading>,
    /// Bounded by the server, which limits the unsettled events.
    arriving: mpsc::UnboundedReceiver<Result<Came, Failure>>,
    /// Deliveries by number: the index of the stream, and the event.
    open: HashMap<u64, (usize, Uuid)>,
    deliveries: u64,
}

struct Came {
    stream: usize,
    event: ResolvedEvent,
    before: usize,
}

impl fmt::Debug for KurrentReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KurrentReceiver").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl KurrentReceiver {
    pub(super) async fn subscribe(
        client: &Client,
        names: &[String],
        group: &str,
        prefetch: usize,
    ) -> Result<Self, Failure> {
        let options = SubscribeToPersistentSubscriptionOptions::default().buffer_size(prefetch);
        let (arrived, arriving) = mpsc::unbounded_channel();
        let mut streams = Vec::with_capacity(names.len());
        for (stream, name) in names.iter().enumerate() {
            let subscribed =
                client.subscribe_to_persistent_subscription(name.as_str(), group, &options);
            let subscription = subscribed.await.map_err(failure)?;
            let (settles, settling) = mpsc::unbounded_channel();
            let task = tokio::spawn(read(stream, subscription, settling, arrived.clone()));
            streams.push(Reading { settles, task });
        }
        Ok(Self { streams, arriving, open: HashMap::new(), deliveries: 0 })
    }

    fn hand_out(&mut self, came: Came) -> Received {
        let Came { stream, event, before } = came;
        let event = event.get_original_event();
        self.deliveries += 1;
        self.open.insert(self.deliveries, (stream, event.id));
        let (id, body) = (DeliveryId(self.deliveries), event.data.clone());
        Received { id, body, redelivered: Some(before > 0) }
    }

    fn settle_all(&self, settles: HashMap<(usize, Settle), Vec<Uuid>>) -> Result<(), Failure> {
        for ((stream, settle), ids) in settles {
            let told = self.streams[stream].settles.send((ids, settle));
            told.map_err(|_| Failure::unknown("the subscription ended"))?;
        }
        Ok(())
    }
}

async fn read(
    stream: usize,
    mut subscription: PersistentSubscription,
    mut settling: mpsc::UnboundedReceiver<(Vec<Uuid>, Settle)>,
    arrived: mpsc::UnboundedSender<Result<Came, Failure>>,
) {
    loop {
        tokio::select! {
            settles = settling.recv() => {
                let settled = match settles {
                    None => return,
                    Some((ids, Settle::Accept)) => subscription.ack_ids(ids).await,
                    Some((ids, Settle::Release)) => {
                        subscription.nack_ids(ids, NakAction::Retry, "released").await
                    }
                };
                if let Err(error) = settled {
                    let _ = arrived.send(Err(failure(error)));
                    return;
                }
            }
            event = subscription.next_subscription_event() => match event {
                Ok(PersistentSubscriptionEvent::EventAppeared { retry_count: before, event }) => {
                    let _ = arrived.send(Ok(Came { stream, event, before }));
                }
                Ok(PersistentSubscriptionEvent::Confirmed(_)) => {}
                Err(error) => {
                    let _ = arrived.send(Err(failure(error)));
                    return;
                }
            },
        }
    }
}

#[async_trait]
impl Receiver for KurrentReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.arriving.recv()).await {
            Err(_) => return Ok(received),
            Ok(None) => return Err(Failure::unknown("the subscriptions ended")),
            Ok(Some(came)) => received.push(self.hand_out(came?)),
        }
        while received.len() < max
            && let Ok(came) = self.arriving.try_recv()
        {
            received.push(self.hand_out(came?));
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut grouped: HashMap<(usize, Settle), Vec<Uuid>> = HashMap::new();
        for &(DeliveryId(delivery), settle) in settles {
            let Some((stream, event)) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            grouped.entry((stream, settle)).or_default().push(event);
        }
        self.settle_all(grouped)
    }

    /// The server redelivers open events when the subscriptions end.
    async fn close(self: Box<Self>) -> Result<(), Failure> {
        for Reading { settles, task } in self.streams {
            drop(settles);
            let _ = task.await;
        }
        Ok(())
    }
}
