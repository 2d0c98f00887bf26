//! Concurrent readers, writer, sealer and reclaim: every read returns whole batches in order.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::world::{FakeLog, joined};
use crate::address::Address;
use crate::index::files::{FileKind, file_name};
use crate::index::{Index, RunTable, Setup};
use crate::read::read_blocking;
use tasks::{WorkerHandle, Workers};
use world::{Disk, SimulatedDisk};

const DIR: &str = "/journal";
const STREAMS: u64 = 3;
const SEGMENTS: u32 = 60;
const BATCHES_PER_SEGMENT: u64 = 60;

/// A batch that identifies itself: 16 bytes, then padding whose length follows from its offset.
fn batch(stream: u64, offset: u64) -> Vec<u8> {
    let mut bytes = [stream.to_le_bytes(), offset.to_le_bytes()].concat();
    bytes.resize(16 + (offset * 7 % 50) as usize, 0xab);
    bytes
}

fn write(disk: &SimulatedDisk, index: &Index, ends: &[AtomicU64], starts: &[AtomicU64]) {
    let mut log_index = 0;
    for segment in 1..=SEGMENTS {
        let path = Path::new(DIR).join(file_name(FileKind::Segment, segment, 1));
        let file = disk.open(&path, true).unwrap();
        let mut position = 0;
        for _ in 0..BATCHES_PER_SEGMENT {
            let stream = log_index % STREAMS;
            let offset = ends[stream as usize].load(Ordering::Acquire);
            let bytes = batch(stream, offset);
            file.write_at(&mut [IoSlice::new(&bytes)], position.into()).unwrap();
            let len = bytes.len() as u32;
            let base_offset = offset;
            index.accept(
                log_index,
                stream,
                Address {
                    segment,
                    position,
                    len,
                    span: 1,
                    base_offset,
                    max_timestamp: 0,
                    shared: false,
                },
            );
            ends[stream as usize].store(offset + 1, Ordering::Release);
            position += len;
            log_index += 1;
        }
        index.full(segment, log_index - 1, position.into());
        // Keep a different length of each stream's end, so that some segments die and others are
        // rewritten.
        for (stream, start) in starts.iter().enumerate() {
            let end = ends[stream].load(Ordering::Acquire);
            let keep = [100, 250, 700][stream];
            start.store(end.saturating_sub(keep), Ordering::Release);
            index.trim(stream as u64, end.saturating_sub(keep));
        }
        let capture = index.capture();
        index.snapshot_written(&capture.dead, segment);
        thread::yield_now();
    }
}

fn read_and_check(index: &Index, stream: u64, end: &AtomicU64, start: &AtomicU64) {
    let offset = start.load(Ordering::Acquire);
    let end = end.load(Ordering::Acquire);
    let read = joined(&read_blocking(index, stream, offset, 2_000).unwrap());
    let mut rest = &read[..];
    let mut expected = None;
    while !rest.is_empty() {
        let mut number = [0; 8];
        number.copy_from_slice(&rest[8..16]);
        let found = u64::from_le_bytes(number);
        // A concurrent trim may make a later batch the first.
        assert!(found >= offset && expected.is_none_or(|next| next == found));
        rest = rest.strip_prefix(&batch(stream, found)[..]).expect("whole batches");
        expected = Some(found + 1);
    }
    assert!(expected.is_some() || offset == end, "nothing to read between {offset} and {end}");
}

#[test]
fn readers_are_not_disturbed_by_sealing_trimming_and_rewriting() {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    let setup = Setup {
        disk: Arc::new(disk.clone()),
        dir: DIR.into(),
        log: Arc::new(FakeLog::default()),
        sidecar_cache_bytes: 4_000,
        check: crate::BatchCheck(|_, _| true),
        repairable: false,
    };
    let index = Arc::new(Index::open(setup, RunTable::default(), 1, None).unwrap());
    let ends: Vec<AtomicU64> = (0..STREAMS).map(|_| AtomicU64::new(0)).collect();
    let starts: Vec<AtomicU64> = (0..STREAMS).map(|_| AtomicU64::new(0)).collect();
    let written = AtomicBool::new(false);
    let sealer = index.seal_in_background(&Workers::Threads, || {}).unwrap();
    let (mut removed, mut rewritten) = (0, 0);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (index, ends, starts, written) = (&index, &ends, &starts, &written);
            scope.spawn(move || {
                let mut stream = reader;
                while !written.load(Ordering::Acquire) {
                    stream = (stream + 1) % STREAMS as usize;
                    read_and_check(index, stream as u64, &ends[stream], &starts[stream]);
                }
            });
        }
        scope.spawn(|| {
            write(&disk, &index, &ends, &starts);
            written.store(true, Ordering::Release);
        });
        while !written.load(Ordering::Acquire) {
            let reclaimed = index.reclaim().unwrap();
            removed += reclaimed.removed;
            rewritten += reclaimed.rewritten;
        }
    });
    index.stop_sealing();
    WorkerHandle::join([sealer]);
    index.seal_due().unwrap();
    let capture = index.capture();
    index.snapshot_written(&capture.dead, SEGMENTS + 1);
    let last = index.reclaim().unwrap();
    assert!(removed + last.removed > 0 && rewritten + last.rewritten > 0);
    for stream in 0..STREAMS {
        let start = starts[stream as usize].load(Ordering::Acquire);
        let left = index.batches(stream, 0).unwrap();
        assert_eq!(left.first().unwrap().base_offset, start);
        assert_eq!(left.len(), [100, 250, 700][stream as usize]);
    }
}
