//! Transfer of another member's snapshot to this one.
//!
//! Nothing received is trusted: each piece has its checksum and its order, and a batch must be one that the
//! snapshot has. An invalid piece is requested again. If that does not help, the attempt is over, and the next one
//! resumes behind the segments that are here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::checksum::crc32c;
use base::limits::APPEND_MESSAGE_BYTES_MAX;
use bytes::Bytes;
use journal::transfer::{Import, ImportError, ReceivedSections, Repair, RepairDeferral, Section};
use openraft::async_runtime::WatchReceiver;
use tasks::Task;
use thiserror::Error;
use tokio::time::sleep;

use crate::consensus::Consensus;
use crate::encoding::{self, Position};
use crate::engine::SnapshotMeta;
use crate::error::{RestoreError, SnapshotError};
use crate::message::{
    ManifestRecord, ManifestRequest, PieceRecord, Refusal, Reply, Request, SectionRequest,
    SegmentRequest,
};
use crate::peers::{BulkReply, MessageTarget, PeerError};
use crate::replica::{Image, ReadySnapshot};
use crate::transfer::Fetch;

/// Time limit of a reply: a piece on a slow wire, from a busy disk.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Requests for the same piece, after which the attempt is over.
const ASKED_TIMES: u32 = 10;
const SEGMENT_TIMES: u32 = 3;

/// Reason why an attempt is over.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    #[error("it does not offer it any more")]
    NotOffered,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("the other member refuses: {0}")]
    Refused(Refusal),
    #[error("the other member sends something else than was asked for: {0}")]
    Wrong(&'static str),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("this member's own state cannot be saved: {0}")]
    Own(#[from] SnapshotError),
    #[error("the state in it cannot be used: {0}")]
    Restore(#[from] RestoreError),
    #[error("the disk has no room for it")]
    NoRoom,
    #[error("it was overtaken")]
    Overtaken,
    #[error("this member has stopped")]
    Stopped,
    #[error("this member is being sent a snapshot")]
    CatchingUp,
    #[error("there is no other member")]
    NobodyElse,
    #[error("the log does not let go of it yet ({0:?})")]
    InUse(RepairDeferral),
    #[error("this member lacks entries that the other one has applied")]
    Behind,
    #[error("a partition has left and come back since a former attempt; all is asked for again")]
    Renewed,
}

/// The member that a request goes to, as long as its reply is wanted.
pub(super) trait Source: Sync {
    fn target(&self) -> &MessageTarget;

    fn is_wanted(&self) -> bool {
        true
    }
}

impl Source for MessageTarget {
    fn target(&self) -> &MessageTarget {
        self
    }
}

/// Receives the rows of another member's segment.
pub(super) trait SegmentReceiver: Send + 'static {
    fn push(&mut self, piece: Bytes) -> Result<(), ImportError>;
    fn finish_segment(&mut self) -> Result<(), ImportError>;
}

impl SegmentReceiver for Import {
    fn push(&mut self, piece: Bytes) -> Result<(), ImportError> {
        Import::push(self, piece)
    }

    fn finish_segment(&mut self) -> Result<(), ImportError> {
        Import::finish_segment(self)
    }
}

impl SegmentReceiver for Repair {
    fn push(&mut self, piece: Bytes) -> Result<(), ImportError> {
        Repair::push(self, piece)
    }

    fn finish_segment(&mut self) -> Result<(), ImportError> {
        Repair::finish_segment(self)
    }
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        Self::Import(ImportError::Io(error))
    }
}

