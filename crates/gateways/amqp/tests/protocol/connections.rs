//! The life of a connection from its first bytes to its end.

use std::time::Duration;

use gateway_amqp::codec::fields::{EncodedTable, LongString};
use gateway_amqp::codec::frame::PROTOCOL_HEADER;
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::table::{FieldTable, FieldValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Node, client_properties, user};

#[tokio::test]
async fn connection_start_announces_the_capabilities_of_rabbitmq() {
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
async fn unsupported_protocol_header_gets_the_supported_one() {
    let node = Node::start().await;
    for header in [&b"AMQP\x03\x01\x00\x00"[..], b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x01\x01\x00\x0a"]
    {
        let mut client = node.socket().await;
        client.send_bytes(header).await;
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer).await;
        assert_eq!(answer, PROTOCOL_HEADER);
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn user_logs_in_by_plain_and_amqplain() {
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
async fn wrong_credentials_and_mechanisms_are_rejected() {
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
async fn opening_an_unknown_vhost_is_rejected() {
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
async fn negotiated_limits_are_enforced() {
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
    client.call(0, ConnectionOpen { virtual_host: "/", ..ConnectionOpen::default() }).await;
    client.open_channel(1).await;
    client.open_channel(2).await;
    // A body larger than a frame arrives in frames of the negotiated size.
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
async fn heartbeats_keep_a_connection_open_and_silence_closes_it() {
    let node = Node::start().await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    client.open_with(1).await;
    // A silent client gets heartbeats for two intervals and is then disconnected.
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
async fn unfinished_handshake_is_disconnected_after_its_time_limit() {
    let node = Node::with(|options| options.handshake_within = Duration::from_millis(200)).await;
    let mut client = node.socket().await;
    client.start().await;
    client.is_cut_off().await;
    node.serves_other_clients().await;
}

#[tokio::test]
async fn shutdown_closes_connections_with_a_reason() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let stop = node.stop.clone();
    stop.send_replace(true);
    let text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    client.connection_closes(320, text).await;
    node.shutdown().await;
}

#[tokio::test]
async fn closing_a_connection_requeues_its_unacknowledged_deliveries() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("q").await;
    client.fill("q", &["a", "b"]).await;
    client.consume(1, "q", "c").await;
    client.texts(1, 2).await;
    client.close().await;

    let mut client = node.client().await;
    let counts = client.queue_counts("q").await;
    assert_eq!((counts.messages, counts.consumers), (2, 0));
    // They are marked as redelivered.
    let came = client.call(1, BasicGet { queue: "q", ..BasicGet::default() }).await;
    let Method::BasicGetOk(ok) = came.method() else { panic!("{:?}", came.method()) };
    assert!(ok.redelivered);
}

#[tokio::test]
async fn after_close_ok_the_server_waits_for_the_client_to_close_the_socket() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let close = ConnectionClose { reply_code: 200, ..ConnectionClose::default() };
    let came = client.call(0, close).await;
    assert!(matches!(came.method(), Method::ConnectionCloseOk(_)), "{:?}", came.method());
    // Neither silence nor further frames make the server close first.
    client.is_silent().await;
    client.send(1, ChannelOpen::default()).await;
    client.is_silent().await;
    client.stream.shutdown().await.expect("closes its side");
    client.is_cut_off().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_client_that_has_closed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.call(0, ConnectionClose { reply_code: 200, ..ConnectionClose::default() }).await;
    let begun = world::Instant::now();
    node.shutdown().await;
    // The options give sessions 5 s to finish.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    client.is_cut_off().await;
}

#[tokio::test]
async fn update_secret_is_accepted_from_a_user_with_a_password() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let new_secret = LongString(b"other");
    let update = ConnectionUpdateSecret { new_secret, ..ConnectionUpdateSecret::default() };
    let came = client.call(0, update).await;
    assert!(matches!(came.method(), Method::ConnectionUpdateSecretOk(_)), "{:?}", came.method());
    client.declare_exclusive().await;
}

#[tokio::test]
async fn channel_numbers_are_free_but_their_count_is_limited() {
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

/// Logs in without a name, without waiting for the outcome.
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
async fn anonymous_login_maps_to_the_configured_user() {
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
async fn anonymous_login_is_rejected_by_default() {
    let node = Node::start().await;
    let mut client = anonymous(&node).await;
    let text = "COMMAND_INVALID - unknown authentication mechanism 'ANONYMOUS'";
    client.connection_closes(503, text).await;
}

#[tokio::test]
async fn operator_closes_a_connection_and_its_exclusive_queues_are_deleted() {
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
    node.serves_other_clients().await;
}

#[tokio::test]
async fn operator_closes_a_connection_during_its_handshake() {
    let connections = gateway::Connections::default();
    let node = Node::with(|options| options.connections = connections.clone()).await;
    let mut client = node.socket().await;
    client.log_in("guest", "guest").await;
    assert!(connections.close(1));
    client.is_cut_off().await;
    node.serves_other_clients().await;
}
