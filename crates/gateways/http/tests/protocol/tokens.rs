//! `Authorization: Bearer`: tokens of an external issuer.

use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Rule, Verdict};
use test_tokens::{AUDIENCE, ISSUER, Signer, claims, document, json, unsigned};
use tokens::{KeySource, TokenOptions, Tokens};
use tokio::sync::watch;
use world::World;

use crate::harness::{ReceivedResponse, Server, get, safe_node};

async fn bearing(server: &Server, token: &str) -> ReceivedResponse {
    let said = format!("Bearer {token}");
    get(server.address, "/metrics", &[("authorization", &said)]).await
}

#[tokio::test]
async fn valid_bearer_token_identifies_the_client_and_others_are_rejected() {
    let (server, _broker, users) = safe_node().await;
    let (signer, folder) = (Signer::rsa("1"), tempfile::tempdir().expect("a folder"));
    let token = signer.token(&claims("root", 300));
    let unknown = bearing(&server, &token).await.is_problem(401, "not-logged-in");
    assert!(unknown["detail"].as_str().is_some_and(|it| it.contains("by token")), "{unknown}");

    let path = folder.path().join("keys.json");
    std::fs::write(&path, document(&[&signer])).expect("is written");
    let source = KeySource::File(path);
    let options = TokenOptions::new(ISSUER.into(), vec![AUDIENCE.to_owned()], source);
    let world = World::real();
    let tokens = Tokens::new(options, world.clock.clone());
    let (_stop, stopping) = watch::channel(false);
    tokio::spawn(tokens.clone().follow(world, stopping));
    users.trust_tokens(tokens);
    assert_eq!(bearing(&server, &token).await.status, 200);
    let lower = format!("bearer {token}");
    assert_eq!(get(server.address, "/metrics", &[("authorization", &lower)]).await.status, 200);

    let seer = signer.token(&claims("seer", 300));
    bearing(&server, &seer).await.is_problem(403, "not-allowed");
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
    assert_eq!(bearing(&server, &seer).await.status, 200);

    let others = Signer::rsa("1").token(&claims("root", 300));
    let none = unsigned(&json!({"alg": "none", "kid": "1"}), &claims("root", 300));
    let operator = signer.token(&claims("_operator", 300));
    let ended = signer.token(&claims("root", -120));
    for bad in [&others, &none, &operator, &ended, "", "a.b.c", "token of operators"] {
        let refused = bearing(&server, bad).await;
        let document = refused.is_problem(401, "not-logged-in");
        assert!(!document.to_string().contains("eyJ"), "{document}");
    }
}
