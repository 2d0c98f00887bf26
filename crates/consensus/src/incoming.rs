//! Requests of other members, and this member's replies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits::APPEND_MESSAGE_BYTES_MAX;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, TransferLeaderError, TransferLeaderRequest,
    VoteRequest,
};
use parking_lot::Mutex;

use crate::consensus::Consensus;
use crate::encoding::VoteRecord;
use crate::engine::TypeConfig;
use crate::message::{
    self, Append, AppendResponse, Candidacy, Refusal, Reply, Request, Transfer, TransferReply,
    decode_entries,
};
use crate::network::{UnansweredAppend, Window};
use crate::peers::ReceivedAppend;

type AppendRequest = AppendEntriesRequest<TypeConfig>;

impl Consensus {
    /// Replies to a request of another member. Every message gets a reply.
    pub async fn answer(&self, request: Bytes) -> Bytes {
        let (from, reply) = match self.route.decode(&request) {
            Ok((from, request)) => (from, self.answer_request(from, request).await),
            Err(refusal) => (NOT_KNOWN, Err(refusal)),
        };
        if let Err(refusal) = &reply {
            tracing::warn!(from, %refusal, "a message to this member of the group is refused");
        }
        self.route.encode(from, reply.unwrap_or_else(Reply::Refused))
    }

    fn has_stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Acquire)
    }

    async fn answer_request(&self, from: u64, request: Request) -> Result<Reply, Refusal> {
        match request {
            Request::Vote(candidacy) => {
                if let Some(refused) = self.refused_by_floor(&candidacy) {
                    return Ok(refused);
                }
                let voted = self.raft.vote(candidacy.into()).await;
                voted.map(Reply::from).map_err(|_| Refusal::Stopped)
            }
            Request::PreVote(candidacy) => {
                if let Some(refused) = self.refused_by_floor(&candidacy) {
                    return Ok(refused);
                }
                let voted = self.raft.pre_vote(candidacy.into()).await;
                voted.map(Reply::from).map_err(|_| Refusal::Stopped)
            }
            Request::Transfer(_) if self.is_below_floor() => Err(Refusal::Behind),
            Request::Transfer(Transfer { leader, to, last }) => {
                let last = message::log_ids(last);
                let request = TransferLeaderRequest::new(message::vote_of(leader), to, last);
                let taken = self.raft.handle_transfer_leader(request).await;
                let taken = taken.map_err(|_| Refusal::Stopped)?;
                Ok(Reply::Transfer(
                    taken.map_or_else(TransferReply::from, |()| TransferReply::Taken),
                ))
            }
            Request::Snapshot(offer) => self.answer_offer(from, offer).await,
            Request::Append(_)
            | Request::Manifest(_)
            | Request::Section(_)
            | Request::Segment(_)
            | Request::Covering(_) => {
                Err(Refusal::Malformed("it is no request of this kind".to_owned()))
            }
        }
    }

    /// Appends the messages of a stream in order, and replies to each once it is durable here, in the same order.
    /// Limits the appends in flight. Ends with the first one that is rejected.
    pub fn answer_appends(
        &self,
        appends: impl Stream<Item = ReceivedAppend> + Send + 'static,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        let this = AppendStream {
            consensus: self.clone(),
            window: Window::default(),
            end: Mutex::new(AppendStreamEnd { from: NOT_KNOWN, refusal: None }),
        };
        let this = Arc::new(this);
        let taken = Arc::clone(&this).take(appends.boxed());
        let results = self.raft.stream_append(taken);
        this.answers(results.boxed())
    }
}

/// Recipient of a reply to a message without a readable sender.
const NOT_KNOWN: u64 = u64::MAX;

/// State of a stream of appends.
struct AppendStream {
    consensus: Consensus,
    window: Window,
    end: Mutex<AppendStreamEnd>,
}

struct AppendStreamEnd {
    from: u64,
    /// The reason why the last one was rejected.
    refusal: Option<Refusal>,
}

type AppendResultStream = BoxStream<
    'static,
    Result<openraft::raft::StreamAppendResult<TypeConfig>, openraft::errors::Fatal<TypeConfig>>,
