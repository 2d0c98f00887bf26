//! The replying side with a peer that breaks the protocol, or reads slowly.

use std::sync::Arc;

use crate::limits::{
    LINK_APPENDS_BYTES_MAX, LINK_APPENDS_MAX, LINK_BULK_REQUESTS_MAX, LINK_GOSSIP_BYTES_MAX,
    LINK_HANDSHAKE_BYTES_MAX, LINK_REPLIES_BYTES_MAX, LINK_REQUESTS_BYTES_MAX,
};
use base::limits::SHARDS_MAX;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gateway::UnsentOutput;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};
use world::Instant;

use super::role::Responder;
use crate::connection::drive;
use crate::end::{ConnectionEnd, Violation};
use crate::frame::{FIRST, Header, Incoming, Kind, Message, QueuedFrame, write_frame};
use crate::lane::Lane;
use crate::node_id::NodeId;
use crate::outbox::Outbox;
use crate::service::{Declined, IncomingAppends, Request, Service};

/// Replies to a request with as many bytes as its head says, and never to appends.
struct Sizes;

impl Service for Sizes {
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Message, Declined>> {
        let head = String::from_utf8_lossy(&request.message.head).into_owned();
        match head.parse() {
            Ok(bytes) => async move { Ok(Message::from_head(vec![0; bytes])) }.boxed(),
            Err(_) => std::future::pending().boxed(),
        }
    }

    fn appends(&self, mut appends: IncomingAppends) -> BoxFuture<'static, ()> {
        async move {
            let mut held = Vec::new();
            while let Some(append) = appends.next().await {
                held.push(append);
            }
        }
        .boxed()
    }

    fn gossip(&self, _from: NodeId, _payload: Bytes) {}
}

struct ResponderFixture {
    peer: DuplexStream,
    outbox: Arc<Outbox>,
    ends: JoinHandle<ConnectionEnd>,
}

impl ResponderFixture {
    fn new(lane: Lane) -> Self {
        let (peer, mut wire) = duplex(64 << 10);
        let outbox = Arc::new(Outbox::new(LINK_REPLIES_BYTES_MAX));
        let service: Arc<dyn Service> = Arc::new(Sizes);
        let ends = tokio::spawn({
            let outbox = Arc::clone(&outbox);
            async move {
                let mut role = Responder::new(NodeId(1), lane, service, Arc::clone(&outbox));
                let incoming = Incoming::new(lane.read_ahead());
                drive(&mut wire, incoming, &outbox, &mut role).await
            }
        });
        Self { peer, outbox, ends }
    }

    /// Writes a frame. The connection may have ended by then.
    async fn send(&mut self, frame: QueuedFrame) {
        let bytes = encode(frame);
        let _ = self.peer.write_all(&bytes).await;
    }

    async fn violation(self) -> Violation {
        match self.ends.await.expect("no panic") {
            ConnectionEnd::Violation(violation) => violation,
            other => panic!("{other:?}"),
        }
    }
}

fn encode(frame: QueuedFrame) -> Vec<u8> {
    let mut unsent = UnsentOutput::default();
    write_frame(frame, Instant::now(), &mut unsent);
    let mut bytes = Vec::new();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while !unsent.is_empty() {
        assert!(unsent.poll_write(&mut context, &mut bytes).is_ready());
    }
    bytes
}

fn request(number: u32, head: &str, body: usize) -> QueuedFrame {
    let message = Message { head: head.to_owned().into(), body: vec![vec![0; body].into()] };
    QueuedFrame::new(Kind::Request, number, message)
}

