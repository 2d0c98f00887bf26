//! Overview of a node, from its existing counters. Clients derive rates from two requests.

use std::time::Duration;

use access_rules::acl::Action;
use axum::extract::State;
use axum::{Extension, Json};
use broker::{SYNC_BUCKETS_MICROS, ShardVitals, UnreadyReason, Vitals};
use gateway::TrafficSeen;
use serde::Serialize;
use utoipa::ToSchema;

use crate::connection::Peer;
use crate::front::{FrontEnd, Node, Readiness};
use crate::login::{self, RequestClient};
use crate::problem::Problem;

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Overview {
    /// When this was counted.
    at_ms: i64,
    version: &'static str,
    cluster: String,
    node: u32,
    /// Warnings for operators; empty: none.
    alarms: Vec<Alarm>,
    /// Whether this port is open: every client that reaches it has all rights.
    open_to_everybody: bool,
    topics: u64,
    partitions: u64,
    lease_groups: u64,
    protocols: Vec<Protocol>,
    leases: Leases,
    disk: Disk,
    journal: Journal,
    shards: Vec<Shard>,
    process: Process,
    /// When the certificate ends. Null: nothing is encrypted.
    certificate_ends_ms: Option<i64>,
    /// Log-ins that failed since the node's start.
    logins_refused: u64,
}

#[derive(Serialize, ToSchema)]
struct Alarm {
    /// The name that it has in metrics, too.
    alarm: &'static str,
    /// In words.
    text: String,
}

/// Since the node's start, but for `connections`.
#[derive(Serialize, ToSchema)]
struct Protocol {
    protocol: &'static str,
    connections: u64,
    connections_opened: u64,
    connections_refused: u64,
    records_received: u64,
    bytes_received: u64,
    bytes_delivered: u64,
}

/// Records of groups that settle one by one, since the node's start.
#[derive(Serialize, ToSchema)]
struct Leases {
    delivered: u64,
    redelivered: u64,
    settled: u64,
    dead_letters: u64,
}

#[derive(Serialize, ToSchema)]
struct Disk {
    /// Null: the machine does not say.
    free_bytes: Option<u64>,
    size_bytes: Option<u64>,
    /// Bytes of full journal segments.
    segment_bytes: u64,
    /// Bytes of readable records, including those of the segment that is being written.
    live_bytes: u64,
    segments: u64,
}

#[derive(Serialize, ToSchema)]
struct Journal {
    appended_bytes: u64,
    entries: u64,
    syncs: u64,
    sync_micros: u64,
    queued_bytes: u64,
    /// Syncs by how long they took, since the node's start.
    sync_buckets: Vec<Bucket>,
}

#[derive(Serialize, ToSchema)]
struct Bucket {
    /// No longer than so many microseconds, and longer than the bucket before. Null: longer than all.
    to_micros: Option<u64>,
    syncs: u64,
}

#[derive(Serialize, ToSchema)]
struct Shard {
    shard: u32,
    /// The node that leads it. Null: none, as far as this node knows.
    leader: Option<u32>,
    term: u64,
    log_end: u64,
    /// Up to where the log was applied since the start; 0 where nothing was.
    applied: u64,
    /// Log entries that the slowest member lacks. Null: the shard is led elsewhere, or has no other members.
    lag_entries: Option<u64>,
    segments: u64,
    segment_bytes: u64,
    live_bytes: u64,
    full: bool,
}

#[derive(Serialize, ToSchema)]
struct Process {
    cpu_seconds: f64,
    resident_bytes: Option<u64>,
    open_files: Option<u64>,
    open_files_max: Option<u64>,
}

/// How this node is, and what it has counted since its start.
#[utoipa::path(
    get,
    path = "/v1/overview",
    tag = "operate",
    responses((status = 200, body = Overview))
)]
pub(in crate::v1) async fn overview(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
) -> Result<Json<Overview>, Problem> {
    caller.cluster(Action::Describe)?;
    let node = front.opened()?;
    let vitals = node.broker.vitals();
    let traffic = front.options().connections.traffic_seen();
    Ok(Json(Overview {
        at_ms: node.broker.clock().now_ms(),
        version: node.version,
        cluster: node.broker.cluster_id().to_string(),
        node: node.broker.node(),
        alarms: alarms(&front, node, &vitals),
        open_to_everybody: !login::is_required(node, &peer),
        topics: vitals.topics,
        partitions: vitals.partitions,
        lease_groups: vitals.lease_groups,
        protocols: traffic.into_iter().map(protocol).collect(),
        leases: leases(&vitals.shards),
        disk: disk(node, &vitals.shards),
        journal: journal(&vitals.shards),
        shards: vitals.shards.iter().map(shard).collect(),
        process: process(node),
        certificate_ends_ms: node.tls.as_ref().map(|tls| tls.ends_secs() * 1_000),
        logins_refused: node.users.as_ref().map_or(0, |users| users.failed_logins()),
    }))
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}

