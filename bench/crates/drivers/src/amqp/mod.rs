//! AMQP 0-9-1, by lapin: RabbitMQ's classic and quorum queues, LavinMQ, and Postroad's AMQP gateway
//! (RabbitMQ's streams are in [`stream`]).
//!
//! *Sent* means: the server confirmed the message, and did not return it. A nack is an error. The
//! guarantee of a confirm depends on the queue: on RabbitMQ a classic queue has written to the page
//! cache (T1), a quorum queue has synced on a majority (T3 with one replica, T4 with more).
//!
//! *Hiding*: a delivery belongs to its channel until it is acknowledged, released, or the channel
//! closes; there is no lease. Up to `prefetch` (100, for each queue) deliveries are sent to the
//! receiver in advance.
//!
//! A destination is a queue; with several subscriptions an exchange and a queue for each. Order by
//! lane, where a test requires it, uses `partitions` queues with a single active consumer each; on
//! Postroad the queue orders by key. Other tests get one queue, whatever their partitions.
//!
//! Settings: `window`, `prefetch`, `vhost`, `asked-at` (addresses that report the leaders, by node:
//! RabbitMQ's management plugin, Postroad's Kafka listener), and `queue.X` for arguments of the
//! queues (numbers and booleans are sent as such).

mod greeting;
mod receiver;
mod replication;
mod sender;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Replication, Return, Sender, Settings, Style, Target,
    Tier, Topology,
};
use lapin::options::{
    ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use tokio::time::timeout;

use crate::pending::WINDOW;
use crate::told::named_values;
use crate::url::escaped;
use sender::Way;

const PATIENCE: Duration = Duration::from_secs(10);
const ENDPOINT: &str = "127.0.0.1:5672";
/// Reply code of `connection.close` for a wrong user, password or virtual host.
const ACCESS_REFUSED: u16 = 403;
const GOODBYE: u16 = 200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flavour {
    Classic,
    Quorum,
    Lavin,
    Postroad,
}

pub(crate) use stream::connect as connect_stream;

pub(crate) fn connect_classic(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Classic, target)
}

pub(crate) fn connect_quorum(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Quorum, target)
}

pub(crate) fn connect_lavin(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Lavin, target)
}

pub(crate) fn connect_postroad(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(Flavour::Postroad, target)
}

#[derive(Debug)]
struct Amqp {
    flavour: Flavour,
    server: Server,
    options: Options,
    arguments: Vec<(String, String)>,
    /// Addresses that report the leaders; empty if not set.
    asked_at: String,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    window: u32,
    prefetch: u16,
}

impl Options {
    fn take(settings: &mut Settings) -> Result<Self, Failure> {
        Ok(Self {
            window: settings.take("window", WINDOW)?,
            prefetch: settings.take("prefetch", 100)?,
        })
    }
}

/// Addresses and login of the server.
#[derive(Debug)]
struct Server {
    addresses: Vec<String>,
    user: String,
    password: String,
    vhost: String,
    /// Index of the next address.
    turn: AtomicUsize,
}

fn connect(flavour: Flavour, target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let named = target.settings.keys().filter_map(|name| name.strip_prefix("queue."));
    let mut arguments = Vec::new();
    for name in named {
        let value = settings.take(&format!("queue.{name}"), String::new())?;
        arguments.push((name.to_owned(), value));
    }
    let options = Options::take(&mut settings)?;
    let server = Server::of(target, &mut settings)?;
    let asked_at = settings.take("asked-at", String::new())?;
    settings.done()?;
    Ok(Arc::new(Amqp { flavour, server, options, arguments, asked_at }))
}

fn refused(error: lapin::Error) -> Failure {
    match error.kind() {
        ErrorKind::ProtocolError(said) => Failure::refused(said.get_message()),
        _ => Failure::unknown(error),
    }
}

