//! Tokens as passwords, as RabbitMQ's clients send them, and their renewal.

use access_rules::Permissions;
use gateway_amqp::codec::fields::LongString;
use gateway_amqp::codec::methods::*;
use std::time::Duration;
use test_tokens::{AUDIENCE, ISSUER, Signer, claims, document};
use tokens::{KeySource, TokenOptions, Tokens};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use world::World;

use crate::harness::{Client, Node};

const ENDED: &str = "CONNECTION_FORCED - the client's credentials have expired";

struct TokenNode {
    node: Node,
    signer: Signer,
    _folder: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

impl TokenNode {
    async fn start() -> Self {
        let node = Node::start().await;
        let (signer, folder) = (Signer::p256("1"), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("keys.json");
        std::fs::write(&path, document(&[&signer])).expect("is written");
        let audiences = vec![AUDIENCE.to_owned()];
        let options = TokenOptions::new(ISSUER.into(), audiences, KeySource::File(path));
        let world = World::real();
        let tokens = Tokens::new(options, world.clock.clone());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(tokens.clone().follow(world, stopping));
        node.users.trust_tokens(tokens);
        let hash = passwords::hash_password("secret").expect("a hash");
        node.users.add("app", hash).await.expect("is made");
        node.users.allow("app", "/", Permissions::everything()).await.expect("is allowed");
        Self { node, signer, _folder: folder, _stop: stop }
    }

    fn token(&self, name: &str, ends_in: i64) -> String {
        self.signer.token(&claims(name, ends_in))
    }

    async fn client(&self, ends_in: i64) -> Client {
        let mut client = self.node.socket().await;
        client.log_in("whoever", &self.token("app", ends_in)).await;
        client.open().await;
        client
    }
}

async fn update(client: &mut Client, secret: &str) {
    let update = ConnectionUpdateSecret {
        new_secret: LongString(secret.as_bytes()),
        reason: "it ends",
        ..ConnectionUpdateSecret::default()
    };
    client.send(0, update).await;
}

#[tokio::test]
async fn token_as_password_logs_in_the_user_that_it_names() {
    let all = TokenNode::start().await;
    let mut client = all.client(300).await;
    client.open_channel(1).await;
    client.close().await;
    // Passwords still work.
    let mut client = all.node.socket().await;
    client.log_in("app", "secret").await;
    client.open().await;
    client.close().await;
    let refused = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
                   details see the broker logfile.";
    let other = Signer::p256("1").token(&claims("app", 300));
    for bad in [&all.token("app", -120), &other, "eyJ.a.b", &all.token("_operator", 300)] {
        let mut client = all.node.socket().await;
        client.log_in("app", bad).await;
        client.connection_closes(403, refused).await;
    }
    // A user without permissions may not even open a vhost.
    let mut client = all.node.socket().await;
    client.log_in("", &all.token("stranger", 300)).await;
    client.tune(0).await;
    let open = ConnectionOpen { virtual_host: "/", ..ConnectionOpen::default() };
    client.send(0, open).await;
    let text = "NOT_ALLOWED - access to vhost '/' refused for user 'stranger'";
    client.connection_closes(530, text).await;
}

#[tokio::test]
async fn connection_closes_when_its_token_expires_unless_renewed() {
    let all = TokenNode::start().await;
    let mut client = all.client(3).await;
    client.connection_closes(320, ENDED).await;

    let begun = Instant::now();
    let mut client = all.client(3).await;
    update(&mut client, &all.token("app", 300)).await;
    let came = client.method(0).await;
    assert!(matches!(came.method(), Method::ConnectionUpdateSecretOk(_)), "{:?}", came.method());
    sleep(Duration::from_secs(4).saturating_sub(begun.elapsed())).await;
    client.open_channel(1).await;
    let refused = "NOT_ALLOWED - New secret was refused by one of the backends";
    update(&mut client, &all.token("other", 300)).await;
    client.connection_closes(530, refused).await;
    let mut client = all.client(300).await;
    update(&mut client, "garbage").await;
    client.connection_closes(530, refused).await;
}
