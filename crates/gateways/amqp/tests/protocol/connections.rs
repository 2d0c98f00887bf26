//! From the first bytes to an open connection, and to its end.

use std::time::Duration;

use gateway_amqp::codec::fields::{EncodedTable, LongString};
use gateway_amqp::codec::frame::PROTOCOL_HEADER;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::table::{FieldTable, FieldValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Node, client_properties, user};

#[tokio::test]
async fn the_server_says_what_it_can_do_as_rabbitmq_does() {
    let node = Node::start().await;
    let mut client = node.socket().await;
    let came = client.start().await;
    let Method::ConnectionStart(start) = came.method() else { panic!("{:?}", came.method()) };
    assert_eq!((start.version_major, start.version_minor), (0, 9));
    assert_eq!(start.mechanisms.0, b"PLAIN AMQPLAIN");
    let properties = FieldTable::decode(start.server_properties.0).expect("a table");
    assert_eq!(properties.get("product").and_then(FieldValue::as_str), Some("Postroad"));
    let Some(FieldValue::Table(can)) = properties.get("capabilities") else { panic!() };
    for name in [
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "exchange_exchange_bindings",
        "connection.blocked",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
        "consumer_priorities",
    ] {
        assert_eq!(can.get(name), Some(&FieldValue::Boolean(true)), "{name}");
    }
}

#[tokio::test]
async fn another_protocol_is_told_which_one_is_spoken() {
    let node = Node::start().await;
    for header in [&b"AMQP\x03\x01\x00\x00"[..], b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x01\x01\x00\x0a"]
    {
        let mut client = node.socket().await;
        client.send_bytes(header).await;
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer).await;
        assert_eq!(answer, PROTOCOL_HEADER);
    }
    node.is_well().await;
}

#[tokio::test]
async fn whoever_may_log_in_can_do_so_in_two_ways() {
    let node = Node::with_users(vec![user("app", "se:cret")]).await;
    let mut client = node.socket().await;
    client.log_in("app", "se:cret").await;
    client.open().await;
    client.close().await;

    let mut client = node.socket().await;
    client.start().await;
    let mut login = FieldTable::new();
    login.push("LOGIN", "app");
    login.push("PASSWORD", "se:cret");
    let (response, properties) = (login.to_bytes(), client_properties());
    let start_ok = ConnectionStartOk {
        client_properties: EncodedTable(&properties),
        mechanism: "AMQPLAIN",
        response: LongString(&response),
        locale: "en_US",
        ..ConnectionStartOk::default()
    };
    client.send(0, start_ok).await;
    client.open().await;
    client.close().await;
}

#[tokio::test]
async fn nobody_else_can() {
    let node = Node::with_users(vec![user("app", "secret")]).await;
    for (name, password) in [("guest", "guest"), ("app", "secre"), ("app", "secret2"), ("", "")] {
        let mut client = node.socket().await;
        client.log_in(name, password).await;
        let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For \
                    details see the broker logfile.";
        client.connection_closes(403, text).await;
    }
    let mut client = node.socket().await;
    client.start().await;
    let start_ok = ConnectionStartOk { mechanism: "EXTERNAL", ..ConnectionStartOk::default() };
    client.send(0, start_ok).await;
    let text = "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'";
    client.connection_closes(503, text).await;
}

#[tokio::test]
async fn a_vhost_that_is_not_there_is_refused() {
    let node = Node::start().await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    client.method(0).await;
    let tune_ok = ConnectionTuneOk {
        channel_max: 10,
        frame_max: 4096,
        heartbeat: 0,
        ..ConnectionTuneOk::default()
    };
    client.send(0, tune_ok).await;
    let open = ConnectionOpen { virtual_host: "nowhere", ..ConnectionOpen::default() };
    client.send(0, open).await;
    client.connection_closes(530, "NOT_ALLOWED - vhost nowhere not found").await;
}

#[tokio::test]
async fn what_is_negotiated_is_kept() {
    let node = Node::start().await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    client.method(0).await;
    let tune_ok = ConnectionTuneOk {
        channel_max: 2,
        frame_max: 4096,
        heartbeat: 0,
        ..ConnectionTuneOk::default()
    };
    client.send(0, tune_ok).await;
    client.ask(0, ConnectionOpen { virtual_host: "/", ..ConnectionOpen::default() }).await;
    client.open_channel(1).await;
    client.open_channel(2).await;
    // A body of more than a frame comes in frames that are small enough.
    client.payload_bytes_max = 4096 - 8;
    let queue = client.declare_exclusive().await;
    let body: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    client.publish(1, "", &queue, &body).await;
    let (_, got) = client.get(1, &queue).await.expect("it is there");
    assert!(got == body);

    client.send(3, ChannelOpen::default()).await;
    let text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated \
                channel_max (2)";
    client.connection_closes(530, text).await;
}

#[tokio::test]
async fn heartbeats_go_both_ways() {
    let node = Node::start().await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    client.open_with(1).await;
    // A client that says nothing gets heartbeats for two intervals, and is then given up.
    let begun = world::Instant::now();
    client.is_cut_off().await;
    assert!(client.heartbeats >= 2, "{}", client.heartbeats);
    let lasted = begun.elapsed();
    assert!((Duration::from_millis(1500)..Duration::from_secs(6)).contains(&lasted), "{lasted:?}");

    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    client.open_with(1).await;
    for _ in 0..8 {
        client.send_bytes(&[8, 0, 0, 0, 0, 0, 0, 0xce]).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    client.close().await;
}

#[tokio::test]
async fn a_client_that_never_opens_its_connection_is_cut_off() {
    let node = Node::with(|options| options.handshake_within = Duration::from_millis(200)).await;
    let mut client = node.socket().await;
    client.start().await;
    client.is_cut_off().await;
    node.is_well().await;
}

#[tokio::test]
async fn a_node_that_shuts_down_says_so() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let stop = node.stop.clone();
    stop.send_replace(true);
    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    client.connection_closes(320, text).await;
    node.shutdown().await;
}