impl Server {
    fn of(target: &Target, settings: &mut Settings) -> Result<Self, Failure> {
        let given = if target.endpoints.is_empty() {
            vec![ENDPOINT.to_owned()]
        } else {
            target.endpoints.clone()
        };
        let plain = |address: String| {
            address.trim_start_matches("amqp://").trim_end_matches('/').to_owned()
        };
        Ok(Self {
            addresses: given.into_iter().map(plain).collect(),
            user: target.user.clone().unwrap_or_else(|| "guest".into()),
            password: target.password.clone().unwrap_or_else(|| "guest".into()),
            vhost: settings.take("vhost", "/".to_owned())?,
            turn: AtomicUsize::new(0),
        })
    }

    fn next_address(&self) -> &str {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.addresses[turn % self.addresses.len()]
    }

    async fn open(&self) -> Result<(Connection, Channel), Failure> {
        let address = self.next_address();
        let (user, password) = (escaped(&self.user), escaped(&self.password));
        let uri = format!("amqp://{user}:{password}@{address}/{}", escaped(&self.vhost));
        let endpoint = address.to_owned();
        let opening = Connection::connect(&uri, ConnectionProperties::default());
        let connection = match timeout(PATIENCE, opening).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                return Err(match error.kind() {
                    ErrorKind::ProtocolError(said) if said.get_id() == ACCESS_REFUSED => {
                        let (user, why) = (self.user.clone(), said.get_message().to_string());
                        Failure::NotAllowed { endpoint, user, why }
                    }
                    _ => Failure::Unreachable { endpoint, why: error.to_string() },
                });
            }
            Err(_) => {
                let why = format!("no answer within {PATIENCE:?}");
                return Err(Failure::Unreachable { endpoint, why });
            }
        };
        let channel = connection.create_channel().await.map_err(refused)?;
        Ok((connection, channel))
    }
}

/// Closes cleanly: the server has read everything written before.
async fn close(connection: Connection) -> Result<(), Failure> {
    connection.close(GOODBYE, "done".into()).await.map_err(refused)
}

/// Names of a topology's objects on the server.
#[derive(Clone, Debug)]
struct Names {
    topology: Topology,
    parts: u32,
}

impl Names {
    fn new(topology: &Topology, parts: u32) -> Self {
        Self { topology: topology.clone(), parts }
    }

    fn subscriptions(&self) -> u32 {
        self.topology.subscriptions.max(1)
    }

    /// `None`: the default exchange, which routes a message to the queue named by its routing key.
    fn exchange(&self, destination: u32) -> Option<String> {
        let routed = self.subscriptions() > 1 || self.parts > 1;
        routed.then(|| self.topology.destination(destination))
    }

    fn queue(&self, destination: u32, subscription: u32, part: u32) -> String {
        let destination = self.topology.destination(destination);
        if self.subscriptions() == 1 && self.parts == 1 {
            return destination;
        }
        format!("{destination}-{subscription}-{part}")
    }

    fn ways(&self) -> Vec<Vec<Way>> {
        let way = |destination, part: u32| match self.exchange(destination) {
            Some(exchange) => Arc::new((exchange.into(), part.to_string().into())),
            None => Arc::new(("".into(), self.queue(destination, 0, 0).into())),
        };
        let ways = |destination| (0..self.parts).map(|part| way(destination, part)).collect();
        (0..self.topology.destinations).map(ways).collect()
    }

    /// All queues of one destination for one subscription.
    fn queues(&self, destination: u32, subscription: u32) -> impl Iterator<Item = String> + '_ {
        (0..self.parts).map(move |part| self.queue(destination, subscription, part))
    }
}

impl Amqp {
    fn names(&self, topology: &Topology) -> Names {
        let divided = topology.ordered && self.flavour != Flavour::Postroad;
        Names::new(topology, if divided { topology.partitions.max(1) } else { 1 })
    }

