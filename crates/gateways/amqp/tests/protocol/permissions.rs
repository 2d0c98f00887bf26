//! Users' permissions: each method checks them and refuses in RabbitMQ's words.

use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::methods::*;
use operations::amqp::Operation;

use crate::administration::{add_user, add_vhost, allow, operate};
use crate::harness::{Client, Node, table, user};

fn refused(permission: &str, resource: &str) -> String {
    format!(
        "ACCESS_REFUSED - {permission} access to {resource} in vhost '/' refused for user 'app'"
    )
}

/// A node with a user `app` of these permissions, and a connection of `app` with channel 1.
async fn with_app(configure: &str, write: &str, read: &str) -> (Node, Client) {
    let node = Node::start().await;
    add_user(&node, "app", "secret").await;
    allow(&node, "app", "/", [configure, write, read]).await;
    let client = node.client_of("app", "secret", "/").await;
    (node, client)
}

impl Node {
    pub(crate) async fn client_of(&self, name: &str, password: &str, vhost: &str) -> Client {
        let mut client = self.socket().await;
        client.log_in(name, password).await;
        client.tune(0).await;
        let open = ConnectionOpen { virtual_host: vhost, ..ConnectionOpen::default() };
        let came = client.call(0, open).await;
        assert!(matches!(came.method(), Method::ConnectionOpenOk(_)), "{:?}", came.method());
        client.open_channel(1).await;
        client
    }
}

#[tokio::test]
async fn declare_and_delete_require_configure_permission() {
    let (node, mut app) = with_app("^app", "", "").await;
    node.client().await.declare("other").await;
    app.declare("app.q").await;
    for name in ["other", "new"] {
        let text = refused("configure", &format!("queue '{name}'"));
        let declare = QueueDeclare { queue: name, durable: true, ..QueueDeclare::default() };
        app.refuses(1, declare, &text).await;
        app.refuses(1, QueueDelete { queue: name, ..QueueDelete::default() }, &text).await;
        let text = refused("configure", &format!("exchange '{name}'"));
        let declare =
            ExchangeDeclare { exchange: name, kind: "topic", ..ExchangeDeclare::default() };
        app.refuses(1, declare, &text).await;
        app.refuses(1, ExchangeDelete { exchange: name, ..ExchangeDelete::default() }, &text).await;
    }
    // A passive declare requires some permission, and reveals nothing without: not even whether the queue exists.
    assert_eq!(app.queue_counts("app.q").await.messages, 0);
    for name in ["other", "none"] {
        let passive = QueueDeclare { queue: name, passive: true, ..QueueDeclare::default() };
        app.refuses(1, passive, &refused("read", &format!("queue '{name}'"))).await;
        let passive =
            ExchangeDeclare { exchange: name, passive: true, ..ExchangeDeclare::default() };
        app.refuses(1, passive, &refused("read", &format!("exchange '{name}'"))).await;
    }
    // The name that the server would generate does not match the user's permissions.
    app.send(1, QueueDeclare { exclusive: true, ..QueueDeclare::default() }).await;
    let came = app.method(1).await;
    let Method::ChannelClose(close) = came.method() else { panic!("{:?}", came.method()) };
    assert!(close.reply_text.contains("configure access to queue 'amq.gen-"), "{close:?}");
    assert_eq!(close.reply_code, 403);
    app.send(1, ChannelCloseOk::default()).await;
    allow(&node, "app", "/", ["^amq\\.gen", "", ""]).await;
    app.open_channel(1).await;
    app.declare_exclusive().await;
}

#[tokio::test]
async fn publish_requires_write_on_the_exchange_and_consume_read_on_the_queue() {
    let (node, mut app) = with_app("", "^amq\\.topic$", "^mine$").await;
    let mut guest = node.client().await;
    for queue in ["mine", "other"] {
        guest.declare(queue).await;
        guest.fill(queue, &["x"]).await;
    }
    guest.bind("mine", "amq.topic", "#").await;
    app.select_confirms(1).await;
    app.publish(1, "amq.topic", "k", b"y").await;
    app.confirmed_up_to(1, 1).await;
    for (exchange, name) in [("", "amq.default"), ("amq.fanout", "amq.fanout")] {
        app.publish(1, exchange, "other", b"z").await;
        app.channel_closes(1, &refused("write", &format!("exchange '{name}'"))).await;
        app.open_channel(1).await;
    }
    assert_eq!(app.get(1, "mine").await.expect("it is there").1, b"x");
    app.consume(1, "mine", "mine").await;
    assert_eq!(app.next(1).await.text(), "y");
    let text = refused("read", "queue 'other'");
    app.refuses(1, BasicGet { queue: "other", ..BasicGet::default() }, &text).await;
    app.refuses(1, BasicConsume { queue: "other", ..BasicConsume::default() }, &text).await;
    app.refuses(1, QueuePurge { queue: "other", ..QueuePurge::default() }, &text).await;
    assert_eq!(guest.queue_counts("other").await.messages, 1);
}

