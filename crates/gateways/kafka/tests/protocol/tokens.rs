//! OAUTHBEARER: clients that log in by a token of another issuer.

use std::time::Duration;

use access::Admission;
use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use test_tokens::{AUDIENCE, ISSUER, Signer, Value, claims, document, json, unsigned, with_secret};
use tokens::{KeySource, TokenOptions, Tokens};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use world::World;

use crate::harness::*;

struct TokenNode {
    node: Node,
    signer: Signer,
    _folder: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

impl TokenNode {
    async fn start(session_max: Option<Duration>) -> Self {
        let node = Node::with(|options| {
            options.login.plain = Admission::Required;
            options.login.session_max = session_max;
        })
        .await;
        let (signer, folder) = (Signer::p256("1"), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("keys.json");
        std::fs::write(&path, document(&[&signer])).expect("is written");
        let audiences = vec![AUDIENCE.to_owned()];
        let options = TokenOptions::new(ISSUER.into(), audiences, KeySource::File(path));
        let world = World::real();
        let tokens = Tokens::new(options, world.clock.clone());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(tokens.clone().follow(world, stopping));
        node.users.as_ref().expect("there are").trust_tokens(tokens);
        Self { node, signer, _folder: folder, _stop: stop }
    }

    fn token(&self, name: &str, ends_in: i64) -> String {
        self.signer.token(&claims(name, ends_in))
    }
}

fn message(token: &str) -> Vec<u8> {
    format!("n,,\u{1}auth=Bearer {token}\u{1}\u{1}").into_bytes()
}

impl Client {
    async fn bears(&mut self, message: &[u8]) -> SaslAuthenticateResponse {
        let handshake = SaslHandshakeRequest::default().with_mechanism(text("OAUTHBEARER"));
        let offered = self.ask(1, &handshake).await;
        assert_eq!(offered.error_code, 0, "{:?}", offered.mechanisms);
        self.goes_on(message).await
    }

    async fn goes_on(&mut self, message: &[u8]) -> SaslAuthenticateResponse {
        let said = SaslAuthenticateRequest::default().with_auth_bytes(message.to_vec().into());
        self.ask(2, &said).await
    }

