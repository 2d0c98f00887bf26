//! Clients that are identified by their certificates.

use std::time::Duration;

use access::Admission;
use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Rule, Verdict};
use axum::http::Method;
use gateway_http::LoginOptions;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use test_tls::{Authority, CertificateSubject, CertifiedKey};
use tokio::time::{Instant, sleep};

use crate::harness::{ReceivedResponse, SOON, Sender, Server, ask, basic, request};

const LOGIN: LoginOptions =
    LoginOptions { plain: Admission::Required, tls: Admission::Required, plaintext: false };

struct Clients {
    authority: Authority,
    clients: Authority,
}

impl Clients {
    async fn connect(&self, server: &Server, own: Option<&CertifiedKey>) -> Sender {
        let address = server.encrypted.expect("it encrypts");
        let stream = self.authority.connect(address, own).await.expect("connects");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a client");
        tokio::spawn(connection);
        sender
    }
}

async fn get(sender: &mut Sender, headers: &[(&str, &str)]) -> ReceivedResponse {
    ask(sender, request(Method::GET, "/metrics", headers, "")).await
}

#[tokio::test]
async fn certificate_identifies_a_client_unless_it_sends_a_password() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let tls = authority.tls(&clients, gateway::tls::ClientCertificates::Optional);
    let server = Server::encrypted(tls).await;
    let (_broker, users) = server.open(LOGIN).await;
    users.trust_certificates("cn".parse().expect("a mapping"));
    let all = Clients { authority, clients };
    let named = |name: &str| all.clients.named(name);

    let mut nobody = all.connect(&server, None).await;
    get(&mut nobody, &[]).await.is_problem(401, "not-logged-in");
    let mut operator = all.connect(&server, Some(&named("_operator"))).await;
    get(&mut operator, &[]).await.is_problem(401, "not-logged-in");
    let mut root = all.connect(&server, Some(&named("root"))).await;
    assert_eq!(get(&mut root, &[]).await.status, 200);
    // There is no user `seer`; rules for the name apply.
    let mut seer = all.connect(&server, Some(&named("seer"))).await;
    get(&mut seer, &[]).await.is_problem(403, "not-allowed");
    let rule = Rule {
        resource: Resource::Cluster,
        pattern: Pattern::Literal,
        name: CLUSTER.into(),
        principal: "User:seer".into(),
        host: "*".into(),
        action: Action::Describe,
        verdict: Verdict::Allow,
    };
    users.add_rules(vec![rule]).await.expect("is added");
    assert_eq!(get(&mut seer, &[]).await.status, 200);
    let session = ask(&mut seer, request(Method::GET, "/v1/session", &[], "")).await;
    assert_eq!((session.status.as_u16(), &session.json()["user"]), (200, &"seer".into()));
    // A password takes precedence, whether right or wrong.
    let said = basic("root", "toor");
    assert_eq!(get(&mut nobody, &[("authorization", &said)]).await.status, 200);
    let said = basic("root", "wrong");
    get(&mut root, &[("authorization", &said)]).await.is_problem(401, "not-logged-in");
    // Browsers send certificates for pages of other sites, too.
    let across = [("sec-fetch-site", "cross-site"), ("content-type", "application/json")];
    let topic = "{\"name\":\"t\"}";
    let asked = request(Method::POST, "/v1/topics", &across, topic);
    ask(&mut root, asked).await.is_problem(403, "cross-site");
}

#[tokio::test]
async fn expired_certificate_is_rejected() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let tls = authority.tls(&clients, gateway::tls::ClientCertificates::Required);
    let server = Server::encrypted(tls).await;
    let (_broker, users) = server.open(LOGIN).await;
    users.trust_certificates("cn".parse().expect("a mapping"));
    let all = Clients { authority, clients };
    let ends_in = Some(Duration::from_secs(3));
    let holder = CertificateSubject { common: &["root"], ends_in, ..CertificateSubject::default() };
    let mut client = all.connect(&server, Some(&all.clients.pair(holder))).await;
    assert_eq!(get(&mut client, &[]).await.status, 200);
    let begun = Instant::now();
    let refused = loop {
        let answer = get(&mut client, &[]).await;
        if answer.status != 200 {
            break answer;
        }
        assert!(begun.elapsed() < SOON, "it goes on for ever");
        sleep(Duration::from_millis(20)).await;
    };
    refused.is_problem(401, "not-logged-in");
}
