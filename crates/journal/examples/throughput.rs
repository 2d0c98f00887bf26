//! Measures the cost of a commit beyond the disk's own work, and the share of the disk's bandwidth
//! that large batches reach. One run measures both raw files and the journal, in turns:
//!
//! `cargo run --release -p journal --example throughput -- [DIR]`

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use journal::{Body, Entry, EntryId, EntryKind, Journal, Options};
use world::{Disk, Instant, RealDisk, World};

const SEGMENT_BYTES: u64 = 128 << 20;
const COMMITS: usize = 4000;
/// Bytes written in a run of the bandwidth test.
const TOTAL_BYTES: usize = 1 << 30;

fn main() {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("journal-throughput-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    println!("in {}", dir.display());
    for turn in 1..=3 {
        println!("-- turn {turn}");
        raw_commits(&dir, true);
        raw_commits(&dir, false);
        single_commits(&dir);
        raw_bandwidth(&dir, 1 << 20);
        raw_bandwidth(&dir, 8 << 20);
        // The first run after the raw files also pays for their removal, so its figures are not
        // used.
        bandwidth(&dir, "warm-up", 64 << 10, 1);
        bandwidth(&dir, "64 KiB batches, 1 an entry", 64 << 10, 1);
        bandwidth(&dir, "64 KiB batches, 16 an entry", 64 << 10, 16);
        bandwidth(&dir, "4 KiB batches, 64 an entry", 4 << 10, 64);
        bandwidth(&dir, "1 KiB batches, 64 an entry", 1 << 10, 64);
        bandwidth(&dir, "1 KiB batches, 1 an entry", 1 << 10, 1);
        reopen(&dir);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

fn percentiles(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_micros();
    println!("{name}: p50 {} us, p90 {} us, p99 {} us", at(0.5), at(0.9), at(0.99));
}

fn fresh_file(dir: &Path, written: bool) -> Arc<dyn world::DiskFile> {
    let path = dir.join("raw");
    let _ = std::fs::remove_file(&path);
    let file = RealDisk.open(&path, true).unwrap();
    file.allocate(SEGMENT_BYTES).unwrap();
    if written {
        let zeros = vec![0; 1 << 20];
        for position in (0..SEGMENT_BYTES).step_by(1 << 20) {
            file.write_at(&mut [IoSlice::new(&zeros)], position).unwrap();
        }
    }
    file.sync().unwrap();
    file
}

/// Raw cost of the same frame: `pwritev` and `fdatasync` only.
fn raw_commits(dir: &Path, written: bool) {
    let file = fresh_file(dir, written);
    let frame = vec![7; 1536];
    let mut times = Vec::with_capacity(COMMITS);
    for commit in 0..COMMITS as u64 {
        let begun = Instant::now();
        file.write_at(&mut [IoSlice::new(&frame)], 512 + commit * 1536).unwrap();
        file.sync().unwrap();
        times.push(begun.elapsed());
    }
    let blocks = if written { "written" } else { "allocated" };
    percentiles(&format!("raw 1.5 KiB write and sync, {blocks} blocks"), times);
}

fn open(dir: &Path) -> Journal {
    let dir = dir.join("journal");
    let _ = std::fs::remove_dir_all(&dir);
    let options =
        Options { segment_bytes: SEGMENT_BYTES, disk_reserve_bytes: 0, ..Options::default() };
    Journal::open(&World::real(), &dir, options).unwrap().journal
}

fn entry(index: u64, body: &Bytes, bodies: usize) -> Entry {
    let body = |number| Body {
        stream: number as u64,
        base_offset: index,
        span: 1,
        max_timestamp: 0,
        bytes: body.clone(),
    };
    Entry {
        id: EntryId { term: 1, leader: 1, index },
        kind: EntryKind::Command,
        head: Bytes::from_static(b"a command's head"),
        bodies: (0..bodies).map(body).collect(),
    }
}

/// Appends one entry of 1 KiB at a time, and times `append` until its callback reaches the calling
/// thread.
fn single_commits(dir: &Path) {
    let journal = open(dir);
    let body = Bytes::from(vec![7; 1024]);
    let (told, hears) = channel();
    journal.append(vec![entry(1, &body, 1)], move |_| told.send(()).unwrap()).unwrap();
    hears.recv().unwrap();
    // The next segment is being preallocated: wait until it is ready, as it is for a journal in
    // use.
    std::thread::sleep(Duration::from_secs(2));
    journal.roll();
    let (mut heard, mut called) = (Vec::new(), Vec::new());
    let before = journal.stats();
    for index in 2..=COMMITS as u64 {
        let (told, hears) = channel();
        let begun = Instant::now();
        journal
            .append(vec![entry(index, &body, 1)], move |_| told.send(begun.elapsed()).unwrap())
            .unwrap();
        called.push(hears.recv().unwrap());
        heard.push(begun.elapsed());
    }
    let after = journal.stats();
    percentiles("journal, 1 KiB entry, append to callback", called);
    percentiles("journal, 1 KiB entry, append to caller woken", heard);
    let syncs = after.syncs - before.syncs;
    println!(
        "  of that, sync: mean {} us",
        (after.total_sync_micros - before.total_sync_micros) / syncs
    );
}

fn raw_bandwidth(dir: &Path, size: usize) {
    let body = vec![7; size];
    for written in [true, false] {
        let (mut took, mut done) = (Duration::ZERO, 0);
        while done < TOTAL_BYTES {
            let file = fresh_file(dir, written);
            let begun = Instant::now();
            for position in (0..SEGMENT_BYTES).step_by(size) {
                file.write_at(&mut [IoSlice::new(&body)], position).unwrap();
                file.sync().unwrap();
            }
            took += begun.elapsed();
            done += SEGMENT_BYTES as usize;
        }
        let rate = done as f64 / took.as_secs_f64() / 1e6;
        let blocks = if written { "written" } else { "allocated" };
        println!("raw {} MiB writes, each synced, {blocks} blocks: {rate:.0} MB/s", size >> 20);
    }
}

/// Appends at full speed, with at most 16 MiB in flight.
fn bandwidth(dir: &Path, name: &str, body_bytes: usize, bodies: usize) {
    let journal = open(dir);
    let body = Bytes::from(vec![7; body_bytes]);
    let total = if bodies == 1 && body_bytes < 4096 { TOTAL_BYTES / 4 } else { TOTAL_BYTES };
    let entries = total / (body_bytes * bodies);
    let in_flight_max = ((16 << 20) / (body_bytes * bodies)).clamp(4, 4096);
    let (told, hears) = channel();
    let cpu = cpu_seconds();
    let begun = Instant::now();
    let mut in_flight = 0;
    for index in 1..=entries as u64 {
        let told = told.clone();
        journal.append(vec![entry(index, &body, bodies)], move |_| told.send(()).unwrap()).unwrap();
        in_flight += 1;
        while in_flight >= in_flight_max {
            hears.recv().unwrap();
            in_flight -= 1;
        }
    }
    for _ in 0..in_flight {
        hears.recv().unwrap();
    }
    let (took, stats) = (begun.elapsed().as_secs_f64(), journal.stats());
    let rate = (entries * bodies * body_bytes) as f64 / took / 1e6;
    println!(
        "journal, {name}: {rate:.0} MB/s, {:.0} entries/s, {} KiB a frame, {} us a sync, {:.2} CPU",
        entries as f64 / took,
        (stats.bytes / stats.frames) >> 10,
        stats.total_sync_micros / stats.syncs,
        (cpu_seconds() - cpu) / took,
    );
}

/// Opens the journal twice: empty, and with everything that the last run wrote.
fn reopen(dir: &Path) {
    let report = |dir: &Path| {
        let options = Options { disk_reserve_bytes: 0, ..Options::default() };
        Journal::open(&World::real(), dir, options).unwrap().report
    };
    println!("read back: {}", report(&dir.join("journal")));
    println!("empty start: {}", report(&dir.join("empty")));
    std::fs::remove_dir_all(dir.join("empty")).unwrap();
}

/// CPU seconds of this process, user and system.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks =
        |place: usize| fields.get(place).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    // Fields 14 and 15 of the file; a tick is 10 ms on Linux.
    (ticks(11) + ticks(12)) / 100.0
}