    fn queue_arguments(&self, names: &Names, destination: u32) -> FieldTable {
        let mut table = FieldTable::default();
        let mut set = |name: &str, value: AMQPValue| {
            table.insert(name.into(), value);
        };
        match self.flavour {
            Flavour::Classic => set("x-queue-type", AMQPValue::LongString("classic".into())),
            Flavour::Quorum => {
                set("x-queue-type", AMQPValue::LongString("quorum".into()));
                let replicas = names.topology.replicas.max(1) as i32;
                set("x-quorum-initial-group-size", AMQPValue::LongInt(replicas));
                // Otherwise the node that `create` is connected to leads all queues.
                if replicas > 1 {
                    set("x-queue-leader-locator", AMQPValue::LongString("balanced".into()));
                }
            }
            // Classic queues do not count deliveries.
            Flavour::Postroad if names.topology.delivery_limit.is_some() => {
                set("x-queue-type", AMQPValue::LongString("quorum".into()));
            }
            Flavour::Lavin | Flavour::Postroad => {}
        }
        match self.flavour {
            _ if !names.topology.ordered => {}
            Flavour::Postroad => set("x-postroad-ordering", AMQPValue::LongString("key".into())),
            _ => set("x-single-active-consumer", AMQPValue::Boolean(true)),
        }
        if let Some(limit) = names.topology.delivery_limit {
            let dead = self.names(&names.topology.dead_letters()).queue(destination, 0, 0);
            // The limit counts redeliveries, so the first delivery is excluded.
            set("x-delivery-limit", AMQPValue::LongInt(limit.saturating_sub(1) as i32));
            set("x-dead-letter-exchange", AMQPValue::LongString("".into()));
            set("x-dead-letter-routing-key", AMQPValue::LongString(dead.into()));
        }
        for (name, value) in &self.arguments {
            set(name, typed(value));
        }
        table
    }

