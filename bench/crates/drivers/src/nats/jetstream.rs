use std::collections::{BTreeMap, HashMap};
use std::fmt;

use async_nats::header::{HeaderMap, NATS_MESSAGE_ID};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{Context, PublishError, PublishErrorKind};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, Subject};
use async_trait::async_trait;
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, Message, RECEIVE_WAIT, Receipt, Received, Receiver,
    Replication, Return, Sender, Settle, Style, Tier, Topology,
};
use futures_util::FutureExt;
use futures_util::stream::{SelectAll, StreamExt};
use tokio::time::timeout;

use super::{Server, monitor, refused, replication};
use crate::pending::{Confirmer, Outstanding, Window, send_by_post};
use crate::told::{ms, named_values};

const SYSTEM: &str = "nats-jetstream";

#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) window: u32,
    pub(super) prefetch: usize,
    pub(super) max_ack_pending: i64,
    pub(super) monitor: String,
}

#[derive(Debug)]
pub(super) struct JetStream {
    pub(super) server: Server,
    pub(super) options: Options,
}

/// Retention after a settle, by the kind and number of readers.
fn retention(topology: &Topology) -> RetentionPolicy {
    match topology.style {
        Style::Log => RetentionPolicy::Limits,
        Style::Queue if topology.subscriptions <= 1 => RetentionPolicy::WorkQueue,
        Style::Queue => RetentionPolicy::Interest,
    }
}

fn stream_config(topology: &Topology, name: String) -> Config {
    Config {
        subjects: vec![name.clone()],
        name,
        retention: retention(topology),
        storage: match topology.tier {
            Tier::T0 => StorageType::Memory,
            _ => StorageType::File,
        },
        num_replicas: topology.replicas.max(1) as usize,
        duplicate_window: topology.deduplicate.unwrap_or_default(),
        ..Config::default()
    }
}

impl JetStream {
    /// The sender's window bounds the messages in flight; the client's own limit must not.
    fn ack_inflight_max(&self) -> usize {
        self.options.window as usize + 1
    }