impl Consensus {
    /// Runs until the snapshot is installed.
    pub(super) async fn fetch_snapshot(&self, fetch: &Fetch) -> Result<(), FetchError> {
        // The transfer begins behind it, also after a crash.
        self.snapshots.take(&self.raft).await?;
        let mut import = self.begin_import().await?;
        let asked = Request::Manifest(ManifestRequest { have: import.have() });
        let (reply, _) = self.request(fetch, asked).await?;
        let Reply::Manifest(manifest) = reply else { return Err(FetchError::Wrong("no manifest")) };
        let id = manifest.id();
        if id.term > fetch.leader().leader_id.term {
            return Err(FetchError::Wrong("a snapshot of a later term than the leader's"));
        }
        if self.has(Position { term: id.term, index: id.index }) {
            return Err(FetchError::Overtaken);
        }
        let live = self.section(fetch, &manifest, Section::Live).await?;
        let segments = self.section(fetch, &manifest, Section::Segments).await?;
        let expected;
        (import, expected) =
            self.with_import(import, move |import| import.expect(id, &live, &segments)).await?;
        expected?;
        let mut failures = 0;
        while let Some(segment) = import.next_segment() {
            fetch.is_at(import.progress());
            let result;
            (import, result) = self.segment(fetch, import, manifest.sending, segment).await?;
            match result {
                Ok(()) => {
                    failures = 0;
                    self.reception.made_progress();
                }
                Err(ImportError::Refused(what)) if failures < SEGMENT_TIMES => {
                    failures += 1;
                    tracing::warn!(what, segment, "a segment from another member is begun again");
                }
                Err(error) => return Err(error.into()),
            }
        }
        fetch.is_at(import.progress());
        let meta = self.section(fetch, &manifest, Section::Meta).await?;
        let machine = self.section(fetch, &manifest, Section::Machine).await?;
        self.install(fetch, import, ReceivedSections { id, meta, machine }).await
    }

    async fn begin_import(&self) -> Result<Import, FetchError> {
        for _ in 0..ASKED_TIMES {
            let journal = self.journal.clone();
            let begun = self.workers.blocking(Task::ConsensusDisk, move || journal.import()).await;
            match begun.map_err(|_| FetchError::Stopped)? {
                // A former attempt is about to end.
                Err(ImportError::Busy) => sleep(ASKED_AGAIN_AFTER).await,
                begun => return Ok(begun?),
            }
        }
        Err(ImportError::Busy.into())
    }

    /// Runs blocking work on the import.
    async fn with_import<I: Send + 'static, T: Send + 'static>(
        &self,
        mut import: I,
        work: impl FnOnce(&mut I) -> T + Send + 'static,
    ) -> Result<(I, T), FetchError> {
        let work = move || {
            let done = work(&mut import);
            (import, done)
        };
        let done = self.workers.blocking(Task::ConsensusDisk, work).await;
        done.map_err(|_| FetchError::Stopped)
    }

    /// Repeats a request until the other member replies. A refused request is not repeated.
    pub(super) async fn request(
        &self,
        source: &impl Source,
        request: Request,
    ) -> Result<(Reply, Bytes), FetchError> {
        let from = source.target();
        let mut failures = 0;
        loop {
            if !source.is_wanted() {
                return Err(FetchError::NotOffered);
            }
            let message = self.route.encode(from.node, request.clone());
            let fetched = self.peers.fetch(from.clone(), message, ANSWERED_WITHIN).await;
            let BulkReply { head, piece } = match fetched {
                Ok(fetched) => fetched,
                Err(error) if failures >= ASKED_TIMES => return Err(error.into()),
                Err(_) => {
                    failures += 1;
                    sleep(ASKED_AGAIN_AFTER).await;
                    continue;
                }
            };
            return match self.route.decode(&head) {
                Ok((_, Reply::Refused(refusal))) => Err(FetchError::Refused(refusal)),
                Ok((sender, _)) if sender != from.node => {
                    Err(FetchError::Wrong("an answer of another node"))
                }
                Ok(_) if piece.len() > APPEND_MESSAGE_BYTES_MAX => {
                    Err(FetchError::Wrong("a piece that is too long"))
                }
                Ok((_, reply)) => Ok((reply, piece)),
                Err(refusal) => Err(FetchError::Refused(refusal)),
            };
        }
    }