    async fn topics(&mut self) -> Vec<String> {
        let metadata = self.ask(12, &MetadataRequest::default().with_topics(None)).await;
        metadata.topics.iter().map(|it| it.name.as_ref().expect("a name").to_string()).collect()
    }
}

#[tokio::test]
async fn token_logs_its_subject_in_until_it_expires() {
    let all = TokenNode::start(None).await;
    let mut root = all.node.client().await;
    let said = root.bears(&message(&all.token("root", 300))).await;
    assert_eq!((said.error_code, said.auth_bytes.len()), (0, 0));
    assert!((200_000..=300_000).contains(&said.session_lifetime_ms), "{said:?}");
    root.create("t", 1, &[]).await;
    // The name is no user, and access rules apply to it.
    let mut client = all.node.client().await;
    let said = b"n,a=ap=2Cp,\x01host=h\x01auth=bearer ".to_vec();
    let said = [&said[..], all.token("ap,p", 300).as_bytes(), b"\x01\x01"].concat();
    assert_eq!(client.bears(&said).await.error_code, 0);
    assert!(client.topics().await.is_empty());
    let rule = Rule {
        resource: Resource::Topic,
        pattern: Pattern::Literal,
        name: "t".into(),
        principal: "User:ap,p".into(),
        host: "*".into(),
        action: Action::Describe,
        verdict: Verdict::Allow,
    };
    let users = all.node.users.as_ref().expect("there are");
    users.add_rules(vec![rule]).await.expect("is added");
    assert_eq!(client.topics().await, ["t"]);
}

#[tokio::test]
async fn refused_token_is_answered_in_two_steps() {
    let all = TokenNode::start(None).await;
    let other = Signer::p256("1");
    let with = |claim: &str, value: Value| {
        let mut claims = claims("root", 300);
        claims[claim] = value;
        all.signer.token(&claims)
    };
    let header = json!({"alg": "HS256", "kid": "1"});
    let bad = [
        message(&all.token("root", -120)),
        message(&with("aud", json!("others"))),
        message(&with("iss", json!("others"))),
        message(&other.token(&claims("root", 300))),
        message(&Signer::p256("2").token(&claims("root", 300))),
        message(&unsigned(&json!({"alg": "none", "kid": "1"}), &claims("root", 300))),
        message(&with_secret(&all.signer.public_bytes(), &header, &claims("root", 300))),
        message(&all.token("_operator", 300)),
        message(&all.token("", 300)),
        message(&"x".repeat(50_000)),
        message("garbage"),
        message(""),
        b"n,a=app,\x01auth=Bearer ".to_vec(),
        [b"n,a=app,\x01auth=Bearer ", all.token("root", 300).as_bytes(), b"\x01\x01"].concat(),
        b"\xff\xfe".to_vec(),
        Vec::new(),
    ];
    for bad in bad {
        let mut client = all.node.client().await;
        let said = client.bears(&bad).await;
        assert_eq!(
            (said.error_code, &said.auth_bytes[..]),
            (0, &br#"{"status":"invalid_token"}"#[..])
        );
        assert_eq!(said.session_lifetime_ms, 0);
        let refused = client.goes_on(b"\x01").await;
        assert_eq!(refused.error_code, ResponseError::SaslAuthenticationFailed.code());
        let told = refused.error_message.expect("it says why");
        assert!(told.contains("OAUTHBEARER") && !told.contains("eyJ"), "{told:?}");
        client.is_cut_off().await;
    }
    // Any other reply, or a message without SASL, is refused as well.
    let mut client = all.node.client().await;
    client.bears(&message("x")).await;
    let refused = client.goes_on(&message(&all.token("root", 300))).await;
    assert_eq!(refused.error_code, ResponseError::IllegalSaslState.code());
    client.is_cut_off().await;
    let mut client = all.node.client().await;
    client.bears(&message("x")).await;
    client.send_bytes(&frame(1, 12, &MetadataRequest::default())).await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn session_ends_with_its_token_unless_the_same_user_renews_it() {
    let all = TokenNode::start(None).await;
    let mut client = all.node.client().await;
    let begun = Instant::now();
    let said = client.bears(&message(&all.token("root", 3))).await;
    assert!((1..=3_000).contains(&said.session_lifetime_ms), "{said:?}");
    client.topics().await;
    let said = client.bears(&message(&all.token("root", 300))).await;
    assert_eq!(said.error_code, 0);
    sleep(Duration::from_secs(4).saturating_sub(begun.elapsed())).await;
    client.topics().await;
    // A session cannot continue as another user.
    let said = client.bears(&message(&all.token("other", 300))).await;
    assert_eq!(said.error_code, ResponseError::SaslAuthenticationFailed.code());
    client.is_cut_off().await;

    let mut client = all.node.client().await;
    client.bears(&message(&all.token("root", 2))).await;
    sleep(Duration::from_secs(3)).await;
    client.send_bytes(&frame(1, 12, &MetadataRequest::default())).await;
    client.is_cut_off().await;
}

#[tokio::test]
async fn session_lifetime_is_capped_by_the_nodes_maximum() {
    let all = TokenNode::start(Some(Duration::from_secs(60))).await;
    let mut client = all.node.client().await;
    let said = client.bears(&message(&all.token("root", 300))).await;
    assert_eq!(said.session_lifetime_ms, 60_000);
    let mut client = all.node.client().await;
    let said = client.bears(&message(&all.token("root", 30))).await;
    assert!((1..=30_000).contains(&said.session_lifetime_ms), "{said:?}");
}

#[tokio::test]
async fn tokens_are_not_offered_without_an_issuer() {
    let node = Node::with(|options| options.login.plain = Admission::Required).await;
    let mut client = node.client().await;
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("OAUTHBEARER"));
    let refused = client.ask(1, &handshake).await;
    assert_eq!(refused.error_code, ResponseError::UnsupportedSaslMechanism.code());
    client.is_cut_off().await;
}
