//! Snapshots that this member sends, each to one other member, on its request.

use std::io;
use std::sync::Arc;

use crate::limits::{SNAPSHOT_HELD_FOR, SNAPSHOT_IDLE_AFTER, SNAPSHOTS_SENT_MAX};
use base::limits::SNAPSHOT_PIECE_BYTES;
use bytes::Bytes;
use journal::transfer::{Export, Section};
use parking_lot::Mutex;
use tasks::Task;
use world::Instant;

use super::BulkReply;
use crate::consensus::Consensus;
use crate::message::{
    CoveringRequest, ManifestRecord, ManifestRequest, PieceRecord, Refusal, Reply, Request,
    SectionRequest, SegmentRequest,
};

/// The snapshots held for members. A snapshot without requests is dropped after a while.
#[derive(Debug)]
pub(crate) struct OutgoingSnapshots {
    state: Mutex<State<Arc<Mutex<Export>>>>,
}

#[derive(Debug)]
struct State<E> {
    /// Numbers are unique over the runs of this node.
    next: u64,
    held: Vec<OpenExport<E>>,
}

#[derive(Debug)]
struct OpenExport<E> {
    number: u64,
    to: u64,
    asked: Instant,
    export: E,
}

impl<E> State<E> {
    /// Replaces an earlier one for the same member, or the one without requests for the longest time: most members
    /// that have received a snapshot request nothing more.
    fn hold(&mut self, to: u64, export: E) -> Result<u64, Refusal> {
        self.held.retain(|held| held.to != to);
        if self.held.len() >= SNAPSHOTS_SENT_MAX {
            let idle = (0..self.held.len()).min_by_key(|&place| self.held[place].asked);
            match idle.filter(|&place| self.held[place].asked.elapsed() >= SNAPSHOT_IDLE_AFTER) {
                Some(place) => drop(self.held.swap_remove(place)),
                None => return Err(Refusal::NotHeld),
            }
        }
        let number = self.next;
        self.next += 1;
        self.held.push(OpenExport { number, to, asked: Instant::now(), export });
        Ok(number)
    }
}

impl OutgoingSnapshots {
    /// `first`: drawn by this run of the node.
    pub(crate) fn new(first: u64) -> Self {
        // It counts up from there, and is encoded in 8 bytes.
        Self { state: Mutex::new(State { next: first >> 1, held: Vec::new() }) }
    }

    fn hold(&self, to: u64, export: Export) -> Result<u64, Refusal> {
        self.state.lock().hold(to, Arc::new(Mutex::new(export)))
    }

    fn held(&self, to: u64, number: u64) -> Result<Arc<Mutex<Export>>, Refusal> {
        let mut state = self.state.lock();
        let held = state.held.iter_mut().find(|held| (held.number, held.to) == (number, to));
        let held = held.ok_or(Refusal::NotHeld)?;
        held.asked = Instant::now();
        Ok(Arc::clone(&held.export))
    }

    /// Drops snapshots without recent requests; to be called periodically.
    pub(crate) fn expire(&self) {
        self.state.lock().held.retain(|held| held.asked.elapsed() < SNAPSHOT_HELD_FOR);
    }
}

impl Consensus {
    /// Replies to another member's request for a part of a snapshot. Every message gets a reply.
    pub async fn answer_fetch(&self, request: Bytes) -> BulkReply {
        let (from, answer) = match self.route.decode(&request) {
            Ok((from, request)) => (from, self.fetched(from, request).await),
            Err(refusal) => (u64::MAX, Err(refusal)),
        };
        let (reply, piece) = answer.unwrap_or_else(|refusal| {
            tracing::debug!(from, %refusal, "a piece of a snapshot is not sent");
            (Reply::Refused(refusal), Bytes::new())
        });
        BulkReply { head: self.route.encode(from, reply), piece }
    }

    async fn fetched(&self, from: u64, request: Request) -> Result<(Reply, Bytes), Refusal> {
        match request {
            Request::Covering(CoveringRequest { have, up_to }) => {
                self.cover(up_to).await?;
                self.manifest(from, have).await
            }
            Request::Manifest(ManifestRequest { have }) => self.manifest(from, have).await,
            Request::Section(SectionRequest { sending, section, from: place }) => {
                let section = Section::ALL.get(usize::from(section)).copied();
                let section = section.ok_or_else(no_such_place)?;
                let export = self.sending.held(from, sending)?;
                let read = move || export.lock().section(section, place, SNAPSHOT_PIECE_BYTES);
                let piece = self.blocking(read).await?;
                Ok((Reply::Piece(PieceRecord { next: None }), piece))
            }
            Request::Segment(SegmentRequest { sending, segment, row }) => {
                let export = self.sending.held(from, sending)?;
                let read = move || export.lock().segment(segment, row, SNAPSHOT_PIECE_BYTES);
                let piece = self.blocking(read).await?.ok_or_else(no_such_place)?;
                Ok((Reply::Piece(PieceRecord { next: piece.next }), piece.bytes))
            }
            _ => Err(Refusal::Malformed("it asks for no part of a snapshot".to_owned())),
        }
    }

    async fn manifest(&self, to: u64, have: u64) -> Result<(Reply, Bytes), Refusal> {
        let journal = self.journal.clone();
        let export = self.blocking(move || journal.export(have)).await?;
        let export = export.ok_or(Refusal::NotHeld)?;
        let manifest = export.manifest();
        let number = self.sending.hold(to, export)?;
        Ok((Reply::Manifest(ManifestRecord::new(number, &manifest)), Bytes::new()))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let done = self.workers.blocking(Task::ConsensusDisk, work).await;
        let done = done.map_err(|_| Refusal::Stopped)?;
        done.map_err(|error| {
            tracing::warn!(%error, "a snapshot cannot be read to be sent");
            let mut what = error.to_string();
            what.truncate(what.floor_char_boundary(200));
            Refusal::Disk(what)
        })
    }
}

fn no_such_place() -> Refusal {
    Refusal::Malformed("the snapshot has no such place".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_snapshot_makes_room_for_another_members() {
        let mut state = State { next: 7, held: Vec::new() };
        let most = SNAPSHOTS_SENT_MAX as u64;
        for member in 0..most {
            assert_eq!(state.hold(member, ()), Ok(7 + member));
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(state.hold(most, ()), Err(Refusal::NotHeld), "all are being sent");
        assert_eq!(state.hold(0, ()), Ok(7 + most), "a member has one");
        advance(SNAPSHOT_IDLE_AFTER - Duration::from_secs(3)).await;
        assert_eq!(state.hold(most, ()), Ok(8 + most), "the first one's is idle by now");
        let held: Vec<u64> = state.held.iter().map(|held| held.to).collect();
        assert!(!held.contains(&1) && held.contains(&0) && held.len() == SNAPSHOTS_SENT_MAX);
    }
}
