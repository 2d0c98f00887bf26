//! A node and clients for the tests.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{Admission, Quotas, SettingsUser, Users};
use admin::Admin;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use broker::{Broker, BrokerOptions};
use bytes::Bytes;
use consumer_groups::Groups;
use gateway::{Connections, Ports, Tls};
use gateway_http::{
    FrontEnd, GatewayOptions, HttpPorts, ListeningPort, LoginOptions, Node, ProcessSeen,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nodes::{Endpoint, Endpoints, Nodes};
use rabbitmq::dead_letter::{Router, SCHEME};
use serde_json::Value;
use tasks::Failure;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use topology::Topology;
use world::{Net, OsEntropy, SimulatedDisk, World};

/// Longer than any step of these tests, shorter than a hang.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The gateway, in front of a node that may not be open yet.
pub(crate) struct Server {
    pub(crate) front: FrontEnd,
    pub(crate) failure: Failure,
    pub(crate) address: SocketAddr,
    /// The encrypted port, if there is one.
    pub(crate) encrypted: Option<SocketAddr>,
    pub(crate) metrics: SocketAddr,
    pub(crate) connections: Connections,
    pub(crate) disk: Arc<SimulatedDisk>,
    /// Address of the Kafka listener, which serves as long as the sender lives.
    kafka: OnceLock<(SocketAddr, watch::Sender<bool>)>,
    /// State of the AMQP gateway, for when it is started.
    node: OnceLock<(Broker, Topology, Users)>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), change).await
    }

    /// With an encrypted port as well.
    pub(crate) async fn encrypted(tls: Tls) -> Self {
        Self::start_with(SocketAddr::from(([127, 0, 0, 1], 0)), Some(tls), |_| {}).await
    }

    pub(crate) async fn start_at(
        any_port: SocketAddr,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        Self::start_with(any_port, None, change).await
    }

    async fn start_with(
        any_port: SocketAddr,
        tls: Option<Tls>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        let connections = Connections::default();
        let mut options =
            GatewayOptions { connections: connections.clone(), ..GatewayOptions::default() };
        change(&mut options);
        let listen = || async { Net::Kernel.listen(any_port).await.expect("binds") };
        let (http, metrics) = (listen().await, listen().await);
        let bound = [&http, &metrics].map(|it| it.local_addr().expect("is bound"));
        let failure = Failure::new();
        let front = FrontEnd::new(options, failure.clone(), Arc::new(OsEntropy));
        let tls = match tls {
            Some(tls) => Some((listen().await, tls)),
            None => None,
        };
        let encrypted = tls.as_ref().map(|(it, _)| it.local_addr().expect("is bound"));
        let http = Ports { plain: Some(http), tls };
        let ports = HttpPorts { http, metrics: Some(metrics) };
        let serving = tokio::spawn(gateway_http::serve(ports, front.clone()));
        let disk = Arc::new(SimulatedDisk::new());
        let [address, metrics] = bound;
        let (kafka, node) = (OnceLock::new(), OnceLock::new());
        Self {
            front,
            failure,
            address,
            encrypted,
            metrics,
            connections,
            disk,
            kafka,
            node,
            serving,
        }
    }

    /// Opens the server's own node.
    pub(crate) async fn open(&self, login: LoginOptions) -> (Broker, Users) {
        self.open_of(1, login).await
    }

    /// Opens the server's own node with this many shards.
    async fn open_of(&self, shards: u32, login: LoginOptions) -> (Broker, Users) {
        let options = BrokerOptions {
            shards: Some(shards),
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let world = World::on(Arc::clone(&self.disk) as _);
        let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
        let users = self.open_with(broker.clone(), login).await;
        (broker, users)
    }

    pub(crate) async fn open_with(&self, broker: Broker, login: LoginOptions) -> Users {
        let root = SettingsUser { name: "root".to_owned(), password: "toor".to_owned() };
        let topology = Topology::open(broker.clone()).await.expect("the topology opens");
        let known = topology.clone();
        let known = move |name: &str| known.has_vhost(name);
        let users = Users::open(broker.clone(), vec![root], known).await.expect("are read");
        let ServedKafka { admin, nodes, address, stop } = ServedKafka::of(&broker).await;
        self.kafka.set((address, stop)).expect("a server has one node");
        let node = (broker.clone(), topology.clone(), users.clone());
        self.node.set(node).expect("a server has one node");
        let quotas = Quotas::open(broker.clone()).expect("quotas are read");
        self.front.open(Node {
            admin,
            nodes,
            broker,
            topology: Some(topology),
            listening: vec![ListeningPort { protocol: "amqp", address: self.address }],
            users: Some(users.clone()),
            quotas,
            login,
            version: "0.0.0-test",
            tls: None,
            process: ProcessSeen::default,
            spans: None,
        });
        users
    }

    /// Address of the node's Kafka listener, which needs no log-in.
    pub(crate) fn kafka(&self) -> SocketAddr {
        self.kafka.get().expect("the node is open").0
    }

    /// Serves AMQP as well, until the returned sender is dropped.
    pub(crate) async fn serve_amqp(&self) -> (SocketAddr, watch::Sender<bool>) {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let (stop, stopping) = watch::channel(false);
        let (broker, topology, users) = self.node.get().expect("the node is open").clone();
        broker.set_dead_letter_router(SCHEME, Arc::new(Router::new(&topology)));
        let connections = self.connections.clone();
        let options = gateway_amqp::GatewayOptions { connections, ..Default::default() };
        tokio::spawn(gateway_amqp::serve(
            listener.into(),
            broker,
            topology,
            users,
            options,
            stopping,
        ));
        (address, stop)
    }

    pub(crate) async fn get(&self, path: &str) -> ReceivedResponse {
        get(self.address, path, &[]).await
    }

    /// As this user.
    pub(crate) async fn get_as(&self, path: &str, name: &str, password: &str) -> ReceivedResponse {
        get(self.address, path, &[("authorization", &basic(name, password))]).await
    }

    pub(crate) async fn shutdown(self) {
        self.front.stop();
        self.serving.await.expect("ends well");
    }
}