>;

impl AppendStream {
    fn take(
        self: Arc<Self>,
        appends: BoxStream<'static, ReceivedAppend>,
    ) -> impl Stream<Item = AppendRequest> + Send + 'static {
        stream::unfold((self, appends), |(this, mut appends)| async {
            this.window.room().await;
            let append = appends.next().await?;
            match this.decode(append) {
                Ok(append) => Some((append, (this, appends))),
                Err(refusal) => {
                    this.end.lock().refusal = Some(refusal);
                    None
                }
            }
        })
    }

    fn decode(&self, append: ReceivedAppend) -> Result<AppendRequest, Refusal> {
        let ReceivedAppend { head, entries } = append;
        let (from, request) = self.consensus.route.decode(&head)?;
        self.end.lock().from = from;
        // The engine would log each as an error of its own.
        if self.consensus.has_stopped() {
            return Err(Refusal::Stopped);
        }
        let Request::Append(Append { leader, previous, committed, entries: count, with_all }) =
            request
        else {
            return Err(Refusal::Malformed("it is no append".to_owned()));
        };
        if entries.len() > APPEND_MESSAGE_BYTES_MAX {
            return Err(Refusal::Malformed("it is too long".to_owned()));
        }
        let (bytes, previous) = (entries.len(), message::log_ids(previous));
        let entries = decode_entries(entries, count, previous, leader.term)?;
        let last = entries.last().map(|entry| entry.log_id).or(previous);
        self.window.push(UnansweredAppend { bytes, last, term: leader.term, confirmed: None });
        self.consensus.retention.set_with_all(with_all);
        self.consensus.note_leader(leader.term);
        Ok(AppendEntriesRequest {
            vote: message::vote_of(leader),
            prev_log_id: previous,
            leader_commit: message::log_ids(committed),
            entries,
        })
    }

    /// A reply for each accepted append, and a refusal for the rejected one.
    fn answers(
        self: Arc<Self>,
        results: AppendResultStream,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(Some((self, results)), |state| async {
            let (this, mut results) = state?;
            let reply = match results.next().await {
                Some(Ok(Ok(last))) => {
                    Reply::Append(AppendResponse::Matches(message::positions(last)))
                }
                Some(Ok(Err(StreamAppendError::Conflict(at)))) => {
                    Reply::Append(AppendResponse::Conflict(at.into()))
                }
                Some(Ok(Err(StreamAppendError::HigherVote(vote)))) => {
                    Reply::Append(AppendResponse::HigherVote(VoteRecord::from(&vote)))
                }
                Some(Err(_)) => Reply::Refused(Refusal::Stopped),
                None => Reply::Refused(this.end.lock().refusal.take()?),
            };
            this.window.pop();
            let goes_on = matches!(reply, Reply::Append(AppendResponse::Matches(_)));
            let from = this.end.lock().from;
            if let Reply::Refused(refusal) = &reply
                && !this.consensus.has_stopped()
            {
                tracing::warn!(from, %refusal, "entries for this member of the group are refused");
            }
            let reply = this.consensus.route.encode(from, reply);
            Some((reply, goes_on.then_some((this, results))))
        })
    }
}

impl From<Candidacy> for VoteRequest<TypeConfig> {
    fn from(Candidacy { vote, last, transfer }: Candidacy) -> Self {
        Self {
            vote: message::vote_of(vote),
            last_log_id: message::log_ids(last),
            leadership_transfer: transfer,
        }
    }
}

impl From<openraft::raft::VoteResponse<TypeConfig>> for Reply {
    fn from(voted: openraft::raft::VoteResponse<TypeConfig>) -> Self {
        Self::Vote {
            vote: VoteRecord::from(&voted.vote),
            granted: voted.vote_granted,
            last: message::positions(voted.last_log_id),
        }
    }
}