    async fn declare(&self, channel: &Channel, names: &Names) -> Result<(), Failure> {
        let durable = sender::is_durable(names.topology.tier);
        for destination in 0..names.topology.destinations {
            let exchange = names.exchange(destination);
            if let Some(exchange) = &exchange {
                let kind =
                    if names.parts > 1 { ExchangeKind::Direct } else { ExchangeKind::Fanout };
                let options = ExchangeDeclareOptions { durable, ..Default::default() };
                let none = FieldTable::default();
                let declared =
                    channel.exchange_declare(exchange.as_str().into(), kind, options, none);
                declared.await.map_err(refused)?;
            }
            for subscription in 0..names.subscriptions() {
                for part in 0..names.parts {
                    let queue = names.queue(destination, subscription, part);
                    let options = QueueDeclareOptions { durable, ..Default::default() };
                    let arguments = self.queue_arguments(names, destination);
                    let declared = channel.queue_declare(queue.as_str().into(), options, arguments);
                    declared.await.map_err(refused)?;
                    if let Some(exchange) = &exchange {
                        let bound = channel.queue_bind(
                            queue.as_str().into(),
                            exchange.as_str().into(),
                            part.to_string().into(),
                            QueueBindOptions::default(),
                            FieldTable::default(),
                        );
                        bound.await.map_err(refused)?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn delete(&self, channel: &Channel, names: &Names) -> Result<(), Failure> {
        for destination in 0..names.topology.destinations {
            for subscription in 0..names.subscriptions() {
                for queue in names.queues(destination, subscription) {
                    let options = QueueDeleteOptions::default();
                    channel.queue_delete(queue.as_str().into(), options).await.map_err(refused)?;
                }
            }
            if let Some(exchange) = names.exchange(destination) {
                let options = ExchangeDeleteOptions::default();
                let deleted = channel.exchange_delete(exchange.as_str().into(), options);
                deleted.await.map_err(refused)?;
            }
        }
        Ok(())
    }
}

/// An argument of a queue, as shown in a result.
fn shown(value: &AMQPValue) -> String {
    match value {
        AMQPValue::LongString(text) => text.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Boolean(yes) => yes.to_string(),
        other => format!("{other:?}"),
    }
}

/// Infers the type from the text.
fn typed(value: &str) -> AMQPValue {
    if let Ok(number) = value.parse() {
        return AMQPValue::LongLongInt(number);
    }
    match value {
        "true" | "false" => AMQPValue::Boolean(value == "true"),
        _ => AMQPValue::LongString(value.into()),
    }
}

#[async_trait]
impl Driver for Amqp {
    fn about(&self) -> About {
        let (system, title, sent_means, tiers): (_, _, _, &[Tier]) = match self.flavour {
            Flavour::Classic => (
                "rabbitmq-classic",
                "RabbitMQ, classic queues",
                "confirmed: a durable queue has it in its page cache",
                &[Tier::T0, Tier::T1],
            ),
            Flavour::Quorum => (
                "rabbitmq-quorum",
                "RabbitMQ, quorum queues",
                "confirmed: a majority of the queue's replicas have synced it",
                &[Tier::T3, Tier::T4],
            ),
            Flavour::Lavin => {
                ("lavinmq", "LavinMQ", "confirmed: it is in the page cache", &[Tier::T0, Tier::T1])
            }
            Flavour::Postroad => (
                "postroad-amqp",
                "Postroad by AMQP 0-9-1",
                "confirmed: what the server's --durability says, by default synced, in a cluster by a majority",
                &[Tier::T0, Tier::T1, Tier::T3, Tier::T4],
            ),
        };
        About {
            system,
            title,
            client: "lapin 4.12",
            sent_means,
            hidden_means: "until the channel closes",
            tiers,
            styles: &[Style::Queue],
            lanes: match self.flavour {
                Flavour::Postroad => Lanes::Ordered,
                _ => Lanes::Partitioned,
            },
            returns: Return::Connection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let durable = sender::is_durable(topology.tier);
        let mut settings = sender::settings(self.options.window, durable);
        settings.extend(named_values(&[
            ("prefetch", &self.options.prefetch),
            ("queue.durable", &durable),
        ]));
        let arguments = self.queue_arguments(&self.names(topology), 0);
        let named = arguments.inner().iter();
        settings.extend(named.map(|(name, value)| (format!("queue.{name}"), shown(value))));
        settings
    }

    /// Classic queues do not count deliveries.
    fn has_dead_letters(&self) -> bool {
        matches!(self.flavour, Flavour::Quorum | Flavour::Lavin | Flavour::Postroad)
    }

    async fn version(&self) -> Result<String, Failure> {
        let product = greeting::product(self.server.next_address()).await?;
        // A dropped channel closes itself, which would interfere with the close of the connection.
        let (connection, _channel) = self.server.open().await?;
        close(connection).await?;
        Ok(product)
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        let (connection, channel) = self.server.open().await?;
        let names = self.names(topology);
        let dead_letters = topology.delivery_limit.map(|_| self.names(&topology.dead_letters()));
        for names in dead_letters.iter().chain([&names]) {
            self.delete(&channel, names).await?;
            self.declare(&channel, names).await?;
        }
        close(connection).await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let (connection, channel) = self.server.open().await?;
        self.delete(&channel, &self.names(topology)).await?;
        if topology.delivery_limit.is_some() {
            self.delete(&channel, &self.names(&topology.dead_letters())).await?;
        }
        close(connection).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let (connection, channel) = self.server.open().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(refused)?;
        let shape = sender::Shape {
            ways: self.names(topology).ways(),
            keyed: topology.ordered && self.flavour == Flavour::Postroad,
            durable: sender::is_durable(topology.tier),
            window: self.options.window,
        };
        Ok(Box::new(sender::AmqpSender::new(connection, channel, shape)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let (connection, channel) = self.server.open().await?;
        let names = self.names(topology);
        let queues: Vec<String> = destinations
            .iter()
            .flat_map(|&destination| names.queues(destination, subscription))
            .collect();
        let receiver =
            receiver::AmqpReceiver::open(connection, channel, &queues, self.options.prefetch);
        Ok(Box::new(receiver.await?))
    }

    async fn replication(&self, topology: &Topology) -> Result<Vec<Replication>, Failure> {
        let names = self.names(topology);
        let queues: Vec<String> =
            (0..topology.destinations).map(|destination| names.queue(destination, 0, 0)).collect();
        match self.flavour {
            _ if self.asked_at.is_empty() => {}
            Flavour::Quorum => {
                let login = (self.server.user.as_str(), self.server.password.as_str());
                return replication::rabbitmq_queues(&self.asked_at, login, &queues).await;
            }
            #[cfg(feature = "kafka")]
            Flavour::Postroad => {
                return replication::postroad_queues(&self.asked_at, &queues).await;
            }
            _ => {}
        }
        let what = "way to ask which node leads what".into();
        Err(Failure::Unsupported { system: self.about().system, what })
    }
}
