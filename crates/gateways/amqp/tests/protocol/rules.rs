//! Kafka's ACL rules hold for AMQP: a queue and its topic are one entity under two names. Every method is also tried
//! by a user without rights.

use access_rules::acl::{Action, Pattern, Resource, Rule, Verdict};
use gateway_amqp::codec::methods::*;

use crate::administration::{add_user, allow};
use crate::harness::{Client, Node};

fn refused(permission: &str, resource: &str) -> String {
    format!(
        "ACCESS_REFUSED - {permission} access to {resource} in vhost '/' refused for user 'app'"
    )
}

impl Node {
    async fn rule(&self, verdict: Verdict, action: Action, topic: &str) {
        let rule = Rule {
            resource: Resource::Topic,
            pattern: Pattern::Literal,
            name: topic.into(),
            principal: "User:app".into(),
            host: "*".into(),
            action,
            verdict,
        };
        self.users.add_rules(vec![rule]).await.expect("is added");
    }
}

/// A node with queues `q` and `other`, both bound to `amq.topic`, and a user without any rights.
async fn node() -> Node {
    let node = Node::start().await;
    add_user(&node, "app", "secret").await;
    let mut guest = node.client().await;
    for queue in ["q", "other"] {
        guest.declare(queue).await;
        guest.bind(queue, "amq.topic", queue).await;
        guest.fill(queue, &["x"]).await;
    }
    node
}

async fn app(node: &Node) -> Client {
    node.client_of("app", "secret", "/").await
}

#[tokio::test]
async fn deny_rule_overrides_permissions() {
    let node = node().await;
    allow(&node, "app", "/", [".*", ".*", ".*"]).await;
    let mut app = app(&node).await;
    assert!(app.get(1, "q").await.is_some());
    node.rule(Verdict::Deny, Action::Read, "q").await;
    let text = refused("read", "queue 'q'");
    app.refuses(1, BasicGet { queue: "q", ..BasicGet::default() }, &text).await;
    app.refuses(1, BasicConsume { queue: "q", ..BasicConsume::default() }, &text).await;
    assert!(app.get(1, "other").await.is_some(), "another queue is another topic");
    node.rule(Verdict::Deny, Action::Delete, "q").await;
    let text = refused("configure", "queue 'q'");
    app.refuses(1, QueueDelete { queue: "q", ..QueueDelete::default() }, &text).await;
    let text = refused("read", "queue 'q'");
    app.refuses(1, QueuePurge { queue: "q", ..QueuePurge::default() }, &text).await;
    node.rule(Verdict::Deny, Action::Create, "new").await;
    let text = refused("configure", "queue 'new'");
    let declare = QueueDeclare { queue: "new", durable: true, ..QueueDeclare::default() };
    app.refuses(1, declare, &text).await;
}

#[tokio::test]
async fn denied_queue_is_not_reached_through_any_exchange() {
    let node = node().await;
    allow(&node, "app", "/", [".*", ".*", ".*"]).await;
    let mut app = app(&node).await;
    app.select_confirms(1).await;
    app.publish(1, "amq.topic", "q", b"before").await;
    app.confirmed_up_to(1, 1).await;
    node.rule(Verdict::Deny, Action::Write, "q").await;
    let text = refused("write", "queue 'q'");
    for exchange in ["amq.topic", ""] {
        app.publish(1, exchange, "q", b"after").await;
        app.channel_closes(1, &text).await;
        app.open_channel(1).await;
        // Another connection counts the messages below, and sees those that are confirmed.
        app.select_confirms(1).await;
        app.publish(1, exchange, "other", b"fine").await;
        app.confirmed_up_to(1, 1).await;
    }
    app.refuses(1, QueueBind { queue: "q", exchange: "amq.fanout", ..QueueBind::default() }, &text)
        .await;
    let mut guest = node.client().await;
    let (q, other) =
        (guest.queue_counts("q").await.messages, guest.queue_counts("other").await.messages);
    assert_eq!((q, other), (2, 3));
}

#[tokio::test]
async fn allow_rule_grants_the_queue_and_its_vhost() {
    let node = node().await;
    node.rule(Verdict::Allow, Action::Write, "q").await;
    let mut app = app(&node).await;
    app.select_confirms(1).await;
    app.publish(1, "", "q", b"by rule").await;
    app.confirmed_up_to(1, 1).await;
    // The refusal is the same whether the queue exists or not, and through any other exchange.
    for (exchange, key, name) in
        [("", "other", "amq.default"), ("", "none", "amq.default"), ("amq.topic", "q", "amq.topic")]
    {
        app.publish(1, exchange, key, b"refused").await;
        app.channel_closes(1, &refused("write", &format!("exchange '{name}'"))).await;
        app.open_channel(1).await;
    }
    let text = refused("read", "queue 'q'");
    app.refuses(1, BasicGet { queue: "q", ..BasicGet::default() }, &text).await;
    node.rule(Verdict::Allow, Action::Read, "q").await;
    assert!(app.get(1, "q").await.is_some());
    node.rule(Verdict::Allow, Action::Create, "mine").await;
    app.declare("mine").await;
}