#[tokio::test]
async fn a_connection_can_be_closed_with_everything_open() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.fill("q", &["a", "b"]).await;
    client.consume(1, "q", "c").await;
    client.texts(1, 2).await;
    client.close().await;

    let mut client = node.client().await;
    let counts = client.look_at("q").await;
    assert_eq!((counts.messages, counts.consumers), (2, 0));
    // And they are marked as what may have been seen.
    let came = client.ask(1, BasicGet { queue: "q", ..BasicGet::default() }).await;
    let Method::BasicGetOk(ok) = came.method() else { panic!("{:?}", came.method()) };
    assert!(ok.redelivered);
}

#[tokio::test]
async fn after_close_ok_the_server_waits_for_the_client_to_close_the_socket() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let close = ConnectionClose { reply_code: 200, ..ConnectionClose::default() };
    let came = client.ask(0, close).await;
    assert!(matches!(came.method(), Method::ConnectionCloseOk(_)), "{:?}", came.method());
    // Neither silence nor further frames make the server close first.
    client.is_silent().await;
    client.send(1, ChannelOpen::default()).await;
    client.is_silent().await;
    client.stream.shutdown().await.expect("closes its side");
    client.is_cut_off().await;
}

#[tokio::test]
async fn a_node_that_shuts_down_does_not_wait_for_a_client_that_has_closed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.ask(0, ConnectionClose { reply_code: 200, ..ConnectionClose::default() }).await;
    let begun = world::Instant::now();
    node.shutdown().await;
    // The options give sessions 5 s to finish.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    client.is_cut_off().await;
}

#[tokio::test]
async fn a_secret_may_be_updated_by_a_user_with_a_password() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let new_secret = LongString(b"other");
    let update = ConnectionUpdateSecret { new_secret, ..ConnectionUpdateSecret::default() };
    let came = client.ask(0, update).await;
    assert!(matches!(came.method(), Method::ConnectionUpdateSecretOk(_)), "{:?}", came.method());
    client.declare_exclusive().await;
}

#[tokio::test]
async fn a_channel_may_have_any_number_as_long_as_few_enough_are_open() {
    let node = Node::with(|options| options.channel_max = 2).await;
    let mut client = node.connection().await;
    client.open_channel(u16::MAX).await;
    client.open_channel(300).await;
    client.close_channel(300).await;
    client.open_channel(7).await;
    client.send(8, ChannelOpen::default()).await;
    let text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated \
                channel_max (2)";
    client.connection_closes(530, text).await;
}

/// Logs in without a name, as far as it gets.
async fn anonymous(node: &Node) -> crate::harness::Client {
    let mut client = node.socket().await;
    client.start().await;
    let properties = client_properties();
    let start_ok = ConnectionStartOk {
        client_properties: EncodedTable(&properties),
        mechanism: "ANONYMOUS",
        locale: "en_US",
        ..ConnectionStartOk::default()
    };
    client.send(0, start_ok).await;
    client
}

#[tokio::test]
async fn a_client_without_a_name_is_who_the_operator_says() {
    let node = Node::with(|options| options.anonymous_user = Some("guest".to_owned())).await;
    let mut client = anonymous(&node).await;
    client.open().await;
    client.open_channel(1).await;
    client.declare_exclusive().await;

    let node = Node::with(|options| options.anonymous_user = Some("nobody".to_owned())).await;
    let mut client = anonymous(&node).await;
    let text = "ACCESS_REFUSED - Login was refused using authentication mechanism ANONYMOUS. For \
                details see the broker logfile.";
    client.connection_closes(403, text).await;
}

#[tokio::test]
async fn without_a_setting_nobody_comes_without_a_name() {
    let node = Node::start().await;
    let mut client = anonymous(&node).await;
    let text = "COMMAND_INVALID - unknown authentication mechanism 'ANONYMOUS'";
    client.connection_closes(503, text).await;
}

#[tokio::test]
async fn an_operator_closes_a_connection_and_its_exclusive_queues_go() {
    let connections = gateway::Connections::default();
    let node = Node::with(|options| options.connections = connections.clone()).await;
    let mut other = node.client().await;
    let mut client = node.client().await;
    let queue = client.declare_exclusive().await;
    let listed = connections.list(None, 10);
    let told: Vec<_> = listed.iter().map(|it| (it.id(), it.protocol(), it.user())).collect();
    assert_eq!(told, [(1, "amqp", "guest".to_owned()), (2, "amqp", "guest".to_owned())]);

    assert!(connections.close(2));
    client.connection_closes(320, "CONNECTION_FORCED - closed by an operator").await;
    let mut third = node.client().await;
    assert!(connections.close_because(3, "for a test"));
    third.connection_closes(320, "CONNECTION_FORCED - for a test").await;
    let declare = QueueDeclare { queue: &queue, passive: true, ..QueueDeclare::default() };
    other.refuses(1, declare, &format!("NOT_FOUND - no queue '{queue}' in vhost '/'")).await;
    node.is_well().await;
}

#[tokio::test]
async fn an_operator_closes_a_connection_that_is_not_open_yet() {
    let connections = gateway::Connections::default();
    let node = Node::with(|options| options.connections = connections.clone()).await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    assert!(connections.close(1));
    client.is_cut_off().await;
    node.is_well().await;
}
