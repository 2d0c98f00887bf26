//! The requesting side with a peer that does not reply, and its writes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::limits::{LINK_CONTROL_REQUESTS_MAX, LINK_PROGRESS_WITHIN, LINK_REQUESTS_BYTES_MAX};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};
use uuid::Uuid;
use world::Instant;

use super::{LostReply, Requester, Session};
use crate::connection::drive;
use crate::end::{ConnectionEnd, Violation};
use crate::frame::{HEADER_BYTES, Header, Incoming, Kind, Message};
use crate::gossip::Gossip;
use crate::identity::{DirectoryIdentity, Identity};
use crate::lane::Lane;
use crate::node_id::NodeId;

fn session(lane: Lane) -> Arc<Session> {
    let (cluster, directory) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let at = DirectoryIdentity { cluster, node: NodeId(2), directory, boot: 1, epoch: 0 };
    Arc::new(Session::new(
        Identity { at, run: Uuid::from_u128(3), levels: base::Levels::OURS },
        lane,
    ))
}

fn serve<W>(session: &Arc<Session>, mut wire: W) -> JoinHandle<ConnectionEnd>
where
    W: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let session = Arc::clone(session);
    tokio::spawn(async move {
        let gossip = Arc::new(Gossip::default());
        let incoming = Incoming::new(session.lane.read_ahead());
        let mut role = Requester::new(Arc::clone(&session), gossip, std::future::pending().boxed());
        let end = drive(&mut wire, incoming, &session.outbox, &mut role).await;
        session.end(&end);
        end
    })
}

async fn send_request(session: &Session, bytes: usize, within: Duration) -> Result<(), LostReply> {
    let message = Message::from_head(vec![0; bytes]);
    let room = async { session.window.fill(session.window.place().await?, bytes).await };
    let closed = |_| LostReply::Ended(session.ended().unwrap_or(ConnectionEnd::Here));
    let slot = room.await.map_err(closed)?;
    let answer = session.request(0, message, Instant::now() + within, slot);
    let answered = answer.map_err(LostReply::Ended)?.await;
    answered.expect("everything is answered").map(drop)
}

async fn send(peer: &mut DuplexStream, kind: Kind) {
    let mut unsent = gateway::UnsentOutput::default();
    let frame = crate::frame::QueuedFrame::bare(kind);
    crate::frame::write_frame(frame, Instant::now(), &mut unsent);
    let mut bytes = Vec::new();
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(unsent.poll_write(&mut context, &mut bytes).is_ready());
    let _ = peer.write_all(&bytes).await;
}

#[tokio::test(start_paused = true)]
async fn peer_that_reads_no_requests_is_disconnected_and_its_queue_is_bounded() {
    let session = session(Lane::Proxy);
    let (mut peer, wire) = duplex(64 << 10);
    let ends = serve(&session, wire);
    let asking: Vec<_> = (0..64)
        .map(|_| {
            let session = Arc::clone(&session);
            tokio::spawn(
                async move { send_request(&session, 1 << 20, Duration::from_secs(600)).await },
            )
        })
        .collect();
    let began = Instant::now();
    while !ends.is_finished() {
        assert!(session.outbox.held() <= LINK_REQUESTS_BYTES_MAX + 4_096);
        send(&mut peer, Kind::Ping).await;
        sleep(Duration::from_millis(200)).await;
    }
    assert!(began.elapsed() >= LINK_PROGRESS_WITHIN);
    assert_eq!(ends.await.expect("no panic"), ConnectionEnd::Stalled);
    for asks in asking {
        assert_eq!(asks.await.expect("no panic"), Err(LostReply::Ended(ConnectionEnd::Stalled)));
    }
    assert_eq!(session.outbox.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn request_that_expires_in_the_queue_is_not_sent() {
    let session = session(Lane::Proxy);
    let (mut peer, wire) = duplex(1_024);
    let ends = serve(&session, wire);
    let first = tokio::spawn({
        let session = Arc::clone(&session);
        async move { send_request(&session, 1 << 20, Duration::from_secs(600)).await }
    });
    sleep(Duration::from_millis(1)).await;
    let second = tokio::spawn({
        let session = Arc::clone(&session);
        async move { send_request(&session, 100, Duration::from_millis(500)).await }
    });
    sleep(Duration::from_millis(600)).await;
    let mut received = vec![0; (1 << 20) + HEADER_BYTES + 12];
    tokio::io::AsyncReadExt::read_exact(&mut peer, &mut received).await.expect("read");
    assert_eq!(second.await.expect("no panic"), Err(LostReply::NotSent));
    drop(peer);
    assert_eq!(ends.await.expect("no panic"), ConnectionEnd::Closed);
    assert_eq!(first.await.expect("no panic"), Err(LostReply::Ended(ConnectionEnd::Closed)));
}

#[tokio::test(start_paused = true)]
async fn peer_that_leaves_an_expired_request_unanswered_is_disconnected() {
    let session = session(Lane::Control);
    let (mut peer, wire) = duplex(64 << 10);
    let ends = serve(&session, wire);
    let within = Duration::from_secs(5);
    let asks = tokio::spawn({
        let session = Arc::clone(&session);
        async move { send_request(&session, 10, within).await }
    });
    let began = Instant::now();
    while !ends.is_finished() {
        send(&mut peer, Kind::Ping).await;
        sleep(Duration::from_millis(200)).await;
    }
    assert!(began.elapsed() >= within + LINK_PROGRESS_WITHIN);
    assert_eq!(asks.await.expect("no panic"), Err(LostReply::Ended(ConnectionEnd::Stalled)));
}

#[tokio::test(start_paused = true)]
async fn frames_of_the_requesting_side_from_the_peer_close_the_connection() {
    for kind in [Kind::Request, Kind::Append, Kind::Gossip, Kind::Welcome] {
        let (mut peer, wire) = duplex(1_024);
        let ends = serve(&session(Lane::Control), wire);
        send(&mut peer, kind).await;
        let violation = Violation::Kind { kind: kind as u8 };
        assert_eq!(ends.await.expect("no panic"), ConnectionEnd::Violation(violation));
    }
}

/// A socket that reads nothing and accepts every write, and records the bytes of each call.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

impl AsyncRead for Writes {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Writes {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let written = bytes.len();
        self.0.lock().push(bytes);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn queued_frames_are_sent_in_one_write_in_the_order_of_their_numbers() {
    let session = session(Lane::Control);
    let writes = Writes::default();
    let requests = LINK_CONTROL_REQUESTS_MAX;
    let asking: Vec<_> = (0..requests)
        .map(|_| {
            let session = Arc::clone(&session);
            tokio::spawn(async move { send_request(&session, 8, Duration::from_secs(600)).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let ends = serve(&session, writes.clone());
    sleep(Duration::from_millis(1)).await;
    let written = writes.0.lock().clone();
    let [bytes] = &written[..] else { panic!("{} writes", written.len()) };
    let frames = bytes.chunks(HEADER_BYTES + 12 + 8);
    let numbers = frames.map(|frame| {
        let header = frame.first_chunk().expect("a header");
        Header::decode(header).expect("a header").number
    });
    assert!(numbers.eq(0..requests as u32));
    ends.abort();
    drop(asking);
}
