//! The cost of consensus: `cargo run --release -p consensus --example latency -- DIR [COUNT]`.
//!
//! Proposes entries with one body of 1 KB to a group of one voter on a journal in DIR, one at a time and eight in
//! flight, and appends as many to the bare journal. The difference is the cost of the engine.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::{
    ApplyError, CommittedEntry, Consensus, ConsensusOptions, Encode, Leadership, Payload, Replace,
    RestoreError, StateMachine,
};
use journal::{Body, Entry, EntryId, EntryKind, Journal, OpenedJournal, Options};
use tokio::sync::oneshot;
use world::{Instant, World};

const IN_FLIGHT: usize = 8;

struct NoMachineState;

impl StateMachine for NoMachineState {
    fn apply(&self, _entry: CommittedEntry<'_>) -> Result<u64, ApplyError> {
        Ok(0)
    }

    fn capture(&self) -> Encode {
        Box::new(Bytes::new)
    }

    fn restore(&self, _machine: &[u8]) -> Result<(), RestoreError> {
        Ok(())
    }

    fn replace(self: Arc<Self>, _: u64, _: &[u8]) -> Result<Replace, RestoreError> {
        Ok(Replace::new(|switch| switch()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: latency DIR [COUNT]")?;
    let count: usize = arguments.next().map_or(Ok(20_000), |count| count.parse())?;
    // On a worker of the runtime, as the broker is: the main thread would add two wake-ups.
    tokio::spawn(async move { measure(Path::new(&dir), count).await }).await?
}

async fn measure(dir: &Path, count: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    bare_journal(open(&dir.join("bare"))?.journal, count).await?;

    let began = Instant::now();
    let opened = open(&dir.join("consensus"))?;
    let opened_after = millis(began);
    let (world, options) = (World::real(), ConsensusOptions::default());
    let node = Consensus::start(&world, 1, opened, Arc::new(NoMachineState), options).await?;
    println!("{:28} {:8.1} ms, of it open {opened_after:.1} ms", "open and lead", millis(began));
    let leadership = node.leadership().await?;
    for in_flight in [1, IN_FLIGHT] {
        proposals(&leadership, in_flight, count).await?;
    }
    node.shutdown().await;
    Ok(())
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn open(dir: &Path) -> Result<OpenedJournal, journal::OpenError> {
    Journal::open(&World::real(), dir, Options::default())
}

async fn bare_journal(journal: Journal, count: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    for in_flight in [1, IN_FLIGHT] {
        let first = journal.last_id().map_or(0, |id| id.index + 1);
        let mut under_way = VecDeque::new();
        let mut times = Times::new(count);
        for number in 0..count {
            if under_way.len() == in_flight {
                times.end(under_way.pop_front()).await?;
            }
            let began = Instant::now();
            let (durable, synced) = oneshot::channel();
            let entry = entry(first + number as u64);
            journal.append(vec![entry], move |result| drop(durable.send(result)))?;
            under_way.push_back((began, synced));
        }
        while !under_way.is_empty() {
            times.end(under_way.pop_front()).await?;
        }
        times.print(&format!("journal, {in_flight} in flight"));
    }
    journal.close();
    Ok(())
}

async fn proposals(
    leadership: &Leadership,
    in_flight: usize,
    count: usize,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut under_way = VecDeque::new();
    let mut times = Times::new(count);
    for number in 0..count {
        if under_way.len() == in_flight {
            times.end(under_way.pop_front()).await?;
        }
        let began = Instant::now();
        let Entry { head, bodies, .. } = entry(number as u64);
        let proposed = leadership.propose(Payload { head, bodies, ticket: 1 }).await?;
        under_way.push_back((began, proposed));
    }
    while !under_way.is_empty() {
        times.end(under_way.pop_front()).await?;
    }
    times.print(&format!("consensus, {in_flight} in flight"));
    Ok(())
}

fn entry(index: u64) -> Entry {
    let body = Body {
        stream: 1,
        base_offset: index,
        span: 1,
        max_timestamp: -1,
        bytes: Bytes::from_static(&[7; 1024]),
    };
    Entry {
        id: EntryId { term: 1, leader: 1, index },
        kind: EntryKind::Command,
        head: Bytes::from_static(b"produce"),
        bodies: vec![body],
    }
}

struct Times {
    began: Instant,
    micros: Vec<u32>,
}

impl Times {
    fn new(count: usize) -> Self {
        Self { began: Instant::now(), micros: Vec::with_capacity(count) }
    }

    async fn end<F, T, E>(
        &mut self,
        oldest: Option<(Instant, F)>,
    ) -> Result<(), Box<dyn Error + Send + Sync>>
    where
        F: Future<Output = Result<T, E>> + Send,
        E: Error + Send + Sync + 'static,
    {
        let Some((began, outcome)) = oldest else { return Ok(()) };
        outcome.await?;
        self.micros.push(began.elapsed().as_micros() as u32);
        Ok(())
    }

    fn print(mut self, what: &str) {
        let took: Duration = self.began.elapsed();
        self.micros.sort_unstable();
        let at = |share: f64| self.micros[((self.micros.len() - 1) as f64 * share) as usize];
        println!(
            "{what:28} {:8.0} /s   p50 {:5} us   p99 {:6} us   p99.9 {:6} us",
            self.micros.len() as f64 / took.as_secs_f64(),
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
}