/// A Kafka listener of the node, and the operations of operators, as a server has them.
struct ServedKafka {
    admin: Admin,
    nodes: Nodes,
    address: SocketAddr,
    /// Serves the node as long as it lives.
    stop: watch::Sender<bool>,
}

impl ServedKafka {
    async fn of(broker: &Broker) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let kafka = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
        let endpoints = Endpoints { kafka, amqp: None, kafka_tls: None, rack: None };
        let nodes =
            Nodes::alone(broker.node(), endpoints).with_operator_token("token of operators");
        let (groups, connections) = (Groups::start(broker), Connections::default());
        let admin = Admin::new(broker.clone(), groups.clone(), connections, Vec::new());
        let options = gateway_kafka::GatewayOptions::new(nodes.clone(), groups, admin.clone());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(gateway_kafka::serve(listener.into(), broker.clone(), options, stopping));
        Self { admin, nodes, address, stop }
    }
}

/// A node without log-in.
pub(crate) async fn open_node() -> (Server, Broker) {
    let server = Server::start(|_| {}).await;
    let (broker, _) = server.open(LoginOptions::default()).await;
    (server, broker)
}

/// A node with three shards.
pub(crate) async fn open_node_of_three_shards() -> (Server, Broker) {
    let server = Server::start(|_| {}).await;
    let (broker, _) = server.open_of(3, LoginOptions::default()).await;
    (server, broker)
}

/// A node with log-in; `root` may do everything.
pub(crate) async fn safe_node() -> (Server, Broker, Users) {
    let server = Server::start(|_| {}).await;
    let login = LoginOptions { plain: Admission::Required, ..LoginOptions::default() };
    let (broker, users) = server.open(login).await;
    (server, broker, users)
}

pub(crate) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
}

/// A complete response.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedResponse {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.to_str().expect("text")
    }

    /// Checks that the response is this problem; returns its document.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, slug: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        let document = self.json();
        assert_eq!(document["type"], format!("/problems/{slug}"));
        assert_eq!(document["status"], status);
        assert_eq!(document["instance"], self.header("x-request-id"));
        assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        document
    }
}

pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

/// Opens a new connection.
pub(crate) async fn connect(address: SocketAddr) -> Sender {
    let stream = TcpStream::connect(address).await.expect("connects");
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a client");
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).expect("a request")
}

pub(crate) async fn ask(sender: &mut Sender, request: Request<Full<Bytes>>) -> ReceivedResponse {
    let response = timeout(SOON, sender.send_request(request)).await.expect("in time");
    whole(response.expect("an answer")).await
}

pub(crate) async fn whole(response: Response<Incoming>) -> ReceivedResponse {
    let (head, body) = response.into_parts();
    let body = timeout(SOON, body.collect()).await.expect("in time").expect("whole").to_bytes();
    ReceivedResponse { status: head.status, headers: head.headers, body }
}

pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> ReceivedResponse {
    ask(&mut connect(address).await, request(Method::GET, path, headers, "")).await
}
