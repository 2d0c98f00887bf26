//! EXTERNAL: clients that log in by their TLS client certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::Users;
use access_rules::Permissions;
use broker::{Broker, BrokerOptions};
use gateway::Ports;
use gateway::tls::ClientCertificates;
use gateway_amqp::GatewayOptions;
use gateway_amqp::codec::fields::{EncodedTable, LongString};
use gateway_amqp::codec::methods::*;
use passwords::hash_password;
use test_tls::{Authority, CertificateSubject, CertifiedKey, TlsStream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use topology::Topology;
use world::{Net, SimulatedDisk, World};

use crate::harness::{Client, client_properties};

const REFUSED: &str = "ACCESS_REFUSED - Login was refused using authentication mechanism EXTERNAL. \
                       For details see the broker logfile.";

/// A node with TLS and a user `app`.
struct Node {
    authority: Authority,
    clients: Authority,
    users: Users,
    address: SocketAddr,
    _broker: Broker,
    _stop: watch::Sender<bool>,
}

impl Node {
    async fn start(mapping: Option<&str>) -> Self {
        let options = BrokerOptions {
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
        let topology = Topology::open(broker.clone()).await.expect("opens");
        let known = topology.clone();
        let users = Users::open(broker.clone(), vec![], move |name| known.vhost(name).is_some());
        let users = users.await.expect("opens");
        if let Some(mapping) = mapping {
            users.trust_certificates(mapping.parse().expect("a mapping"));
        }
        users.add("app", hash_password("secret").expect("a hash")).await.expect("is made");
        users.allow("app", "/", Permissions::everything()).await.expect("is allowed");
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let (authority, clients) = (Authority::new(), Authority::new());
        let tls = authority.tls(&clients, ClientCertificates::Optional);
        let ports = Ports { plain: None, tls: Some((listener, tls)) };
        let (stop, stopping) = watch::channel(false);
        let options = GatewayOptions::default();
        let (served, known) = (broker.clone(), users.clone());
        tokio::spawn(gateway_amqp::serve(ports, served, topology, known, options, stopping));
        Self { authority, clients, users, address, _broker: broker, _stop: stop }
    }

    async fn client(&self, own: Option<&CertifiedKey>) -> Client<TlsStream<TcpStream>> {
        Client::over(self.authority.connect(self.address, own).await.expect("connects"))
    }

    async fn named(&self, common: &str) -> Client<TlsStream<TcpStream>> {
        self.client(Some(&self.clients.named(common))).await
    }
}

/// Logs in by EXTERNAL. Returns the mechanisms that the server offered.
async fn external(client: &mut Client<TlsStream<TcpStream>>, response: &[u8]) -> String {
    let came = client.start().await;
    let Method::ConnectionStart(start) = came.method() else { panic!("{:?}", came.method()) };
    let offered = String::from_utf8(start.mechanisms.0.to_vec()).expect("text");
    let properties = client_properties();
    let start_ok = ConnectionStartOk {
        client_properties: EncodedTable(&properties),
        mechanism: "EXTERNAL",
        response: LongString(response),
        locale: "en_US",
        ..ConnectionStartOk::default()
    };
    client.send(0, start_ok).await;
    offered
}

#[tokio::test]
async fn user_logs_in_by_its_client_certificate() {
    let node = Node::start(Some("cn")).await;
    for response in [&b""[..], b"app"] {
        let mut client = node.named("app").await;
        assert_eq!(external(&mut client, response).await, "PLAIN AMQPLAIN EXTERNAL");
        client.open().await;
        client.open_channel(1).await;
        client.close().await;
    }
    // A password is accepted too.
    let mut client = node.named("app").await;
    client.log_in("app", "secret").await;
    client.open().await;
    client.close().await;
    // Neither a deleted user nor an unknown one may log in.
    node.users.delete("app").await.expect("is deleted");
    for name in ["app", "nobody"] {
        let mut client = node.named(name).await;
        external(&mut client, b"").await;
        client.connection_closes(403, REFUSED).await;
    }
}

#[tokio::test]
async fn external_login_as_another_user_is_rejected() {
    let node = Node::start(Some("cn")).await;
    let mut client = node.named("app").await;
    external(&mut client, b"guest").await;
    client.connection_closes(403, REFUSED).await;
    // Without a certificate, without a usable name in it, or without a mapping, the mechanism is not offered.
    let unknown = "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'";
    let nobody = node.clients.pair(CertificateSubject::default());
    let operator = node.clients.named("_operator");
    for own in [None, Some(&nobody), Some(&operator)] {
        let mut client = node.client(own).await;
        assert_eq!(external(&mut client, b"").await, "PLAIN AMQPLAIN");
        client.connection_closes(503, unknown).await;
    }
    let node = Node::start(None).await;
    let mut client = node.named("app").await;
    assert_eq!(external(&mut client, b"").await, "PLAIN AMQPLAIN");
    client.connection_closes(503, unknown).await;
}

#[tokio::test]
async fn connection_closes_when_its_certificate_expires() {
    let node = Node::start(Some("san")).await;
    let lasts = Some(Duration::from_secs(3));
    let holder =
        CertificateSubject { dns: &["app"], ends_in: lasts, ..CertificateSubject::default() };
    let mut client = node.client(Some(&node.clients.pair(holder))).await;
    external(&mut client, b"").await;
    client.open().await;
    let text = "CONNECTION_FORCED - the client's credentials have expired";
    client.connection_closes(320, text).await;
}