#[tokio::test]
async fn bind_requires_write_on_the_destination_and_read_on_the_source() {
    let (node, mut app) = with_app("", "^in", "^out|^amq").await;
    let mut guest = node.client().await;
    for name in ["in.q", "out.q"] {
        guest.declare(name).await;
    }
    for exchange in ["in.x", "out.x"] {
        let declare = ExchangeDeclare { exchange, kind: "topic", ..ExchangeDeclare::default() };
        guest.call(1, declare).await;
    }
    app.bind("in.q", "out.x", "#").await;
    let bind = ExchangeBind { destination: "in.x", source: "amq.topic", ..ExchangeBind::default() };
    assert!(matches!(app.call(1, bind).await.method(), Method::ExchangeBindOk(_)));
    let text = refused("write", "queue 'out.q'");
    let (queue, exchange) = ("out.q", "out.x");
    app.refuses(1, QueueBind { queue, exchange, ..QueueBind::default() }, &text).await;
    app.refuses(1, QueueUnbind { queue, exchange, ..QueueUnbind::default() }, &text).await;
    let text = refused("read", "exchange 'in.x'");
    let bind = QueueBind { queue: "in.q", exchange: "in.x", ..QueueBind::default() };
    app.refuses(1, bind, &text).await;
    let text = refused("write", "exchange 'out.x'");
    let bind =
        ExchangeBind { destination: "out.x", source: "amq.topic", ..ExchangeBind::default() };
    app.refuses(1, bind, &text).await;
}

#[tokio::test]
async fn dead_letter_and_alternate_exchanges_require_write_permission() {
    let (_node, mut app) = with_app("^app", "^app", "^app").await;
    let arguments = table(&[("x-dead-letter-exchange", "graves".into())]);
    let declare = QueueDeclare {
        queue: "app.q",
        durable: true,
        arguments: EncodedTable(&arguments),
        ..QueueDeclare::default()
    };
    app.refuses(1, declare, &refused("write", "exchange 'graves'")).await;
    app.declare_with("app.q", &[("x-dead-letter-exchange", "app.graves".into())]).await;
    let arguments = table(&[("alternate-exchange", "lost".into())]);
    let declare = ExchangeDeclare {
        exchange: "app.x",
        kind: "fanout",
        arguments: EncodedTable(&arguments),
        ..ExchangeDeclare::default()
    };
    app.refuses(1, declare, &refused("write", "exchange 'lost'")).await;
}

#[tokio::test]
async fn opening_a_vhost_requires_permissions_in_it() {
    let node = Node::start().await;
    add_vhost(&node, "shop").await;
    add_user(&node, "app", "secret").await;
    for (name, password) in [("guest", "guest"), ("app", "secret")] {
        let mut client = node.socket().await;
        client.log_in(name, password).await;
        client.tune(0).await;
        client.send(0, ConnectionOpen { virtual_host: "shop", ..ConnectionOpen::default() }).await;
        let text = format!("NOT_ALLOWED - access to vhost 'shop' refused for user '{name}'");
        client.connection_closes(530, &text).await;
    }
    allow(&node, "app", "shop", [".*", ".*", ".*"]).await;
    let mut app = node.client_of("app", "secret", "shop").await;
    app.declare("q").await;
    app.close().await;
}

#[tokio::test]
async fn permission_change_applies_to_open_connections() {
    let (node, mut app) = with_app(".*", ".*", ".*").await;
    app.declare("q").await;
    app.fill("q", &["1", "2"]).await;
    allow(&node, "app", "/", ["", "", "q"]).await;
    app.publish(1, "", "q", b"3").await;
    app.channel_closes(1, &refused("write", "exchange 'amq.default'")).await;
    app.open_channel(1).await;
    assert_eq!(app.get(1, "q").await.expect("it is there").1, b"1");
    let (user, vhost) = ("app".to_owned(), "/".to_owned());
    operate(&node, Operation::Deny { user, vhost }).await.expect("is denied");
    let text = "NOT_ALLOWED - access to vhost '/' refused for user 'app'";
    app.connection_closes(530, text).await;
}

#[tokio::test]
async fn users_of_the_settings_have_all_permissions_in_every_vhost() {
    let node = Node::with_users(vec![user("root", "toor")]).await;
    add_vhost(&node, "shop").await;
    let mut root = node.client_of("root", "toor", "shop").await;
    root.declare("q").await;
    root.fill("q", &["x"]).await;
    root.close().await;
    // The default user does not exist, and users of the settings cannot be changed by commands.
    let mut guest = node.socket().await;
    guest.log_in("guest", "guest").await;
    let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
                details see the broker logfile.";
    guest.connection_closes(403, text).await;
    let error = operate(&node, Operation::DeleteUser { name: "root".into() }).await;
    let text =
        "user root is one of the node's settings (amqp-user or admin-user), and is changed there";
    assert_eq!(error.expect_err("is refused").to_string(), text);
}