fn alarms(front: &FrontEnd, node: &Node, vitals: &Vitals) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let mut raise = |alarm, text: String| alarms.push(Alarm { alarm, text });
    match front.readiness() {
        Readiness::Failed(reason) => {
            raise("failed", format!("a part of the node failed: {reason}"))
        }
        Readiness::Draining => raise("draining", "the node shuts down".to_owned()),
        Readiness::Ready | Readiness::Recovering | Readiness::Broker(_) => {}
    }
    match node.broker.unready() {
        Some(UnreadyReason::NoLeader) => {
            raise("no_leader", "the catalog has no leader: nothing can be changed".into())
        }
        Some(UnreadyReason::DiskHangs(since)) => {
            let text = format!("a write or sync has not returned for {} s", seconds(since));
            raise("sync_hung", text);
        }
        None => {}
    }
    for shard in &vitals.shards {
        if shard.is_full {
            let text = format!(
                "the disk is full for shard {}: records are refused, reads and settles go on",
                shard.shard.0
            );
            raise("disk", text);
        }
        if shard.leader.is_none() && shard.shard != base::ShardId::CATALOG {
            raise("no_leader", format!("shard {} has no leader", shard.shard.0));
        }
    }
    let damaged = node.broker.stored().damaged.len();
    if damaged > 0 {
        raise(
            "damage",
            format!("{damaged} places of what is stored are damaged: see postroad scrub"),
        );
    }
    alarms
}

fn protocol((protocol, seen): (&'static str, TrafficSeen)) -> Protocol {
    Protocol {
        protocol,
        connections: seen.connections,
        connections_opened: seen.connections_opened,
        connections_refused: seen.connections_refused,
        records_received: seen.records_received,
        bytes_received: seen.bytes_received,
        bytes_delivered: seen.bytes_delivered,
    }
}

fn sum(shards: &[ShardVitals], of: fn(&ShardVitals) -> u64) -> u64 {
    shards.iter().map(of).sum()
}

fn leases(shards: &[ShardVitals]) -> Leases {
    Leases {
        delivered: sum(shards, |shard| shard.leases.delivered),
        redelivered: sum(shards, |shard| shard.leases.redelivered),
        settled: sum(shards, |shard| shard.leases.settled),
        dead_letters: sum(shards, |shard| shard.leases.dead_letters),
    }
}

fn disk(node: &Node, shards: &[ShardVitals]) -> Disk {
    let storage = node.broker.storage().ok();
    Disk {
        free_bytes: storage.as_ref().map(|it| it.free_bytes),
        size_bytes: storage.as_ref().map(|it| it.total_bytes),
        segment_bytes: sum(shards, |shard| shard.segment_bytes),
        live_bytes: sum(shards, |shard| shard.live_bytes),
        segments: sum(shards, |shard| shard.segments),
    }
}

fn journal(shards: &[ShardVitals]) -> Journal {
    let bounds = SYNC_BUCKETS_MICROS.iter().map(|micros| Some(*micros)).chain([None]);
    let buckets = bounds.enumerate().map(|(at, to_micros)| Bucket {
        to_micros,
        syncs: shards.iter().map(|shard| shard.journal.sync_buckets[at]).sum(),
    });
    Journal {
        appended_bytes: sum(shards, |shard| shard.journal.bytes),
        entries: sum(shards, |shard| shard.journal.entries),
        syncs: sum(shards, |shard| shard.journal.syncs),
        sync_micros: sum(shards, |shard| shard.journal.total_sync_micros),
        queued_bytes: sum(shards, |shard| shard.journal.queued_bytes as u64),
        sync_buckets: buckets.collect(),
    }
}

fn shard(shard: &ShardVitals) -> Shard {
    Shard {
        shard: shard.shard.0,
        leader: shard.leader,
        term: shard.term,
        log_end: shard.log_end,
        applied: shard.applied,
        lag_entries: shard.lag_max,
        segments: shard.segments,
        segment_bytes: shard.segment_bytes,
        live_bytes: shard.live_bytes,
        full: shard.is_full,
    }
}

fn process(node: &Node) -> Process {
    let seen = (node.process)();
    Process {
        cpu_seconds: seen.cpu_seconds,
        resident_bytes: seen.resident_bytes,
        open_files: seen.open_files,
        open_files_max: seen.open_files_max,
    }
}
