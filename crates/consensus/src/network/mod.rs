//! openraft's links to the other members, on [`Peers`].
//!
//! * `confirmed`: entries that a member acknowledged to this leader
//! * `window`: limit of unanswered appends
//!
//! It depends on `message`, `peers`, `replica` and `retention`.

mod confirmed;
mod window;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{BasicNode, OptionalSend};
use tokio::sync::oneshot;

use crate::encoding::VoteRecord;
use crate::engine::TypeConfig;
use crate::group::Group;
use crate::message::{
    self, Append, AppendResponse, Candidacy, Entries, GroupId, OfferReply, Refusal, Reply, Request,
    Route, SnapshotOffer, Transfer, TransferReply, encode_entries,
};
use crate::peers::{AppendMessage, MessageTarget, NoPeers, PeerError, Peers};
use crate::replica::Image;
use crate::retention::{CatchUp, Retention};

use confirmed::{AcknowledgedIndex, ConfirmedBy};

pub(crate) use window::{UnansweredAppend, Window};

/// How often a snapshot is offered to a member without it, and the time limit of the reply.
const OFFERED_EVERY: Duration = Duration::from_secs(1);
const OFFER_ANSWERED_WITHIN: Duration = Duration::from_secs(2);

const PURGED: &str = "the member lacks entries that are being purged";

/// Creates links.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) route: Route,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) confirmed: ConfirmedBy,
}

/// A link to one member.
pub(crate) struct Link {
    target: MessageTarget,
    links: Links,
    confirmed: Arc<AcknowledgedIndex>,
}

type RpcFailure = RPCError<TypeConfig>;
type AppendResult = Result<StreamAppendResult<TypeConfig>, RpcFailure>;

impl RaftNetworkFactory<TypeConfig> for Links {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link {
        let target = MessageTarget { node: target, address: node.addr.clone() };
        let confirmed = self.confirmed.of(target.node);
        Link { target, links: self.clone(), confirmed }
    }
}

/// The engine waits before a retry only if a peer is unreachable.
fn failed(error: PeerError) -> RpcFailure {
    match error {
        PeerError::Unreachable(_) => Unreachable::new(&error).into(),
        PeerError::Broken(_) => NetworkError::new(&error).into(),
    }
}

/// The other end rejects the message, and will not accept it soon.
fn refused(node: u64, refusal: &Refusal) -> RpcFailure {
    tracing::warn!(node, %refusal, "a member of the group refuses a message");
    Unreachable::new(refusal).into()
}

/// The member lacks an entry that it acknowledged in this term.
fn lost(node: u64, index: u64) -> RpcFailure {
    tracing::error!(node, index, "a member of the group lacks entries that it acknowledged");
    Unreachable::from_string(format!("node {node} lacks entry {index}, which it acknowledged"))
        .into()
}

impl Links {
    /// The links of the engine. A group of one has no peers, and no name.
    pub(crate) fn of(group: Option<&Group>, node: u64, retention: &Arc<Retention>) -> Self {
        let (id, peers): (GroupId, Arc<dyn Peers>) = match group {
            Some(group) => (group.id, Arc::clone(&group.peers)),
            None => (GroupId { cluster: 0, shard: 0 }, Arc::new(NoPeers)),
        };
        let route = Route { group: id, here: node };
        let confirmed = ConfirmedBy::default();
        Self { route, peers, retention: Arc::clone(retention), confirmed }
    }

    fn reply(&self, node: u64, reply: &Bytes) -> Result<Reply, RpcFailure> {
        let decoded = self.route.decode(reply);
        let (from, reply) = decoded.map_err(|refusal| refused(node, &refusal))?;
        match reply {
            Reply::Refused(refusal) => Err(refused(node, &refusal)),
            reply if from == node => Ok(reply),
            _ => Err(refused(node, &Refusal::OtherNode)),
        }
    }

