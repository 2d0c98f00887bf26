use super::*;

fn policy(pattern: &str, priority: i64, definition: serde_json::Value) -> PolicyDefinition {
    let definition = serde_json::from_value(definition).expect("a definition");
    PolicyDefinition { pattern: pattern.to_owned(), apply_to: ApplyTo::All, priority, definition }
}

impl Node {
    async fn set(&self, scope: PolicyScope, name: &str, policy: PolicyDefinition) {
        self.vhost.set_policy(scope, name, policy).await.expect("the policy is set");
    }
}

#[tokio::test]
async fn policy_applies_to_existing_and_later_queues() {
    let node = open().await;
    let before = node.queue("app.before").await;
    let other = node.queue("other").await;
    let wanted = serde_json::json!({"message-ttl": 5000, "dead-letter-exchange": "dlx"});
    node.set(PolicyScope::User, "ttl", policy("^app\\.", 0, wanted)).await;
    let after = node.queue("app.after").await;
    for queue in [&before, &after] {
        assert_eq!(node.lease_config(queue)["record.ttl.ms"], "5000");
        assert!(node.lease_config(queue)["dead.letter.route"].contains("dlx"));
        assert_eq!(queue.settings().policy.as_deref(), Some("ttl"));
    }
    assert!(!node.lease_config(&other).contains_key("record.ttl.ms"));
    let node = node.restart().await;
    let queue = node.vhost.find_queue("app.before").expect("it is there");
    assert_eq!(queue.settings().message_ttl_ms, Some(5000));
    node.vhost.delete_policy(PolicyScope::User, "ttl").await.expect("it is deleted");
    assert!(!node.lease_config(&queue).contains_key("record.ttl.ms"));
    assert_eq!(queue.settings().policy, None);
}

#[tokio::test]
async fn highest_priority_policy_applies_and_an_operator_policy_tightens_it() {
    let node = open().await;
    let queue = node.queue_with("q", &[("x-max-length", 500.into())]).await;
    let ttl = serde_json::json!({"message-ttl": 1000});
    let length = serde_json::json!({"max-length": 200, "overflow": "reject-publish"});
    node.set(PolicyScope::User, "low", policy(".*", 1, ttl)).await;
    node.set(PolicyScope::User, "high", policy("q", 2, length)).await;
    let settings = queue.settings();
    assert_eq!((settings.max_length, settings.message_ttl_ms), (Some(200), None));
    assert_eq!(node.topic_config("q")["limit.overflow"], "reject");
    let operator = serde_json::json!({"max-length": 100, "expires": 60000});
    node.set(PolicyScope::Operator, "cap", policy("", 0, operator)).await;
    let settings = queue.settings();
    assert_eq!((settings.max_length, settings.expires_ms), (Some(100), Some(60000)));
    assert_eq!(node.topic_config("q")["limit.records"], "100");
    assert_eq!(settings.operator_policy.as_deref(), Some("cap"));
}

#[tokio::test]
async fn policy_with_an_unsupported_setting_does_not_apply_to_the_queue() {
    let node = open().await;
    let classic = node.queue("classic").await;
    let quorum = node.queue_with("quorum", &[("x-queue-type", "quorum".into())]).await;
    let wanted = serde_json::json!({"delivery-limit": 3, "message-ttl": 1000});
    node.set(PolicyScope::User, "limit", policy("", 0, wanted)).await;
    assert_eq!(classic.settings().message_ttl_ms, None);
    assert_eq!(quorum.settings().message_ttl_ms, Some(1000));
    assert_eq!(node.lease_config(&quorum)["attempts.max"], "4");
}

#[tokio::test]
async fn policy_sets_the_alternate_exchange() {
    let node = open().await;
    node.queue("lost").await;
    node.exchange("x", ExchangeKind::Direct, true).await;
    let wanted = serde_json::json!({"alternate-exchange": "amq.fanout"});
    node.set(PolicyScope::User, "alternate", policy("^x$", 0, wanted)).await;
    node.bind("amq.fanout", &queue_named("lost"), "").await.expect("it is bound");
    assert_eq!(node.reached("x", "nothing"), ["lost"]);
    node.vhost.delete_policy(PolicyScope::User, "alternate").await.expect("it is deleted");
    assert!(node.reached("x", "nothing").is_empty());
}

#[tokio::test]
async fn invalid_policy_is_rejected() {
    let node = open().await;
    for (scope, pattern, definition, expected) in [
        (PolicyScope::User, "", serde_json::json!({}), "no policy provided"),
        (
            PolicyScope::User,
            "",
            serde_json::json!({"message-ttl": -1}),
            "-1 is not a valid message TTL",
        ),
        (
            PolicyScope::User,
            "",
            serde_json::json!({"ha-mode": "all"}),
            "\"ha-mode\" is not recognised as a policy setting",
        ),
        (
            PolicyScope::User,
            "",
            serde_json::json!({"expires": 400_000_000_000_i64}),
            "400000000000 is not a valid queue expiry",
        ),
        (
            PolicyScope::Operator,
            "",
            serde_json::json!({"dead-letter-exchange": "x"}),
            "\"dead-letter-exchange\" is not recognised as a policy setting",
        ),
    ] {
        let set = node.vhost.set_policy(scope, "p", policy(pattern, 0, definition)).await;
        assert_eq!(set.expect_err("it is refused").to_string(), expected);
    }
    let wanted = serde_json::json!({"message-ttl": 1});
    let set = node.vhost.set_policy(PolicyScope::User, "p", policy("(", 0, wanted)).await;
    assert!(set.expect_err("it is refused").to_string().starts_with("pattern should be regular"));
    assert!(node.vhost.policies(PolicyScope::User).is_empty());
}
