//! The Raft log, for consensus.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Journal;
use crate::damage::{Damage, is_loss};
use crate::encoded::Encoded;
use crate::entry::{Entry, EntryId};
use crate::error::{JournalFailed, ReadError};
use crate::frame::EncodedEntry;
use crate::index::files::parse_name;
use crate::log::TruncatedEntry;

impl Journal {
    /// Appends to the log. Readable on return; `durable` is called (from the journal's thread, in
    /// order) after the sync that covers the last of them. A failed sync poisons the journal: every
    /// callback gets the error, the `on_fatal` hook is called, nothing is ever acknowledged again.
    /// On an error here nothing was appended and `durable` is not called.
    ///
    /// Indexes are dense: an entry that does not follow the last one is a bug of the caller, and
    /// panics.
    pub fn append(
        &self,
        entries: Vec<Entry>,
        durable: impl FnOnce(Result<(), JournalFailed>) + Send + 'static,
    ) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        shared.check()?;
        // The checksums are computed here, outside of any lock.
        self.append_encoded(entries.into_iter().map(Encoded::new).collect(), durable)
    }

    /// Appends entries that are already encoded: those of another node are written as received.
    pub fn append_encoded(
        &self,
        entries: Vec<Encoded>,
        durable: impl FnOnce(Result<(), JournalFailed>) + Send + 'static,
    ) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        shared.check()?;
        let encoded: Vec<Arc<EncodedEntry>> = entries.into_iter().map(|entry| entry.0).collect();
        let bytes: u64 = encoded.iter().map(|entry| u64::from(entry.len)).sum();
        let mut log = shared.log.write();
        shared.counters.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !shared.queue.put(&encoded, Box::new(durable)) {
            shared.counters.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(shared.failed.get().cloned().unwrap_or(JournalFailed::Closed));
        }
        encoded.iter().for_each(|entry| log.append(entry));
        drop(log);
        shared.queue.wake();
        Ok(())
    }

    /// Entries of `range`, in order, at most `bytes_max` bytes of them but at least one; fewer when
    /// the log ends before. Reads memory first, then (blocking) the disk.
    pub fn entries(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        self.noted(self.inner.shared.log.entries(range, bytes_max))
    }

    /// Records damage in the log as any other damage.
    fn noted<T>(&self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        let (file, position, what) = match &read {
            Err(ReadError::Damaged { file, position, what }) => {
                (file, *position, (*what).to_owned())
            }
            Err(ReadError::Io { file, position, source }) if is_loss(source) => {
                (file, *position, source.to_string())
            }
            _ => return read,
        };
        let name = file.file_name().and_then(|name| name.to_str()).and_then(parse_name);
        if let Some((_, segment, generation)) = name {
            let damage = Damage { segment, generation, file: file.clone(), position, what };
            self.inner.shared.index.damaged().note(damage);
        }
        read
    }

    /// As [`Journal::entries`], but never waits for the disk: returns entries up to the first that
    /// is not in memory, or `None` if the first of the range is not.
    pub fn held_entries(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Option<Vec<Entry>>, ReadError> {
        self.inner.shared.log.held_entries(range, bytes_max)
    }

    /// As [`Journal::entries`], in encoded form.
    pub fn encoded_entries(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Encoded>, ReadError> {
        let entries = self.noted(self.inner.shared.log.entries(range, bytes_max))?;
        Ok(entries.into_iter().map(Encoded).collect())
    }

    /// As [`Journal::held_entries`], in encoded form.
    pub fn held_encoded_entries(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Option<Vec<Encoded>>, ReadError> {
        let held: Option<Vec<_>> = self.inner.shared.log.held_entries(range, bytes_max)?;
        Ok(held.map(|entries| entries.into_iter().map(Encoded).collect()))
    }

    pub fn entry_id(&self, index: u64) -> Option<EntryId> {
        self.inner.shared.log.read().entry_id(index)
    }

    /// The last entry of the log, or the last purged one if the log is empty.
    pub fn last_id(&self) -> Option<EntryId> {
        self.inner.shared.log.read().last_id()
    }

    pub fn purged_id(&self) -> Option<EntryId> {
        self.inner.shared.log.read().purged
    }

    /// Truncates the log after `index` (all of it, when `None`). Entries still queued are written
    /// and acknowledged, but no longer belong to the log. The truncation is durable once the
    /// entries appended in their place are: until then a crash may restore the old ones, which Raft
    /// allows. Blocking: bodies of entries that are no longer in memory are looked up in their
    /// segments.
    pub fn truncate_after(&self, index: Option<u64>) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        shared.check()?;
        let from = index.map_or(0, |index| index + 1);
        let refuse = |cut: &TruncatedEntry| {
            let bodies = shared.log.cut_bodies(cut).map_err(|error| {
                let file = shared.dir.clone();
                JournalFailed::io("read entries to cut", file, io::Error::other(error))
            })?;
            for (stream, address) in bodies {
                shared.index.refuse(0, stream, address);
            }
            Ok(())
        };
        // Bodies that are on disk only are looked up before a snapshot has to wait for it.
        let cut = shared.log.read().cut(from);
        cut.iter().try_for_each(refuse)?;
        let _refusing = shared.refusing.lock();
        let since = {
            let mut log = shared.log.write();
            let all = log.cut(from);
            log.truncate_from(from);
            all
        };
        // Entries that were placed in the meantime.
        since.iter().skip(cut.len()).try_for_each(refuse)
    }

    /// Entries up to `id` are covered by a snapshot. They leave the log once no [`super::LogPin`]
    /// keeps them. Their bodies stay.
    pub fn purge(&self, id: EntryId) {
        self.inner.shared.log.write().purge_when_unpinned(id);
    }

    /// Durable on return. Blocking.
    pub fn save_vote(&self, vote: &[u8]) -> io::Result<()> {
        let shared = &self.inner.shared;
        shared.check().map_err(io::Error::other)?;
        shared.vote.save(&*shared.disk, &shared.dir, vote)
    }

    pub fn vote(&self) -> Option<Bytes> {
        self.inner.shared.vote.get()
    }
}
