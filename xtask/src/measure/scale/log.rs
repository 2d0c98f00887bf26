//! Kafka records, at the leaders of their partitions.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::requests::ProduceOutcome;
use host::probe;

use super::nodes::Nodes;
use crate::failure::{Context, Failure, Outcome};
use crate::measure::TOPIC;
use crate::records::batch;

const RECORD_BYTES: usize = 1024;
const RECORDS_A_REQUEST: usize = 16;
/// Requests in flight at all nodes together.
const IN_FLIGHT: usize = 64;
const ONE_BY_ONE: usize = 2_000;
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) struct ProduceCost {
    pub(super) rate: f64,
    /// Processor seconds of all nodes per million records.
    pub(super) processor: f64,
}

pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Produces at full speed, on one connection to each node that leads a partition.
pub(super) fn produce(nodes: &Nodes, leaders: &[usize], time: Duration) -> Outcome<ProduceCost> {
    run(nodes, leaders, WARM_UP)?;
    let (used, begun) = (nodes.cpu_seconds()?, Instant::now());
    let records = run(nodes, leaders, time)? as f64;
    let elapsed = begun.elapsed().as_secs_f64();
    let used = nodes.cpu_seconds()? - used;
    Ok(ProduceCost { rate: records / elapsed, processor: used / records * 1e6 })
}

/// Returns the number of acknowledged records.
fn run(nodes: &Nodes, leaders: &[usize], time: Duration) -> Outcome<u64> {
    let mut places = leaders.to_vec();
    places.sort_unstable();
    places.dedup();
    let in_flight = (IN_FLIGHT / places.len()).max(1);
    thread::scope(|scope| {
        let sending: Vec<_> = places
            .iter()
            .map(|place| {
                let led = leaders.iter().enumerate().filter(|(_, leader)| *leader == place);
                let led: Vec<i32> = led.map(|(partition, _)| partition as i32).collect();
                scope.spawn(move || send(nodes, *place, &led, in_flight, time))
            })
            .collect();
        let mut records = 0;
        for thread in sending {
            let sent = thread.join().map_err(|_| Failure::new("a producer panicked"))?;
            records += sent?;
        }
        Ok(records)
    })
}

fn send(
    nodes: &Nodes,
    place: usize,
    partitions: &[i32],
    in_flight: usize,
    time: Duration,
) -> Outcome<u64> {
    let mut connection = nodes.connect(place)?;
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let batch = batch(std::iter::repeat_n(value, RECORDS_A_REQUEST));
    let (mut under_way, mut acknowledged) = (VecDeque::new(), 0);
    let mut turns = partitions.iter().cycle();
    let begun = Instant::now();
    loop {
        while under_way.len() < in_flight && begun.elapsed() < time {
            let Some(partition) = turns.next() else { break };
            let sent = connection.produce(TOPIC, *partition, batch.clone());
            under_way.push_back(sent.context(|| "a node does not take the load")?);
        }
        let Some(sent) = under_way.pop_front() else { return Ok(acknowledged) };
        match connection.answer(sent).context(|| "a node does not answer the load")? {
            ProduceOutcome::Acknowledged { .. } => acknowledged += RECORDS_A_REQUEST as u64,
            ProduceOutcome::Refused { code } => {
                return Err(Failure::new(format!("a batch was refused with error code {code}")));
            }
        }
    }
}

/// Latency of one record at a time, in partition 0.
pub(super) fn latency(nodes: &Nodes, leader: usize) -> Outcome<Latency> {
    let mut connection = nodes.connect(leader)?;
    let batch = batch(std::iter::once(Bytes::from(vec![b'x'; RECORD_BYTES])));
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for _ in 0..ONE_BY_ONE {
        let begun = Instant::now();
        let sent = connection.produce(TOPIC, 0, batch.clone()).context(|| "cannot send")?;
        match connection.answer(sent).context(|| "no acknowledgement came")? {
            ProduceOutcome::Acknowledged { .. } => times.push(begun.elapsed()),
            ProduceOutcome::Refused { code } => {
                return Err(Failure::new(format!("a record was refused with error code {code}")));
            }
        }
    }
    times.sort_unstable();
    let quantile = |part| probe::quantile_us(&times, part);
    Ok(Latency { p50_us: quantile(0.5), p99_us: quantile(0.99) })
}