#[tokio::test]
async fn rules_do_not_apply_to_amqp_when_protocols_are_kept_apart() {
    let node = node().await;
    node.users.keep_protocols_apart();
    allow(&node, "app", "/", [".*", ".*", ".*"]).await;
    node.rule(Verdict::Deny, Action::Any, "q").await;
    let mut app = app(&node).await;
    assert!(app.get(1, "q").await.is_some());
    app.publish(1, "", "q", b"y").await;
    assert!(app.get(1, "q").await.is_some());
}

/// Expected outcome of a method sent by a user without rights.
enum ExpectedOutcome {
    /// The method needs no right, or concerns deliveries that the channel received by one.
    Free,
    /// A method that only servers send.
    OfServers,
    Refused(&'static str, &'static str),
}

/// Classifies every method. A new method must be added here.
fn fate(method: &Method<'_>) -> ExpectedOutcome {
    use ExpectedOutcome::{Free, OfServers, Refused};
    match method {
        Method::ExchangeDeclare(_) | Method::ExchangeDelete(_) => {
            Refused("configure", "exchange 'e'")
        }
        Method::ExchangeBind(_) | Method::ExchangeUnbind(_) => Refused("write", "exchange 'd'"),
        Method::QueueDeclare(_) | Method::QueueDelete(_) => Refused("configure", "queue 'q'"),
        Method::QueueBind(_) | Method::QueueUnbind(_) => Refused("write", "queue 'q'"),
        Method::QueuePurge(_) | Method::BasicConsume(_) | Method::BasicGet(_) => {
            Refused("read", "queue 'q'")
        }
        Method::BasicPublish(_) => Refused("write", "exchange 'e'"),
        Method::ConnectionStartOk(_)
        | Method::ConnectionSecureOk(_)
        | Method::ConnectionTuneOk(_)
        | Method::ConnectionOpen(_)
        | Method::ConnectionClose(_)
        | Method::ConnectionCloseOk(_)
        | Method::ConnectionUpdateSecret(_)
        | Method::ChannelOpen(_)
        | Method::ChannelFlow(_)
        | Method::ChannelFlowOk(_)
        | Method::ChannelClose(_)
        | Method::ChannelCloseOk(_)
        | Method::AccessRequest(_)
        | Method::BasicQos(_)
        | Method::BasicCancel(_)
        | Method::BasicCancelOk(_)
        | Method::BasicAck(_)
        | Method::BasicReject(_)
        | Method::BasicNack(_)
        | Method::BasicRecover(_)
        | Method::BasicRecoverAsync(_)
        | Method::ConfirmSelect(_)
        | Method::TxSelect(_)
        | Method::TxCommit(_)
        | Method::TxRollback(_) => Free,
        Method::ConnectionStart(_)
        | Method::ConnectionSecure(_)
        | Method::ConnectionTune(_)
        | Method::ConnectionOpenOk(_)
        | Method::ConnectionBlocked(_)
        | Method::ConnectionUnblocked(_)
        | Method::ConnectionUpdateSecretOk(_)
        | Method::ChannelOpenOk(_)
        | Method::AccessRequestOk(_)
        | Method::ExchangeDeclareOk(_)
        | Method::ExchangeDeleteOk(_)
        | Method::ExchangeBindOk(_)
        | Method::ExchangeUnbindOk(_)
        | Method::QueueDeclareOk(_)
        | Method::QueueBindOk(_)
        | Method::QueuePurgeOk(_)
        | Method::QueueDeleteOk(_)
        | Method::QueueUnbindOk(_)
        | Method::BasicQosOk(_)
        | Method::BasicConsumeOk(_)
        | Method::BasicReturn(_)
        | Method::BasicDeliver(_)
        | Method::BasicGetOk(_)
        | Method::BasicGetEmpty(_)
        | Method::BasicRecoverOk(_)
        | Method::ConfirmSelectOk(_)
        | Method::TxSelectOk(_)
        | Method::TxCommitOk(_)
        | Method::TxRollbackOk(_) => OfServers,
    }
}

