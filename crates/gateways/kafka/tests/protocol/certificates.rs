//! Authentication by certificates, over real TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::{Admission, SettingsUser, Users};
use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use admin::Admin;
use broker::{Broker, BrokerOptions};
use client::Pipeline;
use consumer_groups::Groups;
use gateway::tls::ClientCertificates;
use gateway::{Connections, Ports};
use gateway_kafka::limits::LOGIN_FRAME_BYTES_MAX;
use gateway_kafka::{GatewayOptions, LoginOptions};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, MetadataRequest, SaslAuthenticateRequest,
    SaslHandshakeRequest,
};
use nodes::{Endpoint, Endpoints, Nodes};
use test_tls::{Authority, CertificateSubject, CertifiedKey, TlsStream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use world::{Net, SimulatedDisk, World};

use crate::harness::{SOON, new_topic, text};

type Client = Pipeline<TlsStream<TcpStream>>;

/// A node with TLS that trusts certificates of `clients`, and has a user `root`.
struct Node {
    authority: Authority,
    clients: Authority,
    users: Users,
    address: SocketAddr,
    _broker: Broker,
    _stop: watch::Sender<bool>,
}

impl Node {
    async fn start(mapping: &str, asked: ClientCertificates) -> Self {
        Self::with(mapping, asked, None).await
    }

    async fn with(mapping: &str, asked: ClientCertificates, session_max: Option<Duration>) -> Self {
        let options = BrokerOptions {
            journal: journal::Options { segment_bytes: 8 << 20, ..journal::Options::default() },
            ..BrokerOptions::default()
        };
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
        let root = SettingsUser { name: "root".to_owned(), password: "toor".to_owned() };
        let users = Users::open(broker.clone(), vec![root], |_| true).await.expect("are read");
        users.trust_certificates(mapping.parse().expect("a mapping"));
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Net::Kernel.listen(any_port).await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let at = Endpoint { host: "localhost".to_owned(), port: address.port() };
        let endpoints =
            Endpoints { kafka: at.clone(), amqp: None, kafka_tls: Some(at), rack: None };
        let nodes = Nodes::alone(broker.node(), endpoints);
        let (groups, connections) = (Groups::start(&broker), Connections::default());
        let admin = Admin::new(broker.clone(), groups.clone(), connections, Vec::new());
        let mut options = GatewayOptions::new(nodes, groups, admin);
        options.users = Some(users.clone());
        let (plain, tls) = (Admission::Required, Admission::Required);
        options.login = LoginOptions { plain, tls, plaintext: false, session_max };
        let (authority, clients) = (Authority::new(), Authority::new());
        let tls = Some((listener, authority.tls(&clients, asked)));
        let (stop, stopping) = watch::channel(false);
        let ports = Ports { plain: None, tls };
        tokio::spawn(gateway_kafka::serve(ports, broker.clone(), options, stopping));
        Self { authority, clients, users, address, _broker: broker, _stop: stop }
    }

    async fn allow(&self, user: &str, action: Action, resource: Resource, name: &str) {
        let rule = Rule {
            resource,
            pattern: Pattern::Literal,
            name: name.into(),
            principal: format!("User:{user}"),
            host: "*".into(),
            action,
            verdict: Verdict::Allow,
        };
        self.users.add_rules(vec![rule]).await.expect("is added");
    }

    async fn client(&self, own: Option<&CertifiedKey>) -> Client {
        let stream = self.authority.connect(self.address, own).await.expect("connects");
        Pipeline::over(stream).patient_for(SOON)
    }

    async fn named(&self, common: &str) -> Client {
        self.client(Some(&self.clients.named(common))).await
    }
}

/// Names of topics that the client sees; `None` if it gets no response.
async fn topics(client: &mut Client) -> Option<Vec<String>> {
    let all = MetadataRequest::default().with_topics(None);
    let metadata = client.call(12, &all).await.ok()?;
    Some(metadata.topics.iter().filter_map(|it| Some(it.name.as_ref()?.to_string())).collect())
}

async fn create(client: &mut Client, topic: &str) -> i16 {
    let topics = vec![new_topic(topic, 1, &[])];
    let request = CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5000);
    client.call(7, &request).await.expect("is answered").topics[0].error_code
}

async fn log_in(client: &mut Client, message: &str) -> i16 {
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(client.call(1, &handshake).await.expect("is answered").error_code, 0);
    let said = message.as_bytes().to_vec().into();
    let said = SaslAuthenticateRequest::default().with_auth_bytes(said);
    client.call(2, &said).await.expect("is answered").error_code
}

#[tokio::test]
async fn client_has_the_rights_of_its_certificate_name() {
    let node = Node::start("dn", ClientCertificates::Required).await;
    let pair = node.clients.pair(CertificateSubject {
        common: &["app"],
        organization: Some("Postroad, Inc"),
        ..CertificateSubject::default()
    });
    let name = "CN=app,O=Postroad\\, Inc";
    node.allow(name, Action::Create, Resource::Topic, "mine").await;
    let mut client = node.client(Some(&pair)).await;
    assert_eq!(create(&mut client, "mine").await, 0);
    let refused = ResponseError::TopicAuthorizationFailed.code();
    assert_eq!(create(&mut client, "other").await, refused);
    // The name is no user, and changes of its rules apply at once.
    assert!(!node.users.exists(name));
    assert_eq!(topics(&mut client).await, Some(vec![]));
    node.allow(name, Action::Describe, Resource::Topic, "mine").await;
    assert_eq!(topics(&mut client).await, Some(vec!["mine".to_owned()]));
    // Another name of the same authority has other rights.
    let mut other = node.named("app").await;
    assert_eq!(topics(&mut other).await, Some(vec![]));
}

