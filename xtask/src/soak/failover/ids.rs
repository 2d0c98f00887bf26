//! Ids of records in the window of a topic without clients: the next leader must have them when it starts to serve
//! the load.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use client::blocking::Connection;
use client::records::NewRecord;
use client::requests::{self, ALTER_CONFIGS, ConfigChange, ConfigResource, ProduceOutcome};

use super::idle::{CreationCost, measure_creation};
use crate::cluster::{Cluster, leaders_by_any};
use crate::failure::{Context, Failure, Outcome};
use crate::figures::Figures;
use crate::records::batch_of;

const TOPIC: &str = "idle-ids";
const PARTITIONS: usize = 6;
const BATCH: usize = 2_000;
/// Value length, above the 40 bytes of an id.
const BYTES_EACH: usize = 100;
/// Unacknowledged batches of a partition at most.
const OPEN_MAX: usize = 8;
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Ids(CreationCost);

impl Ids {
    /// Stores this number of records with ids, which nodes and shards then remember.
    pub(super) fn store(cluster: &Cluster, count: usize) -> Outcome<Ids> {
        measure_creation(cluster, count, || store(cluster, count)).map(Ids)
    }

    pub(super) fn report(&self, figures: &mut Figures) {
        let Self(made) = self;
        figures.add("ids in a window under load", made.count as f64, "");
        figures.add("stored in", made.within.as_secs_f64(), "s");
        figures.add("memory for each of them, all nodes", made.bytes_each(), "bytes");
    }
}

fn store(cluster: &Cluster, count: usize) -> Outcome {
    let mut connection = open(cluster.address(0))?;
    let memory = ConfigChange::Set {
        name: "dedup.memory.max.bytes".to_owned(),
        value: (count * BYTES_EACH).to_string(),
    };
    let request = requests::alter_configs(ConfigResource::Broker, "", &[memory]);
    let answer = connection.call(ALTER_CONFIGS, &request).context(|| "cannot set the memory")?;
    if let Some(refused) = answer.responses.iter().find(|it| it.error_code != 0) {
        return Err(Failure::new(format!("the memory of ids is not set: {refused:?}")));
    }
    let configs =
        [("dedup.window.ms", "86400000".to_owned()), ("dedup.ids.max", count.to_string())];
    connection
        .create_topic(TOPIC, PARTITIONS as i32, &configs)
        .context(|| "cannot create the topic of ids")?;
    let nodes = cluster.addresses();
    let leaders = leaders_by_any(&nodes, TOPIC, PARTITIONS)?;
    let each = count.div_ceil(PARTITIONS);
    std::thread::scope(|scope| {
        let storing = leaders.iter().enumerate().map(|(partition, leader)| {
            let node = leader.map(|place| nodes[place]);
            scope.spawn(move || {
                let node = node.ok_or_else(|| Failure::new("a partition has no leader"))?;
                store_in(node, partition, each)
            })
        });
        let storing: Vec<_> = storing.collect();
        storing.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("storing ids panicked")))
        })
    })
}

fn store_in(node: SocketAddr, partition: usize, count: usize) -> Outcome {
    let mut connection = open(node)?;
    let mut open = VecDeque::new();
    let mut next = 0;
    while next < count || !open.is_empty() {
        if next < count && open.len() < OPEN_MAX {
            let some = next..(next + BATCH).min(count);
            next = some.end;
            let record = |number: usize| NewRecord {
                headers: vec![("postroad.id", format!("{partition}-{number}"))],
                ..NewRecord::of(Bytes::from_static(b"-"))
            };
            let sent = connection.produce(TOPIC, partition as i32, batch_of(some.map(record)));
            open.push_back(sent.context(|| "cannot store ids")?);
            continue;
        }
        let Some(sent) = open.pop_front() else { break };
        match connection.answer(sent).context(|| "ids are not acknowledged")? {
            ProduceOutcome::Acknowledged { .. } => {}
            other => return Err(Failure::new(format!("ids are not stored: {other:?}"))),
        }
    }
    Ok(())
}

fn open(node: SocketAddr) -> Outcome<Connection> {
    Connection::open(node, ANSWERED_WITHIN).context(|| "cannot connect")
}