    /// The reply to the first unanswered append of the window.
    fn appended(
        &self,
        node: u64,
        window: &Window,
        confirmed: &AcknowledgedIndex,
        answer: Result<Bytes, PeerError>,
    ) -> AppendResult {
        let unexpected = || refused(node, &Refusal::Malformed("it was not requested".to_owned()));
        let sent = window.pop();
        let reply = self.reply(node, &answer.map_err(failed)?)?;
        let sent = sent.ok_or_else(unexpected)?;
        match reply {
            Reply::Append(AppendResponse::Matches(last)) => {
                let last = message::log_ids(last);
                if last > sent.last {
                    return Err(unexpected());
                }
                confirmed.advance(last, sent.term);
                Ok(Ok(last))
            }
            // The engine would search below the confirmed entry, without end and without a message.
            Reply::Append(AppendResponse::Conflict(at))
                if sent.confirmed >= Some(at.index) && self.retention.is_voter(node) =>
            {
                self.retention.found_lost(node);
                Err(lost(node, at.index))
            }
            Reply::Append(AppendResponse::Conflict(at)) => {
                Ok(Err(StreamAppendError::Conflict(at.into())))
            }
            Reply::Append(AppendResponse::HigherVote(vote)) => {
                Ok(Err(StreamAppendError::HigherVote(vote.into())))
            }
            _ => Err(unexpected()),
        }
    }

    fn encode(
        &self,
        node: u64,
        append: &AppendEntriesRequest<TypeConfig>,
    ) -> (AppendMessage, usize) {
        let Entries { pieces, bytes } = encode_entries(&append.entries);
        let head = Append {
            leader: VoteRecord::from(&append.vote),
            previous: message::positions(append.prev_log_id),
            committed: message::positions(append.leader_commit),
            entries: append.entries.len() as u32,
            with_all: self.retention.with_all(),
        };
        let head = self.route.encode(node, Request::Append(head));
        (AppendMessage { head, entries: pieces }, bytes)
    }
}

impl Link {
    async fn request(&self, request: Request, option: &RPCOption) -> Result<Reply, RpcFailure> {
        let Self { target, links, .. } = self;
        let request = links.route.encode(target.node, request);
        let answer = links.peers.request(target.clone(), request, option.hard_ttl());
        links.reply(target.node, &answer.await.map_err(failed)?)
    }

    async fn campaign(
        &self,
        rpc: VoteRequest<TypeConfig>,
        option: &RPCOption,
        request: fn(Candidacy) -> Request,
    ) -> Result<VoteResponse<TypeConfig>, RpcFailure> {
        let candidacy = Candidacy {
            vote: VoteRecord::from(&rpc.vote),
            last: message::positions(rpc.last_log_id),
            transfer: rpc.leadership_transfer,
        };
        match self.request(request(candidacy), option).await? {
            Reply::Vote { vote, granted, last } => Ok(VoteResponse {
                vote: vote.into(),
                vote_granted: granted,
                last_log_id: message::log_ids(last),
            }),
            _ => Err(self.other_reply()),
        }
    }

    fn other_reply(&self) -> RpcFailure {
        refused(self.target.node, &Refusal::Malformed("it answers another request".to_owned()))
    }
}

impl NetBackoff<TypeConfig> for Link {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl NetStreamAppend<TypeConfig> for Link {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, AppendResult>, RpcFailure>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let (window, links, target) =
            (Arc::new(Window::default()), self.links.clone(), self.target.clone());
        let confirmed = Arc::clone(&self.confirmed);
        Box::pin(async move {
            let mut input = input;
            // Before the connection: the engine waits in here after a failure.
            let Some(first) = input.next().await else { return Ok(stream::empty().boxed()) };
            let (purged, ended_by_purge) = oneshot::channel();
            let state = OutgoingAppends {
                input: stream::iter([first]).chain(input),
                links: links.clone(),
                confirmed: Arc::clone(&confirmed),
                window: Arc::clone(&window),
                is_first: true,
                purged: Some(purged),
            };
            let node = target.node;
            let appends = stream::unfold(state, move |mut state| async move {
                let OutgoingAppends { input, links, window, confirmed, is_first, purged } =
                    &mut state;
                window.room().await;
                let append = input.next().await?;
                // A heartbeat is the first of a stream of its own.
                let goes_on = std::mem::replace(is_first, false)
                    || links.retention.keeps_entry_after(append.prev_log_id);
                if !goes_on {
                    let _ = purged.take().map(|purged| purged.send(()));
                    return None;
                }
                let last = append.entries.last().map(|entry| entry.log_id).or(append.prev_log_id);
                let (message, bytes) = links.encode(node, &append);
                let term = append.vote.leader_id.term;
                window.push(UnansweredAppend { bytes, last, term, confirmed: confirmed.at(term) });
                Some((message, state))
            });
            let answers = links.peers.append(target, appends.boxed()).await.map_err(failed)?;
            let results =
                answers.map(move |answer| links.appended(node, &window, &confirmed, answer));
            // The engine does not purge entries that a stream may send: only an error reports the end of the
            // stream.
            let results = results.chain(stream::once(ended_by_purge).filter_map(async |ended| {
                ended.ok().map(|()| Err(NetworkError::from_string(PURGED).into()))
            }));
            // Results behind an error belong to no pending append of the engine.
            Ok(until_first_error(results).boxed())
        })
    }
}

