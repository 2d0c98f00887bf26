//! Operators' operations on vhosts, policies and users in the documents of the command line, and their effect on
//! clients; also after a restart.

use std::sync::Arc;

use ::operations::family::{OperationError, OperationFamily};
use access_rules::Permissions;
use gateway_amqp::codec::methods::*;
use operations::amqp::{ApplyTo, Operation, PolicyDefinition};
use passwords::hash_password;
use serde_json::{Value, json};
use world::SimulatedDisk;

use crate::harness::{Node, user};

/// Executes an operation in its wire format.
pub(crate) async fn operate(node: &Node, operation: Operation) -> Result<Value, OperationError> {
    let document = serde_json::to_vec(&operation).expect("a document");
    let answer = node.administration.carry_out(document).await?;
    Ok(serde_json::from_slice(&answer).expect("a document"))
}

pub(crate) async fn add_vhost(node: &Node, name: &str) {
    let made = operate(node, Operation::AddVhost { name: name.to_owned() }).await;
    assert_eq!(made.expect("is made"), json!({"created": true}));
}

pub(crate) async fn add_user(node: &Node, name: &str, password: &str) {
    let password_hash = hash_password(password).expect("a hash");
    let operation = Operation::AddUser { name: name.to_owned(), password_hash, scram: Vec::new() };
    operate(node, operation).await.expect("is made");
}

pub(crate) async fn allow(node: &Node, user: &str, vhost: &str, patterns: [&str; 3]) {
    let [configure, write, read] = patterns.map(str::to_owned);
    let permissions = Permissions { configure, write, read };
    let (user, vhost) = (user.to_owned(), vhost.to_owned());
    let operation = Operation::Allow { user, vhost, permissions };
    operate(node, operation).await.expect("is allowed");
}

async fn set_policy(node: &Node, name: &str, pattern: &str, definition: Value) {
    let policy = PolicyDefinition {
        pattern: pattern.to_owned(),
        apply_to: ApplyTo::All,
        priority: 0,
        definition: serde_json::from_value(definition).expect("a definition"),
    };
    let (vhost, name) = ("/".to_owned(), name.to_owned());
    operate(node, Operation::SetPolicy { vhost, name, policy }).await.expect("is set");
}

async fn clear_policy(node: &Node, name: &str) {
    let (vhost, name) = ("/".to_owned(), name.to_owned());
    operate(node, Operation::ClearPolicy { vhost, name }).await.expect("is cleared");
}

async fn is_refused(node: &Node, name: &str, password: &str) {
    let mut client = node.socket().await;
    client.log_in(name, password).await;
    let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
                details see the broker logfile.";
    client.connection_closes(403, text).await;
}

#[tokio::test]
async fn users_vhosts_and_policies_survive_a_restart() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    add_vhost(&node, "shop/eu").await;
    add_user(&node, "app", "se:cret").await;
    allow(&node, "app", "shop/eu", ["^app", ".*", ".*"]).await;
    set_policy(&node, "short", "^q", json!({"max-length": 1})).await;
    {
        let catalog = node.broker.catalog();
        let mut users = catalog.documents("amqp.users");
        let is_kept = users.any(|(_, it)| String::from_utf8_lossy(&it.body).contains("se:cret"));
        assert!(!is_kept, "nothing keeps a password");
    }
    node.shutdown().await;

    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let mut app = node.client_of("app", "se:cret", "shop/eu").await;
    app.declare("app.q").await;
    let text = "ACCESS_REFUSED - configure access to queue 'q' in vhost 'shop/eu' refused for \
                user 'app'";
    app.refuses(1, QueueDelete { queue: "q", ..QueueDelete::default() }, text).await;
    app.close().await;
    is_refused(&node, "app", "secret").await;
    let mut guest = node.client().await;
    guest.declare("q").await;
    guest.fill("q", &["1", "2"]).await;
    assert_eq!(guest.get(1, "q").await.expect("the newest").1, b"2");
    assert!(guest.get(1, "q").await.is_none());

    let name = "shop/eu".to_owned();
    operate(&node, Operation::DeleteVhost { name }).await.expect("is deleted");
    node.shutdown().await;
    let node = Node::on(disk, |_| {}).await;
    let listed = operate(&node, Operation::ListUsers { after: None }).await.expect("a list");
    assert_eq!(listed["users"][0]["name"], "app");
    assert_eq!(listed["users"][0]["permissions"], json!([]), "they went with the vhost");
    let listed = operate(&node, Operation::ListVhosts { after: None }).await.expect("a list");
    assert_eq!(listed["vhosts"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["vhosts"][0]["queues"], 1);
}

