//! Figures of a node as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::OVERVIEW_ASKED_MAX;
use broker::{Broker, UnreadyReason};
use operations::overview::{Connections, Member, Node, Rates, Totals};

use crate::Host;
use crate::rows::ask_each;
use crate::sample::Sample;

pub(crate) fn node(broker: &Broker, host: &Host, sample: &Sample) -> Node {
    let vitals = broker.vitals();
    let storage = broker.storage().ok();
    let grown = sample.grown.zip(sample.over);
    let connections = host.connections.traffic_seen().into_iter();
    let (unconfirmed_bytes, unconfirmed_bytes_max) = vitals.produce_bytes;
    Node {
        version: host.version.to_owned(),
        cluster: broker.cluster_id().to_string(),
        node: broker.node().into(),
        up_ms: host.started.elapsed().as_millis() as u64,
        processors: grown.map(|(grown, over)| grown.cpu_seconds / over.as_secs_f64().max(1e-3)),
        resident_bytes: (host.process)().resident_bytes,
        disk_free_bytes: storage.as_ref().map(|it| it.free_bytes),
        disk_bytes: storage.as_ref().map(|it| it.total_bytes),
        connections: connections
            .map(|(protocol, seen)| Connections {
                protocol: protocol.to_owned(),
                connections: seen.connections,
            })
            .collect(),
        unconfirmed_bytes,
        unconfirmed_bytes_max,
    }
}

/// The nodes with a replica of a shard, and the shards each of them leads, as far as this node knows.
pub(crate) fn members(broker: &Broker) -> Vec<Member> {
    let here = broker.node();
    let (mut nodes, mut leads) = (BTreeSet::from([u64::from(here)]), BTreeMap::new());
    for group in broker.groups() {
        nodes.extend(group.voters.into_keys().chain(group.learners.into_keys()));
        if let Some(leader) = group.leader {
            leads.entry(u64::from(leader)).or_insert_with(Vec::new).push(group.shard.0);
        }
    }
    let live = |node: u64| {
        let number = u32::try_from(node).ok();
        number.is_some_and(|node| node == here || broker.connected_boot(node).is_some())
    };
    let member = |node| Member {
        node,
        live: live(node),
        leads: leads.get(&node).cloned().unwrap_or_default(),
    };
    nodes.into_iter().map(member).collect()
}

pub(crate) fn alarms(broker: &Broker) -> Vec<String> {
    let mut alarms = Vec::new();
    match broker.unready() {
        Some(UnreadyReason::NoLeader) => {
            alarms.push("the catalog has no leader: nothing can be changed".to_owned());
        }
        Some(UnreadyReason::DiskHangs(since)) => {
            let seconds = since.as_secs();
            alarms.push(format!("a write or sync has not returned for {seconds} s"));
        }
        None => {}
    }
    for shard in broker.vitals().shards {
        let number = shard.shard.0;
        if shard.is_full {
            alarms.push(format!("the disk is full for shard {number}: records are refused"));
        }
        if shard.leader.is_none() && shard.shard != base::ShardId::CATALOG {
            alarms.push(format!("shard {number} has no leader"));
        }
    }
    for member in members(broker).into_iter().filter(|member| !member.live) {
        alarms.push(format!("node {} is not connected", member.node));
    }
    let damaged = broker.stored().damaged.len();
    if damaged > 0 {
        alarms.push(format!("{damaged} places of what is stored are damaged"));
    }
    alarms
}

pub(crate) async fn of(broker: &Broker, sample: &Sample) -> Totals {
    let mut totals = Totals {
        topics: sample.topics.len() as u64,
        partitions: sample.topics.values().map(|topic| u64::from(topic.partitions)).sum(),
        queues: sample.queues.len() as u64,
        groups: sample.groups.len() as u64,
        waiting: sample.queues.values().map(|queue| queue.backlog).sum(),
        ..Totals::default()
    };
    // Only the leader of a queue knows its leases: with very many queues they are not queried.
    let waiting = sample.queues.iter().filter(|(_, queue)| queue.backlog > 0);
    let waiting: Vec<_> = waiting.map(|(id, _)| *id).take(OVERVIEW_ASKED_MAX + 1).collect();
    if waiting.len() <= OVERVIEW_ASKED_MAX {
        let (mut ready, mut leased, mut delayed) = (0, 0, 0);
        for counters in ask_each(broker, &waiting).await.into_iter().flatten() {
            ready += counters.ready;
            leased += counters.leased;
            delayed += counters.delayed;
        }
        totals.ready = Some(ready);
        totals.leased = Some(leased);
        totals.delayed = Some(delayed);
    }
    totals
}

pub(crate) fn rates(sample: &Sample) -> Option<Rates> {
    let (grown, over) = sample.grown.zip(sample.over)?;
    let seconds = over.as_secs_f64().max(1e-3);
    let a_second = |grown: u64| grown as f64 / seconds;
    Some(Rates {
        records_in: sample.records_in?,
        bytes_in: a_second(grown.bytes_in),
        bytes_out: a_second(grown.bytes_out),
        delivered: a_second(grown.delivered),
        redelivered: a_second(grown.redelivered),
        settled: a_second(grown.settled),
        dead_letters: a_second(grown.dead_letters),
        syncs: a_second(grown.syncs),
        sync_micros: (grown.syncs > 0).then(|| grown.sync_micros as f64 / grown.syncs as f64),
    })
}
