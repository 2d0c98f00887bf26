//! The network of a run, and the gateways on it.
//!
//! Node and clients are one turmoil host and communicate over its loopback: their sockets, codecs and sessions are
//! the product's, and their bytes take no time.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::{SettingsUser, Users};
use admin::Admin;
use broker::Broker;
use client::connect::Connecting;
use client::{Connect, Pipeline};
use client_amqp::{Channel, Mode, TimedStream};
use consumer_groups::Groups;
use gateway::Connections;
use nodes::{Endpoint, Endpoints, Nodes};
use tasks::Task;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use topology::Topology;
use world::Net;
use world::net::Stream;

const KAFKA: u16 = 9092;
const AMQP: u16 = 5672;
/// Pause of a client after a refused connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
const USER: [&str; 2] = ["sim", "sim"];

/// A node's gateways. Dropping them cuts their connections.
#[derive(Debug)]
pub struct Gateways {
    stop: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
}

impl Gateways {
    /// Starts them as the server does.
    pub async fn start(broker: &Broker) -> Result<Self, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let kafka = listen(KAFKA).await.map_err(|error| words(&error))?;
        let (stop, stopping) = watch::channel(false);
        let amqp = serve_amqp(broker, stopping.clone()).await?;
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: KAFKA };
        let endpoints = Endpoints { kafka: endpoint, amqp: None, kafka_tls: None, rack: None };
        let nodes = Nodes::alone(broker.node(), endpoints);
        let (groups, connections) = (Groups::start(broker), Connections::default());
        let admin = Admin::new(broker.clone(), groups.clone(), connections, Vec::new());
        let options = gateway_kafka::GatewayOptions::new(nodes, groups, admin);
        let serving = gateway_kafka::serve(kafka.into(), broker.clone(), options, stopping);
        let kafka = broker.vital(Task::KafkaListener, serving);
        Ok(Self { stop, serving: vec![kafka, amqp] })
    }

    /// Starts AMQP's gateway alone.
    pub async fn start_amqp(broker: &Broker) -> Result<Self, String> {
        let (stop, stopping) = watch::channel(false);
        let amqp = serve_amqp(broker, stopping).await?;
        Ok(Self { stop, serving: vec![amqp] })
    }

    /// Lets sessions finish their pending requests.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for serving in self.serving {
            // A panic is reported separately.
            let _ = serving.await;
        }
    }
}

async fn serve_amqp(
    broker: &Broker,
    stopping: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let listener = listen(AMQP).await.map_err(|error| words(&error))?;
    let topology = Topology::open(broker.clone()).await.map_err(|error| words(&error))?;
    let router = gateway_amqp::dead_letter::Router::new(&topology);
    broker.set_dead_letter_router(gateway_amqp::dead_letter::SCHEME, Arc::new(router));
    let [name, password] = USER.map(str::to_owned);
    let (settings, known) = (vec![SettingsUser { name, password }], topology.clone());
    let known = move |name: &str| known.vhost(name).is_some();
    let users = Users::open(broker.clone(), settings, known).await;
    let users = users.map_err(|error| words(&error))?;
    // Clients of a cluster are on other hosts.
    let options = gateway_amqp::GatewayOptions {
        plaintext_passwords: true,
        ..gateway_amqp::GatewayOptions::default()
    };
    let serving =
        gateway_amqp::serve(listener.into(), broker.clone(), topology, users, options, stopping);
    Ok(broker.vital(Task::AmqpListener, serving))
}

async fn listen(port: u16) -> io::Result<world::net::Listener> {
    Net::Simulated.listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
}

async fn connect(address: &str) -> io::Result<Stream> {
    let connected = Net::Simulated.connect(address).await;
    if connected.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        // turmoil assigns each attempt a new port and reuses none of these, and a node may refuse for long: it
        // does not shut down while its disk is full.
        sleep(REFUSED_PAUSE).await;
    }
    connected
}

/// The Kafka client's connector.
#[derive(Clone, Copy, Debug)]
struct Loopback;

impl Connect for Loopback {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let stream = connect(address).await?;
            Ok(Box::new(stream) as Box<dyn client::Stream>)
        })
    }
}

/// A connection with Kafka's protocol.
pub async fn kafka() -> io::Result<Pipeline> {
    Pipeline::open(&Loopback, &format!("127.0.0.1:{KAFKA}")).await
}

/// A client of the cluster.
pub async fn kafka_client() -> Result<client::Client, client::ClientError> {
    client::Client::connect(Loopback, &format!("127.0.0.1:{KAFKA}"), None).await
}

/// A connection with one channel with AMQP 0-9-1.
pub async fn amqp(mode: Mode) -> Result<Channel<TimedStream<Stream>>, client_amqp::AmqpError> {
    amqp_at("127.0.0.1", mode).await
}

/// As [`amqp`], to a host of the network.
pub async fn amqp_at(
    host: &str,
    mode: Mode,
) -> Result<Channel<TimedStream<Stream>>, client_amqp::AmqpError> {
    let stream = connect(&format!("{host}:{AMQP}")).await?;
    Channel::over(stream, client::connection::ANSWER_WITHIN, mode, USER).await
}