fn append(number: u32, shard: u16, flags: u8, body: usize) -> QueuedFrame {
    QueuedFrame { kind: Kind::Append, shard, flags, ..request(number, "a", body) }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_window_close_the_connection() {
    let mut scene = ResponderFixture::new(Lane::Bulk);
    for number in 0..=LINK_BULK_REQUESTS_MAX as u32 {
        scene.send(request(number, "hang", 0)).await;
    }
    assert_eq!(scene.violation().await, Violation::Window);

    let mut scene = ResponderFixture::new(Lane::Bulk);
    scene.send(request(0, "hang", LINK_REQUESTS_BYTES_MAX)).await;
    scene.send(request(1, "hang", 0)).await;
    assert_eq!(scene.violation().await, Violation::Window);
}

#[tokio::test(start_paused = true)]
async fn appends_beyond_the_window_close_the_connection() {
    let mut scene = ResponderFixture::new(Lane::Replication);
    scene.send(append(0, 1, FIRST, 0)).await;
    // Another shard has a window of its own.
    scene.send(append(1, 2, FIRST, 0)).await;
    for number in 2..=LINK_APPENDS_MAX as u32 + 1 {
        scene.send(append(number, 1, 0, 0)).await;
    }
    assert_eq!(scene.violation().await, Violation::Window);

    let mut scene = ResponderFixture::new(Lane::Replication);
    scene.send(append(0, 1, FIRST, LINK_APPENDS_BYTES_MAX)).await;
    scene.send(append(1, 1, 0, 0)).await;
    assert_eq!(scene.violation().await, Violation::Window);
}

#[tokio::test(start_paused = true)]
async fn frames_of_another_lane_or_side_close_the_connection() {
    let gossip = |bytes| QueuedFrame::new(Kind::Gossip, 0, Message::from_head(vec![0; bytes]));
    let too_long = |bytes, max| Violation::TooLong { bytes, max };
    let long = LINK_GOSSIP_BYTES_MAX + 1_000;
    let control = Lane::Control.message_bytes_max();
    let long_ping = QueuedFrame::new(Kind::Ping, 0, Message::from_head(vec![0; 1_000_000]));
    let cases = [
        (Lane::Control, append(0, 1, FIRST, 0), Violation::Kind { kind: 10 }),
        (Lane::Proxy, gossip(1), Violation::Kind { kind: 6 }),
        (Lane::Control, gossip(long), too_long(long + 12, LINK_GOSSIP_BYTES_MAX + 64)),
        (Lane::Control, request(0, "", control), too_long(control + 12, control)),
        (Lane::Control, QueuedFrame::bare(Kind::Reply), Violation::Kind { kind: 8 }),
        (Lane::Bulk, long_ping, too_long(1_000_012, LINK_HANDSHAKE_BYTES_MAX)),
        (Lane::Control, QueuedFrame::bare(Kind::Hello), Violation::Kind { kind: 1 }),
        (Lane::Replication, append(0, 1, 0, 0), Violation::Stream),
    ];
    for (lane, frame, violation) in cases {
        let mut scene = ResponderFixture::new(lane);
        scene.send(frame).await;
        assert_eq!(scene.violation().await, violation, "{lane:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_beyond_the_number_of_shards_close_the_connection() {
    let mut scene = ResponderFixture::new(Lane::Replication);
    for shard in 0..=SHARDS_MAX {
        scene.send(append(shard, shard as u16, FIRST, 0)).await;
    }
    assert_eq!(scene.violation().await, Violation::Stream);
}

#[tokio::test(start_paused = true)]
async fn corrupt_bytes_and_false_lengths_close_the_connection_at_once() {
    let mut scene = ResponderFixture::new(Lane::Control);
    let mut bytes = encode(request(0, "1", 0));
    bytes[20] ^= 1;
    scene.peer.write_all(&bytes).await.expect("written");
    assert_eq!(scene.violation().await, Violation::Message);

    let mut scene = ResponderFixture::new(Lane::Bulk);
    let mut header = BytesMut::new();
    let length = u32::MAX;
    Header { length, kind: Kind::Request, flags: 0, shard: 0, number: 0 }.encode(&mut header);
    scene.peer.write_all(&header).await.expect("written");
    let (bytes, max) = (length as usize, Lane::Bulk.message_bytes_max());
    assert_eq!(scene.violation().await, Violation::TooLong { bytes, max });
}

#[tokio::test(start_paused = true)]
async fn peer_that_reads_nothing_gets_bounded_replies_and_is_disconnected() {
    let mut scene = ResponderFixture::new(Lane::Proxy);
    let size = 1 << 20;
    for number in 0..200 {
        scene.send(request(number, &size.to_string(), 0)).await;
    }
    let began = Instant::now();
    while !scene.ends.is_finished() {
        assert!(scene.outbox.held() <= LINK_REPLIES_BYTES_MAX, "{}", scene.outbox.held());
        scene.send(QueuedFrame::bare(Kind::Ping)).await;
        sleep(Duration::from_millis(200)).await;
        assert!(began.elapsed() < Duration::from_secs(60), "it is still there");
    }
    assert!(began.elapsed() >= crate::limits::LINK_PROGRESS_WITHIN);
    assert_eq!(scene.ends.await.expect("no panic"), ConnectionEnd::Stalled);
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_disconnected_and_a_pinging_one_is_not() {
    let began = Instant::now();
    let scene = ResponderFixture::new(Lane::Proxy);
    assert_eq!(scene.ends.await.expect("no panic"), ConnectionEnd::Silent);
    assert!(began.elapsed() <= crate::limits::LINK_SILENT_AFTER + Duration::from_millis(200));

    let mut scene = ResponderFixture::new(Lane::Proxy);
    for _ in 0..1_000 {
        scene.send(QueuedFrame::bare(Kind::Ping)).await;
        sleep(Duration::from_millis(1_000)).await;
        // Reads the pings of this side.
        let read = tokio::io::AsyncReadExt::read(&mut scene.peer, &mut [0; 1_024]).now_or_never();
        assert!(matches!(read, Some(Ok(1..))), "{read:?}");
    }
    scene.send(QueuedFrame::bare(Kind::Close)).await;
    assert_eq!(scene.ends.await.expect("no panic"), ConnectionEnd::Left);
}