/// State of a stream of appends.
struct OutgoingAppends<S> {
    input: S,
    links: Links,
    window: Arc<Window>,
    confirmed: Arc<AcknowledgedIndex>,
    is_first: bool,
    /// Signals that the stream ends because the next entry is being purged.
    purged: Option<oneshot::Sender<()>>,
}

fn until_first_error(
    results: impl Stream<Item = AppendResult> + Send + 'static,
) -> impl Stream<Item = AppendResult> + Send + 'static {
    stream::unfold(Some(results.boxed()), |results| async {
        let mut results = results?;
        let next = results.next().await?;
        let goes_on = matches!(next, Ok(Ok(_)));
        Some((next, goes_on.then_some(results)))
    })
}

impl NetVote<TypeConfig> for Link {
    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcFailure> {
        self.campaign(rpc, &option, Request::Vote).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcFailure> {
        self.campaign(rpc, &option, Request::PreVote).await
    }
}

impl NetSnapshot<TypeConfig> for Link {
    type SnapshotData = Image;

    /// Offers the snapshot until the member has it: the member fetches it.
    async fn full_snapshot(
        &mut self,
        vote: VoteOf<TypeConfig>,
        snapshot: SnapshotOf<TypeConfig, Image>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let (here, node) = (self.links.route.here, self.target.node);
        let members = snapshot.meta.last_membership.membership();
        let address = members.get_node(&here).map(|it| it.addr.clone()).unwrap_or_default();
        let last = message::positions(snapshot.meta.last_log_id);
        let offer = SnapshotOffer { leader: VoteRecord::from(&vote), last, address };
        let answered = RPCOption::new(OFFER_ANSWERED_WITHIN);
        let mut cancel = std::pin::pin!(cancel);
        loop {
            match self.request(Request::Snapshot(offer.clone()), &answered).await? {
                Reply::Offered(OfferReply::UnderWay { bytes, of_bytes }) => {
                    self.links.retention.catches_up(node, CatchUp { bytes, of_bytes });
                }
                Reply::Offered(OfferReply::Has) => {
                    self.links.retention.caught_up(node);
                    return Ok(SnapshotResponse::new(vote));
                }
                Reply::Offered(OfferReply::HigherVote(higher)) => {
                    return Ok(SnapshotResponse::new(higher.into()));
                }
                _ => return Err(self.other_reply().into()),
            }
            tokio::select! {
                biased;
                closed = &mut cancel => return Err(closed.into()),
                () = tokio::time::sleep(OFFERED_EVERY) => {}
            }
        }
    }
}

impl NetTransferLeader<TypeConfig> for Link {
    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcFailure> {
        let transfer = Transfer {
            leader: VoteRecord::from(req.from_leader()),
            to: *req.to_node_id(),
            last: message::positions(req.last_log_id().copied()),
        };
        match self.request(Request::Transfer(transfer), &option).await? {
            Reply::Transfer(TransferReply::Taken) => Ok(Ok(())),
            Reply::Transfer(TransferReply::VoteChanged { expected, actual }) => {
                let (expected, actual) = (expected.into(), actual.into());
                Ok(Err(TransferLeaderError::VoteChanged { expected, actual }))
            }
            Reply::Transfer(TransferReply::NotDurable { expected, actual }) => {
                let (expected, actual) = (message::log_ids(expected), message::log_ids(actual));
                Ok(Err(TransferLeaderError::LogNotFlushed { expected, actual }))
            }
            _ => Err(self.other_reply()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn send_without_a_link_reports_the_node_as_unreachable() {
        let node = BasicNode { addr: "b:9".to_owned() };
        let group = GroupId { cluster: 1, shard: 0 };
        let retention = Arc::new(Retention::new(0));
        let route = Route { group, here: 1 };
        let confirmed = ConfirmedBy::default();
        let mut links = Links { route, peers: Arc::new(NoPeers), retention, confirmed };
        let mut link = links.new_client(2, &node).await;
        let request = VoteRequest::new(openraft::Vote::new(1, 1), None);
        let refused = link.vote(request, RPCOption::new(Duration::from_secs(1))).await.unwrap_err();
        assert!(matches!(refused, RPCError::Unreachable(_)));
        assert!(refused.to_string().contains("node 2 at 'b:9'"), "{refused}");
    }
}
