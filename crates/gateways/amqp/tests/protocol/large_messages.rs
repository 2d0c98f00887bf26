//! Messages of megabytes, complete and incomplete, on several channels at a time.

use std::time::Duration;

use bytes::BytesMut;
use gateway_amqp::codec::frame::{self, ContentHeader, FrameKind};
use gateway_amqp::codec::methods::{BasicPublish, Method};
use gateway_amqp::codec::properties::{Properties, WireProperties};
use tokio::time::timeout;

use crate::harness::Node;

/// Shorter than a message may take to arrive (30 s).
const SOON: Duration = Duration::from_secs(10);

/// The method and the header of a message, and a part of the body.
fn beginning(channel: u16, body_bytes: u64, part: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    let publish = BasicPublish { routing_key: "large", ..BasicPublish::default() };
    frame::put_method(channel, publish, &mut out);
    frame::put(FrameKind::Header, channel, &mut out, |out| {
        ContentHeader::put_fixed(60, body_bytes, out);
        Properties::default().encode(out);
    });
    frame::put(FrameKind::Body, channel, &mut out, |out| out.extend_from_slice(part));
    out
}

#[tokio::test]
async fn announced_messages_that_do_not_arrive_delay_no_other_publisher() {
    let node = Node::start().await;
    let mut stalled = node.client().await;
    for channel in 1..=8 {
        if channel > 1 {
            stalled.open_channel(channel).await;
        }
        stalled.send_bytes(&beginning(channel, 16 << 20, b"x")).await;
    }
    let mut other = node.client().await;
    other.declare("large").await;
    other.select_confirms(1).await;
    other.publish(1, "", "large", b"small").await;
    other.publish(1, "", "large", &vec![b'x'; 4 << 20]).await;
    timeout(SOON, other.confirmed_up_to(1, 2)).await.expect("room is left");
}

#[tokio::test]
async fn large_messages_interleaved_on_channels_of_one_connection_are_all_confirmed() {
    const CHANNELS: u16 = 8;
    const PARTS: usize = 96;
    let node = Node::start().await;
    let mut client = node.client().await;
    client.declare("large").await;
    let part = vec![b'x'; client.payload_bytes_max];
    let body_bytes = (PARTS * part.len()) as u64;
    assert!(CHANNELS as u64 * body_bytes > gateway_amqp::limits::AMQP_ARRIVING_BYTES_MAX as u64);
    for channel in 1..=CHANNELS {
        if channel > 1 {
            client.open_channel(channel).await;
        }
        client.select_confirms(channel).await;
        client.send_bytes(&beginning(channel, body_bytes, &part)).await;
    }
    for _ in 1..PARTS {
        for channel in 1..=CHANNELS {
            let mut out = BytesMut::new();
            frame::put(FrameKind::Body, channel, &mut out, |out| out.extend_from_slice(&part));
            client.send_bytes(&out).await;
        }
    }
    for _ in 1..=CHANNELS {
        let came = timeout(2 * SOON, client.frame()).await.expect("soon").expect("a confirm");
        assert!(matches!(came.method(), Method::BasicAck(_)), "{:?}", came.method());
    }
    assert_eq!(client.queue_counts("large").await.messages, u32::from(CHANNELS));
}
