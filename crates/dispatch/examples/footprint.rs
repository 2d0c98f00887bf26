//! Cost of a record: memory by its state, and processing time.
//!
//! `cargo run --release -p dispatch --example footprint`

#![expect(clippy::disallowed_types, reason = "it measures the time of this machine")]

use std::fs;
use std::process::Command;
use std::time::Instant;

use base::Stripe;
use dispatch::*;

/// Name of a measurement, and its function with the number of records.
type Measure = (&'static str, fn(u64));

/// Each runs in a process of its own: memory retained by the allocator would distort the next one.
const MEASURES: [Measure; 11] = [
    ("idle", |_| idle()),
    ("backlog", |_| backlog()),
    ("leased", leased),
    ("delayed", |records| delayed(records * 10)),
    ("blocked", blocked),
    ("ranges", ranges),
    ("free", |records| speed("free", Policy::default(), records, false, 1)),
    ("wide", |records| speed("free, 16 partitions", Policy::default(), records, false, 16)),
    ("reverse", |records| speed("free, settled backwards", Policy::default(), records, true, 1)),
    ("key", |records| {
        let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
        speed("by key, 100,000 keys", policy, records, false, 1);
    }),
    ("priority", |records| {
        let policy = Policy { priorities: 9, ..Policy::default() };
        speed("10 priorities", policy, records, false, 1);
    }),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let records = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    if let Some(name) = arguments.next() {
        for (_, measure) in MEASURES.iter().filter(|(of, _)| *of == name) {
            measure(records);
        }
        return;
    }
    println!("{records} records each, 10 times as many delayed");
    let itself = std::env::current_exe().expect("its own path is known");
    for (name, _) in MEASURES {
        let arguments = [records.to_string(), name.to_string()];
        let ended = Command::new(&itself).args(arguments).status().expect("it runs again");
        assert!(ended.success(), "{name}: {ended}");
    }
}

/// Private dirty bytes of the process.
fn resident() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find(|line| line.starts_with("Private_Dirty:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

fn report(what: &str, before: u64, count: u64) {
    let bytes = resident().saturating_sub(before);
    println!("{what}: {:.1} bytes each", bytes as f64 / count as f64);
}

fn engine(policy: Policy, partitions: u32, end: u64) -> Dispatch {
    let start = PartitionStart { end, ..PartitionStart::default() };
    let bounds = Bounds { leased: usize::MAX, blocked: usize::MAX, ..Bounds::default() };
    Dispatch::with_bounds(policy, Stripe::ALL, vec![start; partitions as usize], 1, bounds)
}

fn record(offset: u64) -> ScannedRecord {
    let mixed = offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    ScannedRecord {
        offset,
        bytes: 1_024,
        value_bytes: 1_024,
        timestamp: 1_700_000_000_000 + offset as i64,
        key: Some(1 + mixed % 100_000),
        priority: (mixed % 10) as u8,
        due_ms: i64::MIN,
        expires_ms: i64::MAX,
    }
}

const NOW: i64 = 1_700_000_000_000;

fn join(engine: &mut Dispatch, records: u32) {
    let joined = PushConsumer {
        session: 1,
        records,
        bytes: u64::MAX,
        credit: Credit::Window,
        priority: 0,
        exclusive: false,
        settle_on_send: false,
        lease_ms: None,
    };
    engine.join(1, joined).expect("it is the only consumer");
}

fn read(engine: &mut Dispatch, record: impl Fn(u64) -> ScannedRecord, now_ms: i64) -> bool {
    let Some(ReadRange { partition, from, up_to, .. }) = engine.wants() else { return false };
    let up_to = up_to.min(from + 1_000);
    engine.scanned(partition, from, up_to, (from..up_to).map(record), now_ms);
    true
}

fn idle() {
    let before = resident();
    let engines: Vec<Dispatch> = (0..10_000).map(|_| engine(Policy::default(), 1, 0)).collect();
    report("an engine with one partition", before, engines.len() as u64);
    let before = resident();
    let wide = engine(Policy::default(), 100_000, 0);
    report("an idle partition of an engine", before, 100_000);
    drop((engines, wide));
}

fn backlog() {
    let before = resident();
    let mut engine = engine(Policy::default(), 1, 100_000_000);
    join(&mut engine, 1_000);
    while read(&mut engine, record, NOW) {}
    let bytes = resident().saturating_sub(before);
    println!("a backlog of 100,000,000 records: {bytes} bytes in all");
}

fn leased(count: u64) {
    let before = resident();
    let mut engine = engine(Policy::default(), 1, count);
    join(&mut engine, u32::MAX);
    let (mut pools, mut out) = (Pools::new(), Vec::new());
    while read(&mut engine, record, NOW) {
        engine.dispatch(NOW, &mut pools, &mut out);
        out.clear();
    }
    assert_eq!(engine.counters().leased, count);
    report("a leased record", before, count);
}

fn delayed(count: u64) {
    let mut engine = engine(Policy::default(), 1, count);
    join(&mut engine, 1_000);
    let day_ms = 24 * 60 * 60 * 1_000;
    let later = |offset: u64| {
        let after = offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
        ScannedRecord { due_ms: NOW + 1 + (after % day_ms) as i64, ..record(offset) }
    };
    let before = resident();
    let begin = Instant::now();
    while read(&mut engine, later, NOW) {}
    let each = begin.elapsed().as_nanos() as f64 / count as f64;
    assert_eq!(engine.counters().delayed, count);
    report("a delayed record", before, count);
    println!("  {each:.0} ns to take it in");
    let begin = Instant::now();
    let listed = engine.delayed(None, 100).len();
    println!("  {listed} of them listed in order: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);

    let (mut longest, mut ticks) = (0.0_f64, 0_u64);
    let begin = Instant::now();
    while let Some(next) = engine.next_deadline() {
        let tick = Instant::now();
        engine.tick(next);
        longest = longest.max(tick.elapsed().as_secs_f64());
        ticks += 1;
    }
    let each = begin.elapsed().as_nanos() as f64 / count as f64;
    println!("  {each:.0} ns until due, {ticks} ticks, the longest {:.2} ms", longest * 1e3);
}

fn blocked(count: u64) {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut engine = engine(policy, 1, count);
    join(&mut engine, u32::MAX);
    let (mut pools, mut out) = (Pools::new(), Vec::new());
    let same_key = |offset| ScannedRecord { key: Some(7), ..record(offset) };
    let before = resident();
    while read(&mut engine, same_key, NOW) {
        engine.dispatch(NOW, &mut pools, &mut out);
    }
    assert_eq!(engine.counters().blocked, count - 1);
    report("a record behind its key", before, count);
}

const TURN: u32 = 1_000;

/// Reads, leases, settles and drains records: in slots of a driver.
fn speed(what: &str, policy: Policy, count: u64, reverse: bool, partitions: u32) {
    let mut engine = engine(policy, partitions, count / u64::from(partitions));
    join(&mut engine, TURN);
    let (mut pools, mut out, mut changes) = (Pools::new(), Vec::new(), Changes::default());
    let (mut reading, mut settling) = (0, 0);
    let (mut handing, mut draining) = (0, 0);
    let mut done = 0;
    let mut now_ms = NOW;
    while done < count / u64::from(partitions) * u64::from(partitions) {
        now_ms += 1;
        let begin = Instant::now();
        while read(&mut engine, record, now_ms) {}
        reading += begin.elapsed().as_nanos();
        let begin = Instant::now();
        engine.dispatch(now_ms, &mut pools, &mut out);
        handing += begin.elapsed().as_nanos();
        assert!(!out.is_empty(), "{:?}", engine.counters());
        if reverse {
            out.reverse();
        }
        done += out.len() as u64;
        let begin = Instant::now();
        for assignment in out.drain(..) {
            let by_token = assignment.selection();
            let settled = engine.settle(1, by_token, Settlement::Accept, now_ms);
            assert_eq!(settled, Ok(1));
        }
        settling += begin.elapsed().as_nanos();
        let begin = Instant::now();
        changes.clear();
        engine.drain(&mut changes);
        draining += begin.elapsed().as_nanos();
    }
    let each = |nanos: u128| nanos as f64 / count as f64;
    println!(
        "{what}: scan {:.0}, hand out {:.0}, settle {:.0}, drain {:.0} ns a record",
        each(reading),
        each(handing),
        each(settling),
        each(draining)
    );
}

fn ranges(count: u64) {
    let policy = Policy { priorities: 9, ..Policy::default() };
    let mut engine = engine(policy, 1, count);
    join(&mut engine, 1);
    let before = resident();
    while read(&mut engine, record, NOW) {}
    report("a ready record of a random priority", before, count);
}
