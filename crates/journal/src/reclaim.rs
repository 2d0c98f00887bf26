//! Reclaiming space: dead segments are deleted, mostly dead ones rewritten.
//!
//! A rewrite never changes a file. The live batches go to a new generation of the segment, which is
//! complete and durable before it is renamed to its final name; the old generation is removed last.
//! A crash therefore leaves the old generation, both, or the new one, and each of these holds every
//! live batch. Readers keep their handle.
//!
//! A damaged segment is left alone until it is repaired ([`crate::transfer`]), and does not hinder
//! other segments.
//!
//! A dead segment is deleted only when it is dead in the newest durable snapshot. A segment with
//! live batches that is missing at the start was therefore lost, not deleted.

use std::io::{self, IoSlice};
use std::sync::Arc;

use base::{HashMap, HashSet};
use bytes::Bytes;
use tracing::info;

use crate::address::{Address, StoredBatches};
use crate::error::ReadError;
use crate::index::{
    Batches, BlockWriter, DistinctBytes, FileKind, Index, LoadError, SegmentRead, Sidecar,
    sidecar_of,
};
use crate::read::read_part;
use crate::stats::ReclaimReport;

/// Decision of key compaction about a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CompactionDecision {
    Same,
    Drop,
    /// A smaller batch for the same offsets.
    Replace(Bytes),
}

/// Decides each live batch for key compaction.
type BatchDecider<'a> = &'a mut dyn FnMut(u64, &Address, &[u8]) -> CompactionDecision;

/// Limit of the batch bytes that a rewrite holds in memory.
const REWRITE_READ_BYTES: usize = 1 << 20;

impl Index {
    /// Recounts ragged runs and shared bodies, deletes dead segments, and rewrites those with less
    /// than half live. Blocking; one pass at a time.
    pub(crate) fn reclaim(&self) -> io::Result<ReclaimReport> {
        let _one = self.reclaiming().lock();
        self.recount_ragged()?;
        self.recount_shared()?;
        let mut done = ReclaimReport::default();
        // Deletion first: it frees the space that rewriting needs.
        for segment in self.droppable() {
            done.bytes += self.delete(segment)?;
            done.removed += 1;
        }
        for segment in self.mostly_dead() {
            match self.rewrite_locked(segment, None) {
                Ok(bytes) => {
                    done.bytes += bytes;
                    done.rewritten += 1;
                }
                Err(_) if self.is_known_damaged(segment) => {}
                Err(error) => return Err(error),
            }
        }
        let table = self.table().read();
        let waiting = table.dead();
        done.waiting = waiting.len() as u32;
        let segments = waiting.iter().filter_map(|&id| table.segment(id));
        done.waiting_bytes = segments.map(|segment| segment.file_bytes).sum();
        Ok(done)
    }