#[tokio::test]
async fn deleting_a_vhost_closes_its_connections_and_deletes_its_queues() {
    let node = Node::start().await;
    add_vhost(&node, "shop").await;
    allow(&node, "guest", "shop", [".*", ".*", ".*"]).await;
    let mut shop = node.client_of("guest", "guest", "shop").await;
    let mut other = node.client().await;
    shop.declare("q").await;
    shop.fill("q", &["x"]).await;
    let operation = Operation::DeleteVhost { name: "shop".into() };
    operate(&node, operation.clone()).await.expect("is deleted");
    shop.connection_closes(320, "CONNECTION_FORCED - vhost 'shop' is deleted").await;
    other.declare("q").await;
    assert_eq!(node.broker.catalog().topic_count(), 1, "that of the other vhost");
    let error = operate(&node, operation).await.expect_err("it is gone");
    assert!(matches!(&error, OperationError::NotFound(text) if text.contains("no vhost shop")));
    let default = operate(&node, Operation::DeleteVhost { name: "/".into() }).await;
    assert!(matches!(default, Err(OperationError::Invalid(_))));
    // The vhost that is created again is empty and grants no permissions.
    add_vhost(&node, "shop").await;
    allow(&node, "guest", "shop", [".*", ".*", ".*"]).await;
    let mut shop = node.client_of("guest", "guest", "shop").await;
    assert_eq!(shop.declare("q").await.messages, 0);
}

#[tokio::test]
async fn deleting_a_user_closes_its_connections_but_a_new_password_does_not() {
    let node = Node::start().await;
    add_user(&node, "app", "one").await;
    allow(&node, "app", "/", [".*", ".*", ".*"]).await;
    let mut app = node.client_of("app", "one", "/").await;
    let (name, password_hash) = ("app".to_owned(), hash_password("two").expect("a hash"));
    operate(&node, Operation::SetPassword { name, password_hash, scram: Vec::new() })
        .await
        .expect("is set");
    app.declare("q").await;
    is_refused(&node, "app", "one").await;
    node.client_of("app", "two", "/").await.close().await;
    operate(&node, Operation::DeleteUser { name: "app".into() }).await.expect("is deleted");
    app.connection_closes(320, "CONNECTION_FORCED - user 'app' is deleted").await;
    is_refused(&node, "app", "two").await;
}

#[tokio::test]
async fn changed_or_deleted_default_user_stays_so_after_a_restart() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let listed = operate(&node, Operation::ListUsers { after: None }).await.expect("a list");
    let all = json!([{"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]);
    let guest = json!({
        "name": "guest", "of_settings": false, "loopback_only": true, "permissions": all
    });
    assert_eq!(listed, json!({"users": [guest], "more": false}));
    let (name, password_hash) = ("guest".to_owned(), hash_password("better").expect("a hash"));
    operate(&node, Operation::SetPassword { name, password_hash, scram: Vec::new() })
        .await
        .expect("is set");
    is_refused(&node, "guest", "guest").await;
    node.client_of("guest", "better", "/").await.close().await;
    node.shutdown().await;
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    is_refused(&node, "guest", "guest").await;
    operate(&node, Operation::DeleteUser { name: "guest".into() }).await.expect("is deleted");
    node.shutdown().await;
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    is_refused(&node, "guest", "guest").await;
    is_refused(&node, "guest", "better").await;
    // A user of the same name may be created again.
    add_user(&node, "guest", "new").await;
    allow(&node, "guest", "/", [".*", ".*", ".*"]).await;
    node.client_of("guest", "new", "/").await.close().await;
    node.shutdown().await;
    // Users of the settings override stored users of the same name.
    let node = Node::start_on(disk, vec![user("guest", "set")], |_| {}).await;
    is_refused(&node, "guest", "new").await;
    node.client_of("guest", "set", "/").await.close().await;
}

#[tokio::test]
async fn lower_limit_of_policy_and_argument_applies_until_the_policy_is_cleared() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare_with("strict", &[("x-max-length", 2.into())]).await;
    client.declare_with("loose", &[("x-max-length", 10.into())]).await;
    client.declare("none").await;
    set_policy(&node, "length", "", json!({"max-length": 3})).await;
    client.declare("later").await;
    let five = ["1", "2", "3", "4", "5"];
    for (queue, length) in [("strict", 2), ("loose", 3), ("none", 3), ("later", 3)] {
        client.fill(queue, &five).await;
        assert_eq!(client.queue_counts(queue).await.messages, length, "{queue}");
        client.call(1, QueuePurge { queue, ..QueuePurge::default() }).await;
    }
    clear_policy(&node, "length").await;
    for (queue, length) in [("strict", 2), ("loose", 5), ("none", 5), ("later", 5)] {
        client.fill(queue, &five).await;
        assert_eq!(client.queue_counts(queue).await.messages, length, "{queue}");
    }
}

#[tokio::test]
async fn policy_sets_alternate_exchange_and_dead_letter_exchange() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("lost").await;
    client.declare("graves").await;
    client.declare("q").await;
    client.bind("lost", "amq.fanout", "").await;
    set_policy(&node, "ae", "^amq\\.direct$", json!({"alternate-exchange": "amq.fanout"})).await;
    let dead = json!({"dead-letter-exchange": "", "dead-letter-routing-key": "graves"});
    set_policy(&node, "dlx", "^q$", dead).await;
    client.publish(1, "amq.direct", "nowhere", b"unrouted").await;
    assert_eq!(client.get(1, "lost").await.expect("is there").1, b"unrouted");
    client.fill("q", &["x"]).await;
    client.consume(1, "q", "c").await;
    let tag = client.next(1).await.deliver().delivery_tag;
    client.nack(1, tag, false).await;
    client.consume(1, "graves", "g").await;
    assert_eq!(client.next(1).await.text(), "x");
    clear_policy(&node, "ae").await;
    client.publish(1, "amq.direct", "nowhere", b"unrouted").await;
    assert!(client.get(1, "lost").await.is_none());
}