impl From<TransferLeaderError<TypeConfig>> for TransferReply {
    fn from(error: TransferLeaderError<TypeConfig>) -> Self {
        match error {
            TransferLeaderError::VoteChanged { expected, actual } => Self::VoteChanged {
                expected: VoteRecord::from(&expected),
                actual: VoteRecord::from(&actual),
            },
            TransferLeaderError::LogNotFlushed { expected, actual } => Self::NotDurable {
                expected: message::positions(expected),
                actual: message::positions(actual),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use journal::{Journal, Options};
    use world::{SimulatedDisk, World};

    use super::*;
    use crate::error::{ApplyError, RestoreError};
    use crate::floor::Floor;
    use crate::group::Group;
    use crate::machine::{CommittedEntry, Encode, Replace, StateMachine};
    use crate::message::{GroupId, Route};
    use crate::peers::NoPeers;
    use crate::starvation::Starvation;
    use crate::transfer::CatchUpPace;
    use crate::{Consensus, ConsensusOptions};

    const GROUP: GroupId = GroupId { cluster: 1, shard: 1 };

    struct NoMachine;

    impl StateMachine for NoMachine {
        fn apply(&self, _: CommittedEntry<'_>) -> Result<u64, ApplyError> {
            Ok(0)
        }

        fn capture(&self) -> Encode {
            Box::new(Bytes::new)
        }

        fn restore(&self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }

        fn replace(self: Arc<Self>, _: u64, _: &[u8]) -> Result<Replace, RestoreError> {
            Ok(Replace::new(|switch| switch()))
        }
    }

    async fn start(disk: &SimulatedDisk) -> Consensus {
        start_above(disk, None).await
    }

    async fn start_above(disk: &SimulatedDisk, floor: Option<Floor>) -> Consensus {
        let world = World::on(Arc::new(disk.clone()));
        let options =
            Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
        let opened = Journal::open(&world, Path::new("/shard"), options).unwrap();
        let group = Some(Group {
            id: GROUP,
            peers: Arc::new(NoPeers),
            pace: CatchUpPace::default(),
            starvation: Starvation::default(),
        });
        let options = ConsensusOptions { group, floor, ..ConsensusOptions::default() };
        Consensus::start(&world, 1, opened, Arc::new(NoMachine), options).await.unwrap()
    }

    /// Whether node 1 votes for the candidate in this term.
    async fn votes(consensus: &Consensus, candidate: u64, term: u64) -> bool {
        let there = Route { group: GROUP, here: candidate };
        let vote = VoteRecord { term, node: candidate, committed: false };
        let request = Request::Vote(Candidacy { vote, last: None, transfer: false });
        let answer = consensus.answer(there.encode(1, request)).await;
        match there.decode(&answer).unwrap() {
            (1, Reply::Vote { granted, .. }) => granted,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn vote_survives_a_crash_so_that_no_node_votes_twice_in_a_term() {
        for seed in 0..10 {
            let disk = SimulatedDisk::new();
            let consensus = start(&disk).await;
            assert!(votes(&consensus, 2, 5).await);
            assert!(!votes(&consensus, 3, 5).await);
            let disk = disk.power_loss(seed);
            let consensus = start(&disk).await;
            assert!(!votes(&consensus, 3, 5).await);
            assert!(!votes(&consensus, 3, 4).await);
            assert!(votes(&consensus, 2, 5).await, "the same vote is given again");
            assert!(votes(&consensus, 3, 6).await);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn vote_survives_the_deletion_of_the_log_and_power_losses() {
        for seed in 0..10 {
            let consensus = start(&SimulatedDisk::new()).await;
            assert!(votes(&consensus, 2, 5).await);
            let floor = Floor::of(&consensus.journal).unwrap();
            // Its files are gone.
            let mut disk = SimulatedDisk::new();
            for _ in 0..3 {
                let consensus = start_above(&disk, Some(floor)).await;
                assert!(!votes(&consensus, 3, 5).await && !votes(&consensus, 3, 4).await);
                disk = disk.power_loss(seed);
            }
            // A later vote is kept.
            let consensus = start_above(&disk, Some(floor)).await;
            assert!(votes(&consensus, 3, 6).await);
            let consensus = start_above(&disk.power_loss(seed), Some(floor)).await;
            assert!(!votes(&consensus, 2, 6).await);
        }
    }
}