    /// Rewrites a sealed segment; `keep` decides each of its live batches. Blocking.
    pub(crate) fn rewrite(
        &self,
        segment: u32,
        keep: &mut dyn FnMut(u64, &Address, &[u8]) -> CompactionDecision,
    ) -> io::Result<()> {
        let _one = self.reclaiming().lock();
        if self.is_known_damaged(segment) {
            let what = format!("segment {segment} is damaged");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.rewrite_locked(segment, Some(keep)).map(|_| ())
    }

    fn recount_ragged(&self) -> io::Result<()> {
        let ragged = self.table().read().ragged();
        let mut loaded: Option<(u32, Arc<Sidecar>)> = None;
        for (segment, stream) in ragged {
            let sidecar = match &loaded {
                Some((of, sidecar)) if *of == segment => sidecar.clone(),
                _ => {
                    // Only reclaim changes generations, and one pass runs at a time.
                    let Some(generation) = self.generation(segment) else { continue };
                    let Some(sidecar) = self.sound_sidecar(segment, generation)? else { continue };
                    loaded = Some((segment, sidecar.clone()));
                    sidecar
                }
            };
            self.table().write().recount(segment, stream, &sidecar);
        }
        Ok(())
    }

    /// Recounts the live bytes of segments, each body once, where enough rows died since the last
    /// count.
    fn recount_shared(&self) -> io::Result<()> {
        let due = self.table().read().counts_due();
        for (segment, generation) in due {
            let Some(counted_at) = self.table().read().segment(segment).map(|it| it.live_bytes)
            else {
                continue;
            };
            let Some(sidecar) = self.sound_sidecar(segment, generation)? else { continue };
            let mut once = DistinctBytes::default();
            for (stream, batches) in sidecar.streams() {
                self.live(segment, stream, batches).iter().for_each(|batch| once.add(batch));
            }
            self.table().write().counted(segment, once.bytes, counted_at);
        }
        Ok(())
    }

    /// `None`: the segment is damaged, and its sidecar can be neither read nor rebuilt.
    fn sound_sidecar(&self, segment: u32, generation: u32) -> io::Result<Option<Arc<Sidecar>>> {
        match self.sidecar(segment, generation) {
            Ok(sidecar) => Ok(Some(sidecar)),
            Err(_) if self.is_known_damaged(segment) => Ok(None),
            Err(error) => Err(load_error(error)),
        }
    }

    fn is_known_damaged(&self, segment: u32) -> bool {
        self.damaged().list().iter().any(|damage| damage.segment == segment)
    }

    /// The live ones of a stream's batches in a segment.
    pub(crate) fn live(&self, segment: u32, stream: u64, batches: Batches<'_>) -> Vec<Address> {
        let table = self.table().read();
        let Some(run) = table.run(stream, segment) else { return Vec::new() };
        batches.live(run, table.holes(stream)).iter().collect()
    }

    fn droppable(&self) -> Vec<u32> {
        let claimed_from = self.claimed_from();
        let table = self.table().read();
        table.droppable().filter(|&segment| segment < claimed_from).collect()
    }

    fn mostly_dead(&self) -> Vec<u32> {
        let claimed_from = self.claimed_from();
        let table = self.table().read();
        let segments = table.mostly_dead().filter(|&segment| segment < claimed_from);
        segments.filter(|&segment| !self.is_known_damaged(segment)).collect()
    }

    fn generation(&self, segment: u32) -> Option<u32> {
        self.table().read().segment(segment).map(|found| found.generation)
    }

    fn delete(&self, segment: u32) -> io::Result<u64> {
        let Some((generation, file_bytes)) =
            self.table().read().segment(segment).map(|found| (found.generation, found.file_bytes))
        else {
            return Ok(0);
        };
        self.forget_sidecar(segment, generation);
        self.files().remove_sidecar(segment, generation)?;
        self.files().remove_segment(segment, generation)?;
        self.files().sync_dir()?;
        self.table().write().forget(segment);
        self.damaged().is_gone(segment, generation);
        info!(segment, generation, bytes = file_bytes, "deleted a dead segment");
        Ok(file_bytes)
    }

    /// Returns the number of bytes freed.
    fn rewrite_locked(&self, segment: u32, mut keep: Option<BatchDecider<'_>>) -> io::Result<u64> {
        let (generation, file_bytes) = self.rewritable(segment)?;
        let indexes = self.indexes(segment);
        let old = self.sidecar(segment, generation).map_err(load_error)?;
        let next = generation + 1;

        let draft = self.files().begin(FileKind::Segment, segment, next)?;
        let mut writer = BlockWriter::new(draft, segment, next, indexes)?;
        let alone = self.unshared_positions(segment, &old);
        let mut streams = Vec::new();
        for (stream, batches) in old.streams() {
            streams.push(stream);
            let addresses = self.live(segment, stream, batches);
            let part = SegmentRead { segment, generation, addresses };
            self.copy_live(stream, &part, &alone, &mut writer, &mut keep)?;
        }
        let new_bytes = self.replace_generation(segment, generation, indexes, writer, &streams)?;
        info!(segment, generation = next, file_bytes, new_bytes, "rewrote a segment");
        Ok(file_bytes.saturating_sub(new_bytes))
    }

    /// Replaces this generation of the segment, which had batches of these streams, by the written
    /// one. The caller holds the lock of reclaim. Returns the size of the new file.
    pub(crate) fn replace_generation(
        &self,
        segment: u32,
        generation: u32,
        indexes: Option<(u64, u64)>,
        writer: BlockWriter,
        streams: &[u64],
    ) -> io::Result<u64> {
        let next = generation + 1;
        let (body, addresses) = writer.finish()?;
        let new = Arc::new(sidecar_of(segment, next, indexes, &addresses));
        drop(addresses);
        let mut side = self.files().begin(FileKind::Sidecar, segment, next)?;
        side.append(&mut [IoSlice::new(new.as_bytes())])?;
        side.sync()?;

        // Until the old generation is removed both exist; the higher one counts.
        let new_bytes = body.len();
        side.publish()?;
        body.publish()?;
        self.files().sync_dir()?;
        self.remember_sidecar(segment, next, new.clone());
        self.table().write().rewritten(segment, next, new_bytes, &new, streams);
        self.damaged().is_gone(segment, generation);

        self.forget_sidecar(segment, generation);
        self.files().remove_sidecar(segment, generation)?;
        self.files().remove_segment(segment, generation)?;
        self.files().sync_dir()?;
        Ok(new_bytes)
    }

    /// Generation and size of a segment that may be rewritten.
    pub(crate) fn rewritable(&self, segment: u32) -> io::Result<(u32, u64)> {
        let refuse = |why: &str| {
            let message = format!("segment {segment} cannot be rewritten: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        };
        let table = self.table().read();
        let found = table.segment(segment).ok_or_else(|| refuse("there is none"))?;
        if !found.sealed() {
            return Err(refuse("it is not sealed"));
        }
        if segment >= self.claimed_from() {
            return Err(refuse("no snapshot covers its entries yet"));
        }
        Ok((found.generation, found.file_bytes))
    }

    /// Positions of shared bodies that only one stream still has.
    fn unshared_positions(&self, segment: u32, sidecar: &Sidecar) -> HashSet<u32> {
        let mut rows: HashMap<u32, u32> = HashMap::default();
        for (stream, batches) in sidecar.streams() {
            for batch in self.live(segment, stream, batches).iter().filter(|it| it.shared) {
                *rows.entry(batch.position).or_default() += 1;
            }
        }
        rows.into_iter().filter(|(_, rows)| *rows == 1).map(|(position, _)| position).collect()
    }

    fn copy_live(
        &self,
        stream: u64,
        live: &SegmentRead,
        alone: &HashSet<u32>,
        writer: &mut BlockWriter,
        keep: &mut Option<BatchDecider<'_>>,
    ) -> io::Result<()> {
        writer.begin_stream(stream)?;
        let mut rest = &live.addresses[..];
        while let Some(first) = rest.first() {
            // A shared body that is already in the new file is read again only if `keep` needs it.
            if keep.is_none() && first.shared && writer.push_shared(*first)? {
                rest = &rest[1..];
                continue;
            }
            let mut bytes = 0;
            let mut fits = |address: &Address| {
                bytes += address.len as usize;
                bytes <= REWRITE_READ_BYTES && (keep.is_some() || !writer.has(address))
            };
            let count = rest.iter().take_while(|address| fits(address)).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            for (address, bytes) in now.iter().zip(self.read_each(live, now)?) {
                let verdict = keep
                    .as_mut()
                    .map_or(CompactionDecision::Same, |it| it(stream, address, &bytes));
                match verdict {
                    CompactionDecision::Same
                        if address.shared && writer.push_shared(*address)? => {}
                    CompactionDecision::Same => {
                        // The bytes read begin with the offset of this stream.
                        let shared = address.shared && !alone.contains(&address.position);
                        writer.push(Address { shared, ..*address }, bytes)?;
                    }
                    CompactionDecision::Replace(other) => {
                        let own = Address { shared: false, ..*address };
                        writer.push(own, other)?;
                    }
                    CompactionDecision::Drop => {}
                }
            }
        }
        Ok(())
    }

    /// The bytes of each address separately, with its own base offset.
    fn read_each(&self, of: &SegmentRead, addresses: &[Address]) -> io::Result<Vec<Bytes>> {
        let SegmentRead { segment, generation, .. } = *of;
        let part = SegmentRead { segment, generation, addresses: addresses.to_vec() };
        let mut joined = Vec::new();
        read_part(self, &part, &mut joined).map_err(load_error)?;
        let mut each = Vec::with_capacity(addresses.len());
        let mut pieces = joined.into_iter().map(StoredBatches::into_bytes);
        let mut piece = Bytes::new();
        for address in addresses {
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
            let len = address.len as usize;
            // `read_part` returns all addresses, in order, or an error.
            assert!(piece.len() >= len, "a batch was cut while it was read");
            each.push(piece.split_to(len));
        }
        Ok(each)
    }
}

pub(crate) fn load_error(error: LoadError) -> io::Error {
    match error {
        LoadError::Gone => io::Error::other("a segment changed while it was reclaimed"),
        LoadError::Read(ReadError::Io { source, file, position }) => {
            let what = format!("{} at {position}: {source}", file.display());
            io::Error::new(source.kind(), what)
        }
        LoadError::Read(error) => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
