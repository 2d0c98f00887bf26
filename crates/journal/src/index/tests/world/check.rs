//! Compares queries of the index with the model.

use std::collections::BTreeMap;

use bytes::Bytes;
use world::Workers;

use super::{ModelBatch, World};
use crate::address::{Address, StoredBatches};
use crate::index::RunTable;
use crate::read::{Reader, read_blocking};

impl World {
    pub(in crate::index::tests) fn check(&self) {
        let streams: Vec<u64> = self.ends.keys().copied().collect();
        for &stream in &streams {
            let none = BTreeMap::new();
            let batches = self.model.get(&stream).unwrap_or(&none);
            self.check_reads(stream, batches);
            self.check_times(stream, batches);
            self.check_retention(stream, batches);
            let bytes: u64 = batches.values().map(|batch| batch.bytes.len() as u64).sum();
            assert!(self.index.stream_bytes(stream) >= bytes, "stream {stream} counted too small");
        }
        let of_segments: u64 = self.index.segments().iter().map(|info| info.live_bytes).sum();
        let of_streams: u64 = streams.iter().map(|id| self.index.stream_bytes(*id)).sum();
        assert_eq!(of_segments, of_streams, "live bytes by segment and by stream");
        let table = RunTable::decode(&self.index.capture().table.encode()).unwrap();
        assert_eq!(table.encode(), self.index.capture().table.encode(), "the table and its bytes");
        for (capture, bytes) in &self.captures {
            assert_eq!(capture.encode(), *bytes, "a capture stays as it was");
        }
    }

    /// Byte counts are exact once ragged runs were recounted.
    pub(in crate::index::tests) fn check_exact_bytes(&self) {
        for &stream in self.ends.keys() {
            let batches = self.model.get(&stream).into_iter().flat_map(BTreeMap::values);
            let bytes: u64 = batches.map(|batch| batch.bytes.len() as u64).sum();
            assert_eq!(self.index.stream_bytes(stream), bytes, "stream {stream}");
        }
    }

    fn check_reads(&self, stream: u64, batches: &BTreeMap<u64, ModelBatch>) {
        let reader = Reader::new(self.index.clone(), &Workers::Threads, 0, || {}).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for offset in [0, self.end(stream) / 3, self.end(stream) / 2, self.end(stream)] {
            let expected: Vec<&Bytes> = after(batches, offset).map(|(_, it)| &it.bytes).collect();
            let all = expected.iter().flat_map(|bytes| bytes.iter().copied()).collect::<Vec<u8>>();
            for bytes_max in [0, 500, usize::MAX] {
                let async_read = runtime.block_on(reader.read(stream, offset, bytes_max)).unwrap();
                let blocking = read_blocking(&self.index, stream, offset, bytes_max).unwrap();
                for read in [joined(&async_read), joined(&blocking)] {
                    assert!(all.starts_with(&read), "stream {stream} from {offset}: other bytes");
                    let first = expected.first().map_or(0, |bytes| bytes.len());
                    assert!(read.len() >= first, "stream {stream} from {offset}: less than one");
                    assert!(read.len() <= bytes_max.max(first), "more than was asked for");
                }
            }
            self.check_read_through(stream, offset, batches);
            let found = self.index.batches(stream, offset).unwrap();
            let found: Vec<_> = found
                .iter()
                .map(|it| (it.base_offset, it.span, it.max_timestamp, it.len as usize))
                .collect();
            let expected: Vec<_> = after(batches, offset)
                .map(|(base, it)| (*base, it.span, it.max_timestamp, it.bytes.len()))
                .collect();
            assert_eq!(found, expected, "batches of stream {stream} from {offset}");
        }
    }

    /// A consumer that continues at the end of the last read gets every batch.
    fn check_read_through(&self, stream: u64, offset: u64, batches: &BTreeMap<u64, ModelBatch>) {
        let mut rest = after(batches, offset).peekable();
        let mut offset = offset;
        while rest.peek().is_some() {
            let read = joined(&read_blocking(&self.index, stream, offset, 700).unwrap());
            let mut read = &read[..];
            assert!(!read.is_empty(), "stream {stream} ends at {offset}");
            while !read.is_empty() {
                let (base, batch) = rest.next().unwrap();
                read = read.strip_prefix(&batch.bytes[..]).expect("whole batches in order");
                offset = base + u64::from(batch.span);
            }
        }
        assert!(read_blocking(&self.index, stream, offset, 700).unwrap().is_empty());
    }

    fn check_times(&self, stream: u64, batches: &BTreeMap<u64, ModelBatch>) {
        let name = |found: Option<(Address, u32)>| found.map(|(batch, _)| batch.base_offset);
        for time in [0, 10, 25, 49, 50] {
            let expected = batches.iter().find(|(_, batch)| batch.max_timestamp >= time);
            let found = name(self.index.find_time(stream, time).unwrap());
            assert_eq!(found, expected.map(|(base, _)| *base), "stream {stream} at {time}");
        }
        let latest = batches.iter().rev().max_by_key(|(_, batch)| batch.max_timestamp);
        let found = name(self.index.find_max_time(stream).unwrap());
        assert_eq!(found, latest.map(|(base, _)| *base), "latest of stream {stream}");
    }

    /// Retention is compared by the batches it leaves: a start inside a gap may be any offset of
    /// it.
    fn check_retention(&self, stream: u64, batches: &BTreeMap<u64, ModelBatch>) {
        let left = |start: Option<u64>| after(batches, start.unwrap_or(0)).count();
        let total: u64 = batches.values().map(|batch| batch.bytes.len() as u64).sum();
        for keep in [0, 1, total / 2, total, total + 1] {
            let mut kept = 0;
            let needed = batches.values().rev().take_while(|batch| {
                let needed = kept < keep;
                kept += batch.bytes.len() as u64;
                needed
            });
            let expected = needed.count();
            let start = self.index.retention_by_bytes(stream, keep).unwrap();
            // A ragged run counts in full, so that more may be kept, never less.
            assert!(left(start) >= expected, "stream {stream} keeps {keep} bytes");
            assert_eq!(left(start), expected, "stream {stream} keeps {keep} bytes, no more");
        }
        for before in [0, 10, 25, 50] {
            let old = batches.values().take_while(|batch| batch.max_timestamp < before).count();
            let start = self.index.retention_by_time(stream, before).unwrap();
            assert_eq!(left(start), batches.len() - old, "stream {stream} younger than {before}");
        }
    }
}

/// The bytes that a consumer receives.
pub(in crate::index::tests) fn joined(read: &[StoredBatches]) -> Vec<u8> {
    let mut pieces = Vec::new();
    read.iter().for_each(|stored| stored.clone().put_pieces(&mut pieces));
    pieces.concat()
}

fn after(
    batches: &BTreeMap<u64, ModelBatch>,
    offset: u64,
) -> impl Iterator<Item = (&u64, &ModelBatch)> {
    batches.iter().filter(move |(base, batch)| **base + u64::from(batch.span) > offset)
}
