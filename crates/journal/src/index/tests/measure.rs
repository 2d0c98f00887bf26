//! Figures, not checks: `cargo test --release -p journal measure -- --ignored --nocapture
//! --test-threads 1`. `docs/internals/index.md` has the results.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::world::FakeLog;
use crate::address::Address;
use crate::index::files::{FileKind, file_name};
use crate::index::{Index, RunTable, Setup};
use crate::read::Reader;
use world::{Instant, RealDisk, Workers};

fn address(segment: u32, position: u64, len: u32, base_offset: u64) -> Address {
    let (position, span, max_timestamp) = (position as u32, 10, 1_700_000_000_000);
    Address { segment, position, len, span, base_offset, max_timestamp, shared: false }
}

fn open(dir: &Path) -> Arc<Index> {
    let log = Arc::new(FakeLog::default());
    let (disk, dir) = (Arc::new(RealDisk), dir.to_owned());
    let setup = Setup {
        disk,
        dir,
        log,
        sidecar_cache_bytes: 16 << 20,
        check: crate::BatchCheck(|_, _| true),
        repairable: false,
    };
    Arc::new(Index::open(setup, RunTable::default(), 1, None).unwrap())
}

#[test]
#[ignore = "measures"]
fn measure_accept_plan_and_snapshot() {
    for streams in [16, 10_000, 100_000_u64] {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        let rounds = 1_000_000 / streams;
        let started = Instant::now();
        let mut log_index = 0;
        for round in 0..rounds {
            for stream in 0..streams {
                let at = address(1, 512 + log_index * 128, 100, round * 10);
                index.accept(log_index, stream, at);
                log_index += 1;
            }
        }
        let accept = started.elapsed().as_nanos() as u64 / log_index;

        let started = Instant::now();
        for stream in (0..1_000_000).map(|number| number * 7919 % streams) {
            index.plan(stream, (rounds - 1) * 10, 1 << 20, None);
        }
        let plan = started.elapsed().as_nanos() / 1_000_000;

        let started = Instant::now();
        let capture = index.capture();
        let capture_open = started.elapsed();
        let started = Instant::now();
        let open_bytes = capture.table.encode().len();
        let encode_open = started.elapsed();
        drop(capture);
        index.full(1, log_index - 1, 128 << 20);
        index.applied(log_index - 1);
        let started = Instant::now();
        index.seal_due().unwrap();
        let seal = started.elapsed();
        let started = Instant::now();
        let capture = index.capture();
        let capture_sealed = started.elapsed();
        let started = Instant::now();
        let sealed_bytes = capture.table.encode().len();
        let encode_sealed = started.elapsed();
        let memory = index.table().read().streams_bytes() as f64 / streams as f64;
        println!(
            "{streams} streams, {log_index} batches: accept {accept} ns, plan at the tail {plan} ns, \
             capture in {capture_open:?}, {open_bytes} B encoded in {encode_open:?}, \
             seal in {seal:?}, then capture in {capture_sealed:?}, {sealed_bytes} B encoded in \
             {encode_sealed:?}, {memory:.1} B a stream"
        );
    }
}

#[test]
#[ignore = "measures, and writes 2 GB"]
fn measure_reading_a_backlog() {
    const SEGMENTS: u32 = 16;
    const STREAMS: u64 = 16;
    for len in [1_000, 16_000, 250_000_u32] {
        let dir = tempfile::tempdir().unwrap();
        let index = open(dir.path());
        let body = vec![7_u8; len as usize];
        let mut ends = vec![0_u64; STREAMS as usize];
        let mut log_index = 0;
        for segment in 1..=SEGMENTS {
            let path = dir.path().join(file_name(FileKind::Segment, segment, 1));
            let mut file = std::io::BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
            let mut position = 0;
            while position + u64::from(len) <= 128 << 20 {
                // Batches of a stream in groups, as a producer's requests write them to the log.
                let stream = log_index / 4 % STREAMS;
                file.write_all(&body).unwrap();
                let end = &mut ends[stream as usize];
                index.accept(log_index, stream, address(segment, position, len, *end));
                *end += 10;
                position += u64::from(len);
                log_index += 1;
            }
            file.into_inner().unwrap();
            index.full(segment, log_index - 1, position);
        }
        index.applied(log_index);
        index.seal_due().unwrap();

        for threads in [0, 4] {
            let reader = Reader::new(index.clone(), &Workers::Threads, threads, || {}).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (mut bytes, mut reads) = (0, 0);
            let started = Instant::now();
            for stream in 0..STREAMS {
                let mut offset = 0;
                while offset < ends[stream as usize] {
                    let read = runtime.block_on(reader.read(stream, offset, 1 << 20)).unwrap();
                    let now: usize = read.iter().map(|bytes| bytes.len()).sum();
                    offset += now as u64 / u64::from(len) * 10;
                    bytes += now;
                    reads += 1;
                }
            }
            let took = started.elapsed();
            println!(
                "batches of {len} B, {threads} reader threads: {} MB in {took:?}, {:.2} GB/s, \
                 {} KB a read",
                bytes >> 20,
                bytes as f64 / took.as_secs_f64() / 1e9,
                (bytes >> 10) / reads
            );
        }
    }
}