#[tokio::test]
async fn invalid_operations_are_rejected_with_a_reason() {
    let node = Node::start().await;
    let policy = |pattern: &str, definition: Value| Operation::SetPolicy {
        vhost: "/".into(),
        name: "p".into(),
        policy: PolicyDefinition {
            pattern: pattern.into(),
            apply_to: ApplyTo::Queues,
            priority: 0,
            definition: serde_json::from_value(definition).expect("a definition"),
        },
    };
    let hash = |name: &str, hash: &str| Operation::AddUser {
        name: name.into(),
        password_hash: hash.into(),
        scram: Vec::new(),
    };
    let allow = |user: &str, vhost: &str, read: &str| Operation::Allow {
        user: user.into(),
        vhost: vhost.into(),
        permissions: Permissions { configure: "".into(), write: "".into(), read: read.into() },
    };
    let good = hash_password("x").expect("a hash");
    for (operation, words) in [
        (Operation::AddVhost { name: String::new() }, "a vhost has a name of 1 to 255 bytes"),
        (policy("(", json!({"expires": 1})), "pattern should be regular expression"),
        (policy("", json!({})), "no policy provided"),
        (policy("", json!({"ha-mode": "all"})), "\"ha-mode\" is not recognised"),
        (policy("", json!({"overflow": "burst"})), "\"burst\" is not a valid overflow value"),
        (policy("", json!({"max-length": "5"})), "\"5\" is not a valid maximum length"),
        (hash("app", "secret"), "that is no hash of a password by argon2id"),
        (hash("", &good), "a user has a name of 1 to 255 bytes"),
        (hash("guest", &good), "user guest is there already"),
        (allow("guest", "/", "("), "the pattern for read is no regular expression"),
        (allow("guest", "nowhere", ""), "there is no vhost nowhere"),
        (allow("nobody", "/", ""), "there is no user nobody"),
        (Operation::Deny { user: "guest".into(), vhost: "shop".into() }, "has no permissions in"),
        (Operation::DeleteUser { name: "nobody".into() }, "there is no user nobody"),
        (Operation::ClearPolicy { vhost: "/".into(), name: "p".into() }, "vhost / has no policy p"),
    ] {
        let shown = format!("{operation:?}");
        let error = operate(&node, operation).await.expect_err(&shown).to_string();
        assert!(error.contains(words), "{shown}: {error}");
    }
    for document in [&b"{"[..], b"{}", b"{\"list-users\":{\"after\":null,\"more\":1}}", b"\xff"] {
        let answer = node.administration.carry_out(document.to_vec()).await;
        assert!(matches!(answer, Err(OperationError::Invalid(_))));
    }
    node.serves_other_clients().await;
}
