//! Reads batches from memory, from the page cache or from the disk, in this order.
//!
//! A read is planned from the index as addresses, and neighbours become one call. Bytes are copied
//! once, into a buffer whose slices are the batches. The caller's thread (of the runtime) only
//! reads memory; a few reader threads do the rest.

mod pool;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::limits;
use tasks::Workers;

use crate::address::{Address, StoredBatches, put_base_offset};
use crate::buffers::{Buffer, Buffers};
use crate::error::ReadError;
use crate::index::{Index, LoadError, PinnedSidecar, Plan, SegmentRead};
use pool::Pool;
use world::DiskFile;

/// Reads for all handles of the journal. Dropping it stops its threads.
#[derive(Debug)]
pub(crate) struct Reader {
    index: Arc<Index>,
    pool: Pool,
}

impl Reader {
    /// Without reader threads, reads block the caller: for tests. A reader thread that panics calls
    /// `on_panic`.
    pub(crate) fn new(
        index: Arc<Index>,
        workers: &Workers,
        threads: usize,
        on_panic: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let pool = match workers {
            Workers::Threads => Pool::start(threads, on_panic)?,
            Workers::Tasks(_) => Pool::Tasks(workers.clone()),
        };
        Ok(Self { index, pool })
    }

    /// Consecutive batches, beginning with the one that holds `offset` or else the next: at least
    /// one, even if larger than `bytes_max`; empty at the end. Adjacent batches may share a
    /// [`StoredBatches`].
    pub(crate) async fn read(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<StoredBatches>, ReadError> {
        if let Some(batches) = read_now(&self.index, stream, offset, bytes_max)? {
            return Ok(batches);
        }
        let index = self.index.clone();
        self.pool.run(move || read_blocking(&index, stream, offset, bytes_max)).await
    }

    /// As [`Reader::read`], for a caller that may wait for the disk.
    pub(crate) fn read_blocking(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<StoredBatches>, ReadError> {
        match read_now(&self.index, stream, offset, bytes_max)? {
            Some(batches) => Ok(batches),
            None => read_blocking(&self.index, stream, offset, bytes_max),
        }
    }

    /// The first batch with a record at or after `timestamp`.
    pub(crate) async fn find_time(
        &self,
        stream: u64,
        timestamp: i64,
    ) -> Result<Option<(Address, StoredBatches)>, ReadError> {
        let index = self.index.clone();
        let find = move || found(&index, || index.find_time(stream, timestamp));
        self.pool.run(find).await
    }

    /// The batch with the largest timestamp.
    pub(crate) async fn find_max_time(
        &self,
        stream: u64,
    ) -> Result<Option<(Address, StoredBatches)>, ReadError> {
        let index = self.index.clone();
        self.pool.run(move || found(&index, || index.find_max_time(stream))).await
    }
}

/// The batches that can be read without waiting for a disk; `None` if there are none.
fn read_now(
    index: &Index,
    stream: u64,
    offset: u64,
    bytes_max: usize,
) -> Result<Option<Vec<StoredBatches>>, ReadError> {
    let Plan::Ready(parts) = index.plan(stream, offset, bytes_max, None) else {
        return Ok(None);
    };
    let is_sound = |address: &Address, bytes: &[u8]| index.is_sound(address, bytes);
    let mut batches = Vec::new();
    for part in &parts {
        let (stored, mut recent) = split_recent(index, part);
        if !stored.is_empty() {
            let total: usize = stored.iter().map(|address| address.len as usize).sum();
            if total > limits::READ_INLINE_BYTES_MAX {
                return Ok(None);
            }
            let Some(file) = index.files().opened(part.segment, part.generation) else {
                return Ok(None);
            };
            for extent in extents(stored) {
                match read_cached(index.buffers(), &*file, &extent) {
                    Ok(bytes) => {
                        let places = &stored[extent.places];
                        if slice_batches(is_sound, places, bytes, &mut batches).is_some() {
                            // The blocking read reports the damage when the damaged batch comes
                            // first.
                            return Ok((!batches.is_empty()).then_some(batches));
                        }
                    }
                    // A reader that gets a part now will request the rest soon.
                    Err(_) if !batches.is_empty() => return Ok(Some(batches)),
                    Err(_) => return Ok(None),
                }
            }
        }
        batches.append(&mut recent);
    }
    Ok(Some(batches))
}

/// Splits off the suffix of `part` whose bytes are in the tail cache. The cache finds bodies by the
/// position at which the log wrote them, so it has none of a rewritten segment.
fn split_recent<'a>(index: &Index, part: &'a SegmentRead) -> (&'a [Address], Vec<StoredBatches>) {
    let addresses = &part.addresses[..];
    if part.generation > 1 {
        return (addresses, Vec::new());
    }
    let mut recent = VecDeque::new();
    for address in addresses.iter().rev() {
        match index.log().recent(address) {
            Some(bytes) => recent.push_front(StoredBatches::at(address, bytes)),
            None => break,
        }
    }
    (&addresses[..addresses.len() - recent.len()], recent.into())
}

/// Reads an extent from the page cache. Fails if the read would have to wait for the disk.
fn read_cached(buffers: &Buffers, file: &dyn DiskFile, extent: &Extent) -> io::Result<Buffer> {
    let mut buffer = buffers.take(extent.len);
    if file.read_at_cached(buffer.as_mut(), extent.position)? < extent.len {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(buffer)
}

pub(crate) fn read_blocking(
    index: &Index,
    stream: u64,
    offset: u64,
    bytes_max: usize,
) -> Result<Vec<StoredBatches>, ReadError> {
    let mut offset = offset;
    let mut pinned: Option<PinnedSidecar> = None;
    loop {
        let parts = match index.plan(stream, offset, bytes_max, pinned.as_ref()) {
            Plan::Ready(parts) => parts,
            Plan::Missing { segment, generation, offset: from } => {
                offset = from;
                match index.sidecar(segment, generation) {
                    Ok(sidecar) => pinned = Some(PinnedSidecar { segment, generation, sidecar }),
                    Err(LoadError::Gone) => {}
                    Err(LoadError::Read(error)) => return Err(error),
                }
                continue;
            }
        };
        let mut batches = Vec::new();
        let mut gone = false;
        for part in &parts {
            match read_part(index, part, &mut batches) {
                Ok(()) => {}
                // The batches before the error are sound.
                Err(LoadError::Read(_)) if !batches.is_empty() => return Ok(batches),
                Err(LoadError::Read(error)) => return Err(error),
                Err(LoadError::Gone) => {
                    gone = true;
                    break;
                }
            }
        }
        if !gone || !batches.is_empty() {
            return Ok(batches);
        }
    }
}

/// Reads all of `part`, or up to the first damage. `Gone` when its segment was rewritten or deleted
/// since it was planned.
pub(crate) fn read_part(
    index: &Index,
    part: &SegmentRead,
    batches: &mut Vec<StoredBatches>,
) -> Result<(), LoadError> {
    let (stored, mut recent) = split_recent(index, part);
    if !stored.is_empty() {
        let SegmentRead { segment, generation, .. } = *part;
        let failed = |position, error| index.is_unreadable(segment, generation, position, error);
        let damaged = |position, what| index.is_damaged(segment, generation, position, what);
        let file = index.files().segment(segment, generation).map_err(|e| failed(0, e))?;
        for extent in extents(stored) {
            let mut buffer = index.buffers().take(extent.len);
            let read = file
                .read_at(buffer.as_mut(), extent.position)
                .map_err(|error| failed(extent.position, error))?;
            if read < extent.len {
                return Err(damaged(extent.position + read as u64, "it ends within a batch"));
            }
            let is_sound = |address: &Address, bytes: &[u8]| index.is_sound(address, bytes);
            if let Some(bad) = slice_batches(is_sound, &stored[extent.places], buffer, batches) {
                return Err(damaged(bad.position.into(), "a batch with another checksum"));
            }
        }
    }
    batches.append(&mut recent);
    Ok(())
}

fn found(
    index: &Index,
    find: impl Fn() -> Result<Option<(Address, u32)>, ReadError>,
) -> Result<Option<(Address, StoredBatches)>, ReadError> {
    loop {
        let Some((address, generation)) = find()? else { return Ok(None) };
        let part = SegmentRead { segment: address.segment, generation, addresses: vec![address] };
        let mut batches = Vec::new();
        match read_part(index, &part, &mut batches) {
            Ok(()) => return Ok(batches.pop().map(|batch| (address, batch))),
            Err(LoadError::Read(error)) => return Err(error),
            Err(LoadError::Gone) => {}
        }
    }
}

/// One read: `len` bytes from `position` on, which hold the addresses at `places`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) position: u64,
    pub(crate) len: usize,
    pub(crate) places: Range<usize>,
}

/// Groups ascending addresses of one file. A gap is included while at least half of the bytes are
/// wanted: a copy in memory is cheaper than another call, and far cheaper than another seek. With
/// shared bodies a rewritten segment may refer back, which begins another call.
pub(crate) fn extents(addresses: &[Address]) -> impl Iterator<Item = Extent> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = addresses.get(next)?;
        let start = next;
        let begin = u64::from(first.position);
        let mut wanted = first.len as usize;
        let mut len = wanted;
        next += 1;
        while let Some(address) = addresses.get(next) {
            let Some(gap) = u64::from(address.position).checked_sub(begin + len as u64) else {
                break;
            };
            let longer = len + gap as usize + address.len as usize;
            let more_wanted = wanted + address.len as usize;
            if longer > limits::READ_CALL_BYTES_MAX || more_wanted * 2 < longer {
                break;
            }
            (wanted, len) = (more_wanted, longer);
            next += 1;
        }
        Some(Extent { position: begin, len, places: start..next })
    })
}

