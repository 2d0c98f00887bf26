//! A node: a broker on a disk in memory, with the gateway on a free port.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use access::{Quotas, SettingsUser, Users};
use broker::{Broker, BrokerOptions};
use gateway_amqp::GatewayOptions;
use gateway_amqp::dead_letter::{Router, SCHEME};
use gateway_amqp::operations::Administration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use topology::Topology;
use world::{Net, SimulatedDisk, World};

use super::Client;

pub(crate) struct Node {
    pub(crate) broker: Broker,
    pub(crate) administration: Administration,
    pub(crate) users: Users,
    pub(crate) quotas: Quotas,
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::on(Arc::new(SimulatedDisk::new()), change).await
    }

    /// Starts a node with users in its settings.
    pub(crate) async fn with_users(users: Vec<SettingsUser>) -> Self {
        Self::start_on(Arc::new(SimulatedDisk::new()), users, |_| {}).await
    }

    /// Starts a node on a disk that another node may have used.
    pub(crate) async fn on(
        disk: Arc<SimulatedDisk>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        Self::start_on(disk, Vec::new(), change).await
    }

    pub(crate) async fn start_on(
        disk: Arc<SimulatedDisk>,
        users: Vec<SettingsUser>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        let options = BrokerOptions {
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let broker =
            Broker::open(World::on(disk), Path::new("/data"), options).await.expect("opens");
        Self::serve(broker, users, change).await
    }

    /// Starts a gateway on an existing broker.
    pub(crate) async fn serve(
        broker: Broker,
        users: Vec<SettingsUser>,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Self {
        let topology = Topology::open(broker.clone()).await.expect("opens");
        let known = topology.clone();
        let users = Users::open(broker.clone(), users, move |name| known.vhost(name).is_some());
        let users = users.await.expect("opens");
        broker.set_dead_letter_router(SCHEME, Arc::new(Router::new(&topology)));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let quotas = Quotas::open(broker.clone()).expect("quotas are read");
        let mut options = GatewayOptions { quotas: quotas.clone(), ..GatewayOptions::default() };
        change(&mut options);
        let (stop, stopping) = watch::channel(false);
        let serving = gateway_amqp::serve(
            listener.into(),
            broker.clone(),
            topology.clone(),
            users.clone(),
            options,
            stopping,
        );
        let serving = tokio::spawn(serving);
        let administration = Administration::new(topology, users.clone());
        Self { broker, administration, users, quotas, address, stop, serving }
    }

    /// Shuts down as a server does.
    pub(crate) async fn shutdown(self) {
        self.stop.send_replace(true);
        self.serving.await.expect("ends well");
        self.broker.shutdown().await;
    }

    /// Connects a socket and sends nothing.
    pub(crate) async fn socket(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.expect("connects"))
    }

    /// Connects a client with a small receive buffer.
    pub(crate) async fn client_with_small_window(&self) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("is set");
        let mut client = Client::new(socket.connect(self.address).await.expect("connects"));
        client.log_in("guest", "guest").await;
        client.open().await;
        client
    }

    /// Opens a connection.
    pub(crate) async fn connection(&self) -> Client {
        let mut client = self.socket().await;
        client.log_in("guest", "guest").await;
        client.open().await;
        client
    }

    /// Opens a connection with channel 1.
    pub(crate) async fn client(&self) -> Client {
        let mut client = self.connection().await;
        client.open_channel(1).await;
        client
    }

    /// Asserts that another client is served as usual.
    pub(crate) async fn serves_other_clients(&self) {
        let mut client = self.client().await;
        let declared = client.declare_exclusive().await;
        client.publish(1, "", &declared, b"well").await;
        let (_, body) = client.get(1, &declared).await.expect("it is there");
        assert_eq!(body, b"well");
        client.close().await;
    }
}

pub(crate) fn user(name: &str, password: &str) -> SettingsUser {
    SettingsUser { name: name.into(), password: password.into() }
}