    async fn check(&self, topology: &Topology) -> Result<(), Failure> {
        if matches!(topology.tier, Tier::T2 | Tier::T4) && topology.replicas < 2 {
            return Err(Failure::refused("a majority of nodes needs replicas of at least 2"));
        }
        if topology.tier.is_synced()
            && !self.options.monitor.is_empty()
            && !monitor::syncs_always(&self.options.monitor).await?
        {
            return Err(Failure::refused(format!(
                "{} was asked for, and the server's sync_interval is not always",
                topology.tier
            )));
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for JetStream {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "NATS JetStream",
            client: "async-nats 0.51",
            sent_means: "the server acknowledged the publish, after what its sync_interval says",
            hidden_means: "until the ack wait ends",
            tiers: &Tier::ALL,
            styles: &[Style::Queue, Style::Log],
            lanes: Lanes::Single,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn deduplicates(&self) -> bool {
        true
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let config = stream_config(topology, topology.destination(0));
        let Options { window, prefetch, max_ack_pending, .. } = &self.options;
        let mut settings = named_values(&[
            ("window", window),
            ("prefetch", prefetch),
            ("max-ack-pending", max_ack_pending),
            ("publisher.max ack in flight", &self.ack_inflight_max()),
            ("stream.retention", &format!("{:?}", config.retention)),
            ("stream.storage", &format!("{:?}", config.storage)),
            ("consumer.ack policy", &format!("{:?}", AckPolicy::Explicit)),
            ("consumer.ack wait", &ms(topology.lease)),
        ]);
        if topology.deduplicate.is_some() {
            settings
                .extend(named_values(&[("stream.duplicate window", &ms(config.duplicate_window))]));
        }
        settings
    }

    async fn version(&self) -> Result<String, Failure> {
        self.server.version().await
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.check(topology).await?;
        let context = jetstream::new(self.server.open().await?);
        remove(&context, topology).await?;
        for destination in 0..topology.destinations {
            let name = topology.destination(destination);
            let config = stream_config(topology, name.clone());
            context.create_stream(config).await.map_err(refused)?;
            for subscription in 0..topology.subscriptions.max(1) {
                let config = pull::Config {
                    durable_name: Some(topology.subscription(subscription)),
                    ack_policy: AckPolicy::Explicit,
                    ack_wait: topology.lease,
                    max_ack_pending: self.options.max_ack_pending,
                    ..pull::Config::default()
                };
                context.create_consumer_on_stream(config, &name).await.map_err(refused)?;
            }
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let context = jetstream::new(self.server.open().await?);
        remove(&context, topology).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let client = self.server.open().await?;
        let subject = |destination| Subject::from(topology.destination(destination));
        let context = jetstream::context::ContextBuilder::new()
            .max_ack_inflight(self.ack_inflight_max())
            .build(client.clone());
        Ok(Box::new(JetStreamSender {
            client,
            context,
            subjects: (0..topology.destinations).map(subject).collect(),
            window: Window::new(self.options.window),
            confirmer: Confirmer::spawn(),
            deduplicate: topology.deduplicate.is_some(),
        }))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let client = self.server.open().await?;
        let context = jetstream::new(client.clone());
        let mut arriving = SelectAll::new();
        let durable = topology.subscription(subscription);
        for &destination in destinations {
            let stream = topology.destination(destination);
            let consumer: PullConsumer =
                context.get_consumer_from_stream(&durable, &stream).await.map_err(refused)?;
            let pulled = consumer.stream().max_messages_per_batch(self.options.prefetch);
            arriving.push(pulled.messages().await.map_err(refused)?);
        }
        Ok(Box::new(JetStreamReceiver { client, arriving, open: HashMap::new(), deliveries: 0 }))
    }

    async fn replication(&self, topology: &Topology) -> Result<Vec<Replication>, Failure> {
        replication::replication(&self.server, topology).await
    }
}

async fn remove(context: &Context, topology: &Topology) -> Result<(), Failure> {
    use async_nats::jetstream::ErrorCode;
    use async_nats::jetstream::context::DeleteStreamErrorKind;

    for destination in 0..topology.destinations {
        match context.delete_stream(topology.destination(destination)).await {
            Ok(_) => {}
            Err(error) => match error.kind() {
                DeleteStreamErrorKind::JetStream(said)
                    if said.error_code() == ErrorCode::STREAM_NOT_FOUND => {}
                _ => return Err(refused(error)),
            },
        }
    }
    Ok(())
}

/// Without a leader of the stream, the server reports no responders, or nothing. The connection is
/// not affected.
fn not_acknowledged(error: &PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::StreamNotFound => Failure::refused(error),
        PublishErrorKind::TimedOut => Failure::Unanswered(error.to_string()),
        _ => Failure::unknown(error),
    }
}

struct JetStreamSender {
    client: Client,
    context: Context,
    subjects: Vec<Subject>,
    window: Window,
    confirmer: Confirmer,
    deduplicate: bool,
}

impl fmt::Debug for JetStreamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamSender").field("subjects", &self.subjects).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sender for JetStreamSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let Some(subject) = self.subjects.get(destination as usize).cloned() else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        let mut headers = HeaderMap::new();
        if self.deduplicate {
            headers.insert(NATS_MESSAGE_ID, message.id());
        }
        let published = match headers.is_empty() {
            true => self.context.publish(subject, message.body).await,
            false => self.context.publish_with_headers(subject, headers, message.body).await,
        };
        match published {
            Err(error) => outstanding.resolve(Err(refused(error))),
            Ok(acknowledged) => {
                let confirmation =
                    async move { acknowledged.await.map(drop).map_err(|it| not_acknowledged(&it)) };
                self.confirmer.begin(confirmation, outstanding).await;
            }
        }
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.confirmer.close().await;
        self.client.flush().await.map_err(refused)
    }
}

struct JetStreamReceiver {
    client: Client,
    arriving: SelectAll<pull::Stream>,
    open: HashMap<u64, Acker>,
    deliveries: u64,
}

impl fmt::Debug for JetStreamReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamReceiver").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl JetStreamReceiver {
    fn hand_out(&mut self, message: jetstream::Message) -> Result<Received, Failure> {
        let delivered = message.info().map_err(refused)?.delivered;
        let (message, acker) = message.split();
        self.deliveries += 1;
        self.open.insert(self.deliveries, acker);
        Ok(Received {
            id: DeliveryId(self.deliveries),
            body: message.payload,
            redelivered: Some(delivered > 1),
        })
    }
}

#[async_trait]
impl Receiver for JetStreamReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let ended = || Failure::unknown("the subscription ended");
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.arriving.next()).await {
            Err(_) => return Ok(received),
            Ok(next) => {
                let message = next.ok_or_else(ended)?.map_err(Failure::unknown)?;
                received.push(self.hand_out(message)?);
            }
        }
        while received.len() < max
            && let Some(next) = self.arriving.next().now_or_never()
        {
            let message = next.ok_or_else(ended)?.map_err(Failure::unknown)?;
            received.push(self.hand_out(message)?);
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(delivery), settle) in settles {
            let Some(acker) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            let kind = match settle {
                Settle::Accept => AckKind::Ack,
                Settle::Release => AckKind::Nak(None),
            };
            acker.ack_with(kind).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let mut back: Vec<Acker> = self.open.drain().map(|(_, acker)| acker).collect();
        while let Some(Some(Ok(prefetched))) = self.arriving.next().now_or_never() {
            back.push(prefetched.split().1);
        }
        // Stops the pull first, or released messages would return here.
        drop(self.arriving);
        self.client.flush().await.map_err(refused)?;
        for acker in back {
            acker.ack_with(AckKind::Nak(None)).await.map_err(refused)?;
        }
        self.client.flush().await.map_err(refused)?;
        self.client.drain().await.map_err(refused)
    }
}