/// Slices the buffer into batches, up to the first damaged one, which it returns; batches without a
/// gap between them stay together. The buffer is not shared yet, so a shared batch is given its
/// base offset in this stream.
fn slice_batches<'a>(
    is_sound: impl Fn(&Address, &[u8]) -> bool,
    addresses: &'a [Address],
    mut buffer: Buffer,
    batches: &mut Vec<StoredBatches>,
) -> Option<&'a Address> {
    let start = addresses.first()?.position as usize;
    let sound = |address: &&Address| {
        let place = address.position as usize - start;
        is_sound(address, &buffer.as_ref()[place..place + address.len as usize])
    };
    let sound = addresses.iter().take_while(sound).count();
    let damaged = addresses.get(sound);
    let addresses = &addresses[..sound];
    let Some(first) = addresses.first() else { return damaged };
    for address in addresses.iter().filter(|address| address.shared) {
        let place = address.position as usize - start;
        let batch = &mut buffer.as_mut()[place..place + address.len as usize];
        put_base_offset(batch, address.base_offset);
    }
    let bytes = buffer.freeze();
    let mut piece = 0..first.len as usize;
    for address in &addresses[1..] {
        let position = address.position as usize - start;
        if position != piece.end {
            batches.push(bytes.slice(piece).into());
            piece = position..position;
        }
        piece.end = position + address.len as usize;
    }
    batches.push(bytes.slice(piece).into());
    damaged
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn address(position: u32, len: u32) -> Address {
        let base_offset = u64::from(position);
        let (segment, span, max_timestamp, shared) = (1, 1, 0, false);
        Address { segment, position, len, span, base_offset, max_timestamp, shared }
    }

    #[test]
    fn neighbours_are_read_with_one_call_and_stay_together() {
        let addresses = [address(100, 50), address(150, 50), address(200, 10)];
        let all: Vec<_> = extents(&addresses).collect();
        assert_eq!(all, [Extent { position: 100, len: 110, places: 0..3 }]);
        let mut batches = Vec::new();
        slice_batches(|_, _| true, &addresses, Buffer::unkept(vec![7; 110]), &mut batches);
        assert_eq!(batches.len(), 1);
    }

    #[test]
    fn gap_is_included_while_half_of_the_bytes_are_wanted() {
        let near = [address(100, 50), address(200, 50)];
        let all: Vec<_> = extents(&near).collect();
        assert_eq!(all, [Extent { position: 100, len: 150, places: 0..2 }]);
        let mut batches = Vec::new();
        slice_batches(|_, _| true, &near, Buffer::unkept((0..150).collect()), &mut batches);
        let expected = [Bytes::from_iter(0..50), Bytes::from_iter(100..150)];
        assert_eq!(batches, expected.map(StoredBatches::from));

        let far = [address(100, 50), address(300, 50)];
        assert_eq!(extents(&far).count(), 2);
    }

    #[test]
    fn an_address_before_the_last_one_is_read_with_a_call_of_its_own() {
        let shared =
            |position, base_offset| Address { base_offset, shared: true, ..address(position, 20) };
        let addresses = [shared(500, 7), shared(100, 8), shared(100, 9), shared(120, 10)];
        let all: Vec<_> = extents(&addresses).collect();
        let extent = |position, len, places| Extent { position, len, places };
        let expected = [extent(500, 20, 0..1), extent(100, 20, 1..2), extent(100, 40, 2..4)];
        assert_eq!(all, expected);
        let mut batches = Vec::new();
        slice_batches(|_, _| true, &addresses[2..], Buffer::unkept(vec![0xab; 40]), &mut batches);
        assert_eq!(batches.len(), 1);
        let bytes = &batches[0].bytes;
        assert_eq!(
            (&bytes[..9], &bytes[20..28]),
            (&[0, 0, 0, 0, 0, 0, 0, 9, 0xab][..], &10_u64.to_be_bytes()[..])
        );
    }

    #[test]
    fn one_call_is_bounded_but_takes_any_single_batch() {
        let large = limits::READ_CALL_BYTES_MAX as u32;
        let addresses =
            [address(0, large + 1), address(large + 1, large), address(2 * large + 1, 1)];
        let all: Vec<_> = extents(&addresses).map(|extent| extent.places).collect();
        assert_eq!(all, [0..1, 1..2, 2..3]);
    }
    #[test]
    fn nothing_is_sliced_from_the_first_damaged_batch_on() {
        let addresses = [address(100, 10), address(110, 10), address(120, 10), address(130, 10)];
        for bad in 0..4 {
            let mut batches = Vec::new();
            let is_sound = |address: &Address, bytes: &[u8]| {
                assert_eq!(bytes, [(address.position / 10) as u8; 10]);
                *address != addresses[bad]
            };
            let buffer = Buffer::unkept((100..140).map(|at| at / 10).collect());
            let found = slice_batches(is_sound, &addresses, buffer, &mut batches);
            assert_eq!(found, Some(&addresses[bad]));
            assert_eq!(batches.iter().map(StoredBatches::len).sum::<usize>(), bad * 10);
        }
    }
}
