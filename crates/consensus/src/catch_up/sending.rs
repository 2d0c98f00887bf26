//! Replies to members that fetch a snapshot of this one, piece by piece.

use std::io;

use base::limits::SNAPSHOT_PIECE_BYTES;
use bytes::Bytes;
use journal::transfer::Section;
use tasks::Task;

use crate::consensus::Consensus;
use crate::message::{
    CoveringRequest, ManifestRecord, ManifestRequest, PieceRecord, Refusal, Reply, Request,
    SectionRequest, SegmentRequest,
};
use crate::peers::BulkReply;

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