    pub(super) async fn section(
        &self,
        fetch: &impl Source,
        manifest: &ManifestRecord,
        section: Section,
    ) -> Result<Bytes, FetchError> {
        let size = manifest.sections[section as usize];
        let mut bytes: Vec<u8> = Vec::new();
        while (bytes.len() as u64) < size.bytes {
            let (sending, section, from) = (manifest.sending, section as u8, bytes.len() as u64);
            let asked = Request::Section(SectionRequest { sending, section, from });
            let (reply, piece) = self.request(fetch, asked).await?;
            let left = size.bytes - from;
            if !matches!(reply, Reply::Piece(_)) || piece.is_empty() || piece.len() as u64 > left {
                return Err(FetchError::Wrong("another part of the snapshot"));
            }
            bytes.extend_from_slice(&piece);
            self.pace.took(piece.len()).await;
        }
        match crc32c(&bytes) == size.crc {
            true => Ok(bytes.into()),
            false => Err(FetchError::Wrong("a part of the snapshot with another checksum")),
        }
    }

    /// Fetches all rows of a segment. The inner result is that of this member's copy.
    pub(super) async fn segment<I: SegmentReceiver>(
        &self,
        fetch: &impl Source,
        mut import: I,
        sending: u64,
        segment: u64,
    ) -> Result<(I, Result<(), ImportError>), FetchError> {
        let mut row = 0;
        loop {
            let asked = Request::Segment(SegmentRequest { sending, segment, row });
            let (reply, piece) = self.request(fetch, asked).await?;
            let Reply::Piece(PieceRecord { next }) = reply else {
                return Err(FetchError::Wrong("no piece of a segment"));
            };
            if next.is_some_and(|next| next <= row) {
                return Err(FetchError::Wrong("a segment that comes to no end"));
            }
            let bytes = piece.len();
            let push = move |import: &mut I| {
                import.push(piece)?;
                if next.is_none() { import.finish_segment() } else { Ok(()) }
            };
            let pushed;
            (import, pushed) = self.with_import(import, push).await?;
            self.pace.took(bytes).await;
            match (pushed, next) {
                (Ok(()), Some(next)) => row = next,
                (result, _) => return Ok((import, result)),
            }
        }
    }

    /// Hands the complete snapshot to the engine, which orders it between applied entries.
    async fn install(
        &self,
        fetch: &Fetch,
        import: Import,
        received: ReceivedSections,
    ) -> Result<(), FetchError> {
        let meta = encoding::decode_snapshot_meta(&received.meta)
            .map_err(|_| FetchError::Wrong("members that make no sense"))?;
        let id = received.id;
        let last = Position { term: id.term, index: id.index };
        if meta.last_log_id.map(Position::from) != Some(last) {
            return Err(FetchError::Wrong("the members of another entry"));
        }
        let machine = Arc::clone(&self.machine);
        let (import, (received, replace, has_room)) = self
            .with_import(import, move |import| {
                let replace = machine.replace(received.id.index, &received.machine);
                let has_room = import.has_room(&received);
                (received, replace, has_room)
            })
            .await?;
        if !has_room {
            return Err(FetchError::NoRoom);
        }
        let replace = replace?;
        if import.is_resumed() && !(replace.renewed)().is_empty() {
            let discard = move || import.discard();
            let discarded = self.workers.blocking(Task::ConsensusDisk, discard).await;
            discarded.map_err(|_| FetchError::Stopped)??;
            return Err(FetchError::Renewed);
        }
        let ready = ReadySnapshot { import, received, replace };
        self.hand_over(fetch, meta, last, ready).await
    }

    async fn hand_over(
        &self,
        fetch: &Fetch,
        meta: SnapshotMeta,
        last: Position,
        ready: ReadySnapshot,
    ) -> Result<(), FetchError> {
        // The engine trusts that a leader owns the entries that come with its vote.
        let leader = fetch.leader();
        let own = self.server.borrow_watched().vote;
        if last.term > leader.leader_id.term || own > leader || self.has(last) {
            return Err(FetchError::Overtaken);
        }
        self.log.expect_install(last.index);
        let snapshot = openraft::Snapshot { meta, snapshot: Image::of(ready) };
        let answered = self.raft.install_full_snapshot(leader, snapshot).await;
        answered.map_err(|_| FetchError::Stopped)?;
        match self.has(last) {
            true => Ok(()),
            false => Err(FetchError::Overtaken),
        }
    }
}