#[tokio::test]
async fn missing_expired_and_foreign_certificates_are_refused() {
    let node = Node::start("cn", ClientCertificates::Required).await;
    let ended = node.clients.pair(CertificateSubject {
        common: &["app"],
        has_ended: true,
        ..CertificateSubject::default()
    });
    let others = Authority::new().named("app");
    for own in [Some(&ended), Some(&others), None] {
        // The refusal comes with the handshake, or with the first read.
        let Ok(stream) = node.authority.connect(node.address, own).await else { continue };
        let mut client = Pipeline::over(stream).patient_for(SOON);
        assert!(client.call(3, &crate::sessions::versions_request()).await.is_err());
    }
    let mut good = node.named("app").await;
    assert_eq!(topics(&mut good).await, Some(vec![]));
}

#[tokio::test]
async fn certificate_without_a_valid_name_requires_a_login() {
    let long = "x".repeat(300);
    let node = Node::start("cn", ClientCertificates::Optional).await;
    let hostile: [&[&str]; 6] =
        [&["_operator"], &["*"], &["a\u{1b}[31m"], &["a\0b"], &[&long], &[]];
    for common in hostile {
        let pair =
            node.clients.pair(CertificateSubject { common, ..CertificateSubject::default() });
        let mut client = node.client(Some(&pair)).await;
        // Only ApiVersions is answered, as for every client.
        client.call(0, &ApiVersionsRequest::default()).await.expect("is answered");
        assert_eq!(topics(&mut client).await, None, "{common:?}");
        let mut client = node.client(Some(&pair)).await;
        assert_eq!(log_in(&mut client, "\0root\0toor").await, 0);
        assert_eq!(topics(&mut client).await, Some(vec![]));
    }
    let mut without = node.client(None).await;
    assert_eq!(topics(&mut without).await, None);
    let rules = Node::start("RULE:^CN=([a-z]+),O=Ours$/$1/", ClientCertificates::Required).await;
    let mut foreign = rules.named("root").await;
    assert_eq!(topics(&mut foreign).await, None);
    // A name that looks like two attributes does not match.
    let mut hostile = rules.named("root,O=Ours").await;
    assert_eq!(topics(&mut hostile).await, None);
    let ours = CertificateSubject {
        common: &["root"],
        organization: Some("Ours"),
        ..CertificateSubject::default()
    };
    let mut ours = rules.client(Some(&rules.clients.pair(ours))).await;
    assert_eq!(create(&mut ours, "t").await, 0);
}

#[tokio::test]
async fn login_before_other_requests_overrides_the_certificate() {
    let node = Node::start("cn", ClientCertificates::Required).await;
    let mut client = node.named("app").await;
    // ApiVersions does not fix the user.
    client.call(0, &ApiVersionsRequest::default()).await.expect("is answered");
    assert_eq!(log_in(&mut client, "\0root\0toor").await, 0);
    assert_eq!(create(&mut client, "t").await, 0, "root may");

    // After another request, the user is fixed.
    let mut client = node.named("app").await;
    assert_eq!(topics(&mut client).await, Some(vec![]));
    assert_ne!(log_in(&mut client, "\0root\0toor").await, 0);
    assert_eq!(topics(&mut client).await, None, "the connection is closed");
    // After a failed login, the certificate does not count any more.
    let mut client = node.named("root").await;
    assert_ne!(log_in(&mut client, "\0root\0wrong").await, 0);
    assert_eq!(topics(&mut client).await, None);
}

#[tokio::test]
async fn session_ends_with_its_certificate_and_at_the_maximum_lifetime() {
    let node = Node::start("cn", ClientCertificates::Required).await;
    let begun = Instant::now();
    // Certificates end at a full second.
    let lasts = Duration::from_secs(3);
    let holder = CertificateSubject {
        common: &["root"],
        ends_in: Some(lasts),
        ..CertificateSubject::default()
    };
    let mut client = node.client(Some(&node.clients.pair(holder))).await;
    while topics(&mut client).await.is_some() {
        assert!(begun.elapsed() < SOON, "it goes on for ever");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() > lasts / 2, "{:?}", begun.elapsed());

    let lasts = Duration::from_secs(1);
    let node = Node::with("cn", ClientCertificates::Required, Some(lasts)).await;
    let begun = Instant::now();
    let mut client = node.named("root").await;
    while topics(&mut client).await.is_some() {
        assert!(begun.elapsed() < SOON, "it goes on for ever");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() >= lasts, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn client_with_a_certificate_may_begin_with_a_large_request() {
    let node = Node::start("cn", ClientCertificates::Required).await;
    let many = vec!["a-name-that-takes-some-room"; LOGIN_FRAME_BYTES_MAX / 16];
    let mut client = node.named("root").await;
    client.call(9, &client::requests::metadata(many.iter().copied())).await.expect("is answered");
}
