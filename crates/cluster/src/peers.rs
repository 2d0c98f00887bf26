//! Routes requests of a group to the nodes of its other members.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use consensus::peers::ReplyStream;
use consensus::{AppendMessage, BulkReply, MessageTarget, PeerError, Peers};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, Stream, StreamExt};
use links::{
    AppendError, AppendSender, Lane, Links, Message, NodeId, Peer, ReceivedMessage, Replies,
    RequestError,
};
use world::Instant;

use crate::wire::ControlRequest;

/// A lone append without a reply for this long did not reach the follower.
const HEARD_WITHIN: Duration = Duration::from_millis(800);
/// Time limit of a stream's connection; then consensus retries after a while.
const CONNECTED_WITHIN: Duration = Duration::from_millis(1_600);

/// The other members of one shard's group, reached by this node's links. Keeps no link alive: they end with
/// [`Links`], and later messages fail.
#[derive(Clone, Debug)]
pub struct LinkedPeers {
    links: Weak<Links>,
    shard: ShardId,
}

impl LinkedPeers {
    pub fn new(links: &Arc<Links>, shard: ShardId) -> Self {
        Self { links: Arc::downgrade(links), shard }
    }

    /// The links' address wins where the two differ: it is newer, because the addresses of members are stored
    /// once.
    fn peer(&self, to: &MessageTarget) -> Result<Peer, PeerError> {
        let gone = || PeerError::Unreachable("this node's links have ended".to_owned());
        let links = self.links.upgrade().ok_or_else(gone)?;
        let node = NodeId(to.node);
        let peer = links.peer(node).or_else(|| links.set_peer(node, &to.address));
        peer.ok_or_else(|| PeerError::Unreachable(format!("{node} is this node itself")))
    }
}

impl Peers for LinkedPeers {
    fn request(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>> {
        let (peer, shard) = (self.peer(&to), self.shard);
        async move { send_request(&peer?, shard, ControlRequest::Request(request), within).await }
            .boxed()
    }

    fn append(
        &self,
        to: MessageTarget,
        appends: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<ReplyStream, PeerError>> {
        let mut appends = appends.fuse();
        let (peer, shard) = (self.peer(&to), self.shard);
        async move {
            let peer = peer?;
            let Some(first) = appends.next().await else { return Ok(stream::empty().boxed()) };
            let begun = match appends.next().now_or_never() {
                // A lone append without entries is a heartbeat. It goes with the votes: on the other lane it would
                // wait behind bodies.
                Some(None) if first.entries.is_empty() => {
                    let answer = send_request(
                        &peer,
                        shard,
                        ControlRequest::AppendAlone(first.head),
                        HEARD_WITHIN,
                    );
                    return Ok(stream::iter([answer.await]).boxed());
                }
                Some(second) => [Some(first), second],
                None => [Some(first), None],
            };
            let begun = stream::iter(begun.into_iter().flatten());
            let streamed = peer.appends(shard, Instant::now() + CONNECTED_WITHIN).await;
            let (sender, replies) = streamed.map_err(not_answered)?;
            let sending = send(sender, begun.chain(appends).boxed());
            // Appends are sent while the replies are read.
            let failures = sending.into_stream().filter_map(async |sent| sent.err().map(Err));
            Ok(stream::select(failures.boxed(), answers(replies)).boxed())
        }
        .boxed()
    }

    fn fetch(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<BulkReply, PeerError>> {
        let (peer, shard) = (self.peer(&to), self.shard);
        async move {
            let (message, deadline) = (Message::from_head(request), Instant::now() + within);
            let answer = peer?.request(Lane::Bulk, shard, message, deadline).await;
            let ReceivedMessage { head, body } = answer.map_err(not_answered)?;
            Ok(BulkReply { head, piece: body })
        }
        .boxed()
    }
}

async fn send_request(
    peer: &Peer,
    shard: ShardId,
    asked: ControlRequest,
    within: Duration,
) -> Result<Bytes, PeerError> {
    let answer = peer.request(Lane::Control, shard, asked.into(), Instant::now() + within).await;
    answer.map(|received| received.head).map_err(not_answered)
}

/// Sends as the window allows: consensus builds an append only when there is a slot for it.
async fn send(
    mut sender: AppendSender,
    mut appends: BoxStream<'static, AppendMessage>,
) -> Result<(), PeerError> {
    loop {
        sender.ready().await.map_err(stream_ended)?;
        let Some(AppendMessage { head, entries }) = appends.next().await else { return Ok(()) };
        sender.send(Message { head, body: entries }).await.map_err(stream_ended)?;
    }
}

fn answers(replies: Replies) -> impl Stream<Item = Result<Bytes, PeerError>> + Send + 'static {
    stream::unfold(replies, |mut replies| async {
        let answer = replies.next().await?;
        Some((answer.map(|received| received.head).map_err(stream_ended), replies))
    })
}

fn not_answered(error: RequestError) -> PeerError {
    match error.is_not_sent() {
        true => PeerError::Unreachable(error.to_string()),
        false => PeerError::Broken(error.to_string()),
    }
}

fn stream_ended(error: AppendError) -> PeerError {
    PeerError::Broken(error.to_string())
}
