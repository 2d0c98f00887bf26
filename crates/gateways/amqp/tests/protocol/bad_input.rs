//! Input that no library would send. It costs its sender the connection, and does not affect other clients.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use gateway_amqp::codec::frame::{self, ContentHeader, FrameKind, PROTOCOL_HEADER};
use gateway_amqp::codec::methods::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::harness::Node;

#[tokio::test]
async fn malformed_frames_close_the_connection() {
    let node = Node::start().await;
    for bytes in [
        // A wrong end octet, an unknown type, a size beyond the negotiated maximum.
        &[1, 0, 1, 0, 0, 0, 4, 0, 10, 0, 10, 0][..],
        &[4, 0, 1, 0, 0, 0, 0, 0xce],
        &[3, 0, 1, 0xff, 0xff, 0xff, 0xff],
    ] {
        let mut client = node.client().await;
        client.send_bytes(bytes).await;
        let came = client.method(0).await;
        let Method::ConnectionClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(close.reply_code, 501, "{}", close.reply_text);
        client.is_cut_off().await;
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn unexpected_frames_close_the_connection() {
    let node = Node::start().await;
    let mut header = BytesMut::new();
    frame::put(FrameKind::Header, 1, &mut header, |out| {
        ContentHeader::put_fixed(60, 10, out);
        out.put_u16(0);
    });
    let mut body = BytesMut::new();
    frame::put(FrameKind::Body, 1, &mut body, |out| out.put_slice(b"0123456789ab"));
    let mut publish = BytesMut::new();
    frame::put_method(1, BasicPublish::default(), &mut publish);
    let twice = [&publish[..], &publish].concat();
    let headers = [&publish[..], &header, &header].concat();
    let too_long = [&publish[..], &header, &body].concat();
    for bytes in [&header[..], &body, &twice, &headers, &too_long] {
        let mut client = node.client().await;
        client.send_bytes(bytes).await;
        let came = client.method(0).await;
        let Method::ConnectionClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(close.reply_code, 505, "{}", close.reply_text);
        client.send(0, ConnectionCloseOk::default()).await;
        client.is_cut_off().await;
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn frames_with_a_malformed_payload_close_the_connection() {
    let node = Node::start().await;
    let mut publish = BytesMut::new();
    frame::put_method(1, BasicPublish::default(), &mut publish);
    let mut weighty = publish.clone();
    frame::put(FrameKind::Header, 1, &mut weighty, |out| {
        out.put_slice(&[0, 60, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
    let mut cut_short = publish;
    frame::put(FrameKind::Header, 1, &mut cut_short, |out| out.put_slice(&[0, 60, 0, 0]));
    for (bytes, code, text) in [
        (&[8, 0, 0, 0, 0, 0, 1, 0, 0xce][..], 501, "type 8, all octets = <<0>>: unknown_frame"),
        (&cut_short, 501, "type 2, all octets = <<0,60,0,0>>: unknown_frame"),
        (&[8, 0, 1, 0, 0, 0, 0, 0xce], 505, "type 8, all octets = <<>>"),
        (
            &weighty,
            505,
            "expected content header for class 60, got non content header frame instead",
        ),
    ] {
        let mut client = node.client().await;
        client.send_bytes(bytes).await;
        let name = if code == 501 { "FRAME_ERROR" } else { "UNEXPECTED_FRAME" };
        client.connection_closes(code, &format!("{name} - {text}")).await;
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn undecodable_methods_close_the_connection() {
    let node = Node::start().await;
    for (payload, code) in [
        (&[0, 60, 0, 99][..], 503),
        (&[0, 50, 0, 10, 0, 0, 200, b'x'], 501),
        (&[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], 501),
        (&[0, 60], 501),
    ] {
        let mut client = node.client().await;
        let mut out = BytesMut::new();
        frame::put(FrameKind::Method, 1, &mut out, |out| out.put_slice(payload));
        client.send_bytes(&out).await;
        let came = client.method(0).await;
        let Method::ConnectionClose(close) = came.method() else { panic!("{:?}", came.method()) };
        assert_eq!(close.reply_code, code, "{}", close.reply_text);
    }
    node.serves_other_clients().await;
}

#[tokio::test]
async fn incomplete_message_closes_the_connection_after_its_time_limit() {
    let node = Node::with(|options| {
        options.message_arrives_within = Duration::from_millis(200);
    })
    .await;
    let mut client = node.client().await;
    let mut out = BytesMut::new();
    frame::put_method(1, BasicPublish::default(), &mut out);
    frame::put(FrameKind::Header, 1, &mut out, |out| {
        ContentHeader::put_fixed(60, 1 << 20, out);
        out.put_u16(0);
    });
    client.send_bytes(&out).await;
    client.is_cut_off().await;
    node.serves_other_clients().await;
}

#[tokio::test]
async fn client_that_disconnects_at_any_byte_leaves_no_consumer() {
    let node = Node::start().await;
    let mut all = BytesMut::new();
    frame::put_method(1, ChannelOpen::default(), &mut all);
    let declare = QueueDeclare { queue: "q", durable: true, ..QueueDeclare::default() };
    frame::put_method(1, declare, &mut all);
    let consume = BasicConsume { queue: "q", consumer_tag: "c", ..BasicConsume::default() };
    frame::put_method(1, consume, &mut all);
    let socket = node.connection().await;
    let publish = BasicPublish { routing_key: "q", ..BasicPublish::default() };
    all.extend(socket.content(1, publish, &Default::default(), b"hello"));
    for length in (0..all.len()).step_by(7) {
        let mut client = node.connection().await;
        client.send_bytes(&all[..length]).await;
        drop(client);
    }
    node.serves_other_clients().await;
    let mut client = node.client().await;
    client.declare("q").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.queue_counts("q").await.consumers, 0);
}

#[tokio::test]
async fn garbage_does_not_affect_other_clients() {
    let node = Node::start().await;
    let mut runner = TestRunner::deterministic();
    let garbage = proptest::collection::vec(any::<u8>(), 0..400);
    // Complete frames with arbitrary methods.
    let method = (
        prop_oneof![Just(10u16), Just(20), Just(40), Just(50), Just(60), Just(85), Just(90)],
        prop_oneof![
            Just(10u16),
            Just(20),
            Just(30),
            Just(40),
            Just(60),
            Just(70),
            Just(80),
            Just(120)
        ],
        proptest::collection::vec(any::<u8>(), 0..60),
    );
    for round in 0..150 {
        let mut client = if round % 3 == 0 { node.socket().await } else { node.client().await };
        if round % 3 == 0 {
            client.send_bytes(&PROTOCOL_HEADER).await;
        }
        if round % 2 == 0 {
            let bytes = garbage.new_tree(&mut runner).expect("made").current();
            client.send_bytes(&bytes).await;
        } else {
            for _ in 0..10 {
                let (class, method, rest) = method.new_tree(&mut runner).expect("made").current();
                let mut out = BytesMut::new();
                frame::put(FrameKind::Method, u16::from(round % 5 != 0), &mut out, |out| {
                    out.put_u16(class);
                    out.put_u16(method);
                    out.put_slice(&rest);
                });
                client.send_bytes(&out).await;
            }
        }
    }
    node.serves_other_clients().await;
}