/// One example of each method that needs a right.
fn methods() -> Vec<Method<'static>> {
    let (queue, exchange, source, destination) = ("q", "e", "s", "d");
    vec![
        ExchangeDeclare { exchange, kind: "topic", ..ExchangeDeclare::default() }.into(),
        ExchangeDelete { exchange, ..ExchangeDelete::default() }.into(),
        ExchangeBind { source, destination, ..ExchangeBind::default() }.into(),
        ExchangeUnbind { source, destination, ..ExchangeUnbind::default() }.into(),
        QueueDeclare { queue, durable: true, ..QueueDeclare::default() }.into(),
        QueueDelete { queue, ..QueueDelete::default() }.into(),
        QueueBind { queue, exchange, ..QueueBind::default() }.into(),
        QueueUnbind { queue, exchange, ..QueueUnbind::default() }.into(),
        QueuePurge { queue, ..QueuePurge::default() }.into(),
        BasicConsume { queue, ..BasicConsume::default() }.into(),
        BasicGet { queue, ..BasicGet::default() }.into(),
        BasicPublish { exchange, ..BasicPublish::default() }.into(),
    ]
}

#[tokio::test]
async fn every_method_that_needs_a_right_is_refused_without_it() {
    let node = node().await;
    // Without any permission the client could not open the vhost.
    allow(&node, "app", "/", ["", "", ""]).await;
    let mut app = app(&node).await;
    for method in methods() {
        let ExpectedOutcome::Refused(permission, resource) = fate(&method) else {
            panic!("{} takes no right", method.name());
        };
        let text = refused(permission, resource);
        if let Method::BasicPublish(publish) = method {
            app.publish(1, publish.exchange, "k", b"x").await;
            app.channel_closes(1, &text).await;
            app.open_channel(1).await;
            continue;
        }
        app.refuses(1, method, &text).await;
    }
}

#[tokio::test]
async fn rule_for_one_topic_reveals_nothing_about_other_queues() {
    let node = node().await;
    node.rule(Verdict::Allow, Action::Read, "q").await;
    let mut app = app(&node).await;
    assert_eq!(app.queue_counts("q").await.messages, 1);
    for queue in ["other", "none"] {
        let passive = QueueDeclare { queue, passive: true, ..QueueDeclare::default() };
        app.refuses(1, passive, &refused("read", &format!("queue '{queue}'"))).await;
    }
}

#[tokio::test]
async fn reader_without_configure_does_not_turn_a_topic_into_a_queue() {
    let node = node().await;
    let topic = crate::crossing::topic(&node, "plain", 1).await;
    let has_main = || node.broker.catalog().lease_group_named(topic, "main").is_some();
    allow(&node, "app", "/", ["^mine$", "", ".*"]).await;
    let mut app = app(&node).await;
    assert_eq!(app.queue_counts("plain").await.messages, 0);
    let text = refused("configure", "queue 'plain'");
    app.refuses(1, BasicGet { queue: "plain", ..BasicGet::default() }, &text).await;
    app.refuses(1, BasicConsume { queue: "plain", ..BasicConsume::default() }, &text).await;
    app.refuses(1, QueuePurge { queue: "plain", ..QueuePurge::default() }, &text).await;
    assert!(!has_main(), "a reader makes no group");
    // A topic that is a queue already needs only the right to read.
    assert!(app.get(1, "q").await.is_some());
    allow(&node, "app", "/", ["^plain$", "", ".*"]).await;
    assert!(app.get(1, "plain").await.is_none());
    assert!(has_main());
}

#[tokio::test]
async fn queue_of_another_vhost_is_reached_by_none_of_its_names() {
    let node = node().await;
    crate::administration::add_vhost(&node, "shop").await;
    allow(&node, "app", "/", [".*", ".*", ".*"]).await;
    add_user(&node, "owner", "secret").await;
    allow(&node, "owner", "shop", [".*", ".*", ".*"]).await;
    let mut owner = node.client_of("owner", "secret", "shop").await;
    owner.declare("secretq").await;
    owner.fill("secretq", &["SECRET"]).await;
    let mut app = app(&node).await;
    for queue in ["secretq", "amqp.shop.secretq"] {
        let text = format!("NOT_FOUND - no queue '{queue}' in vhost '/'");
        let passive = QueueDeclare { queue, passive: true, ..QueueDeclare::default() };
        app.refuses(1, passive, &text).await;
        app.refuses(1, BasicGet { queue, ..BasicGet::default() }, &text).await;
        app.refuses(1, BasicConsume { queue, ..BasicConsume::default() }, &text).await;
        app.refuses(1, QueuePurge { queue, ..QueuePurge::default() }, &text).await;
        app.refuses(1, QueueBind { queue, exchange: "amq.fanout", ..QueueBind::default() }, &text)
            .await;
        // Deleting an unknown queue succeeds in AMQP.
        app.call(1, QueueDelete { queue, ..QueueDelete::default() }).await;
        app.publish(1, "", queue, b"INJECTED").await;
        // A queue declared under this name is another queue.
        assert_eq!(app.declare(queue).await.messages, 0);
    }
    let look = owner.queue_counts("secretq").await;
    assert_eq!((look.messages, look.consumers), (1, 0));
}
