//! Metric families of the node and its broker. docs/user/metrics.md documents them.

use std::fmt::Result;
use std::time::Duration;

use broker::{RecordIdVitals, SYNC_BUCKETS_MICROS, ShardVitals, UnreadyReason, Vitals};
use gateway::TrafficSeen;

use super::writer::{Label, Number, Writer};
use crate::front::{FrontEnd, Node};

pub(super) fn write(writer: &mut Writer<'_>, node: &Node, front: &FrontEnd) -> Result {
    let vitals = node.broker.vitals();
    about(writer, node)?;
    objects(writer, &vitals)?;
    traffic(writer, &front.options().connections.traffic_seen())?;
    leases(writer, &vitals.shards)?;
    record_ids(writer, &vitals)?;
    journal(writer, &vitals.shards)?;
    disk(writer, node, &vitals.shards)?;
    shards(writer, &vitals.shards)?;
    throttled(writer, node)?;
    security(writer, node)?;
    traces(writer, node)
}

fn throttled(writer: &mut Writer<'_>, node: &Node) -> Result {
    let seen = node.quotas.throttled();
    let of = |value: fn(&(&'static str, u64, Duration)) -> Number| {
        seen.iter().flat_map(move |seen| {
            seen.by_quota.iter().map(move |quota| {
                let labels =
                    vec![("protocol", seen.protocol.to_owned()), ("quota", quota.0.to_owned())];
                (labels, value(quota))
            })
        })
    };
    let help = "How often a client was told to wait, since it used up a quota";
    writer.counters("throttled", help, of(|(_, times, _)| (*times).into()))?;
    let help = "For how long";
    writer.counters("throttled_seconds", help, of(|(_, _, wait)| wait.as_secs_f64().into()))?;
    let help = "Connections that are not listened to, since they used up a quota";
    let waiting = seen.iter().map(|seen| (one("protocol", seen.protocol), seen.waiting));
    writer.gauges("throttled_connections", help, waiting)
}

fn one(name: &'static str, value: impl ToString) -> Vec<Label> {
    vec![(name, value.to_string())]
}

fn about(writer: &mut Writer<'_>, node: &Node) -> Result {
    let version = one("version", node.version);
    writer.info("build", "What runs here", version)?;
    let process = (node.process)();
    writer.counter("process_cpu_seconds", "Time on cores", process.cpu_seconds)?;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory in use", process.resident_bytes),
        ("process_open_fds", "File descriptors in use", process.open_files),
        ("process_max_fds", "File descriptors that may be in use", process.open_files_max),
    ] {
        if let Some(value) = value {
            writer.gauge(name, help, value)?;
        }
    }
    Ok(())
}

fn objects(writer: &mut Writer<'_>, vitals: &Vitals) -> Result {
    writer.gauge("topics", "Topics of the cluster", vitals.topics)?;
    writer.gauge("partitions", "Partitions of the cluster", vitals.partitions)?;
    let kinds = [(one("kind", "leases"), vitals.lease_groups)];
    writer.gauges("groups", "Groups of the cluster, by what their members hold", kinds)?;
    let (used, most) = vitals.produce_bytes;
    let help = "Bytes of producers' requests between socket and disk";
    writer.gauges("in_flight_bytes", help, [(one("what", "produce"), used)])?;
    let help = "Bytes of them that there may be";
    writer.gauges("in_flight_limit_bytes", help, [(one("what", "produce"), most)])?;
    let (used, most) = vitals.unread_bytes;
    let help = "Bytes of deliveries that their consumers have not read";
    writer.gauge("deliveries_unread_bytes", help, used)?;
    let help = "Bytes of unread deliveries beyond which connections with much unread are held back";
    writer.gauge("deliveries_unread_limit_bytes", help, most)
}

type ProtocolTraffic = (&'static str, TrafficSeen);

fn traffic(writer: &mut Writer<'_>, seen: &[ProtocolTraffic]) -> Result {
    let of = |value: fn(&TrafficSeen) -> u64| {
        seen.iter().map(move |(protocol, seen)| (one("protocol", protocol), value(seen)))
    };
    writer.gauges("connections", "Connections that are open", of(|it| it.connections))?;
    let help = "Connections that were accepted";
    writer.counters("connections_opened", help, of(|it| it.connections_opened))?;
    let help = "Connections that ended";
    writer.counters("connections_closed", help, of(|it| it.connections_closed))?;
    let help = "Connections that were closed at once, since there were as many as there may be";
    writer.counters("connections_refused", help, of(|it| it.connections_refused))?;
    let help = "Records that clients sent and that were handed to a shard";
    writer.counters("records_received", help, of(|it| it.records_received))?;
    let help = "Bytes of their batches";
    writer.counters("received_bytes", help, of(|it| it.bytes_received))?;
    let help =
        "Bytes of records that are on their way to clients, of batches where whole ones are sent";
    writer.counters("delivered_bytes", help, of(|it| it.bytes_delivered))
}

fn leases(writer: &mut Writer<'_>, shards: &[ShardVitals]) -> Result {
    let sum = |of: fn(&ShardVitals) -> u64| shards.iter().map(of).sum::<u64>();
    let modes = [(one("mode", "leases"), sum(|shard| shard.leases.delivered))];
    writer.counters("records_delivered", "Records that were handed out, by how", modes)?;
    let help = "Records that were handed out again";
    writer.counter("records_redelivered", help, sum(|shard| shard.leases.redelivered))?;
    let help = "Records that groups are done with, as dead letters, too";
    writer.counter("records_settled", help, sum(|shard| shard.leases.settled))?;
    let help = "Records that became dead letters";
    writer.counter("dead_letters", help, sum(|shard| shard.leases.dead_letters))?;
    let help = "Records from other shards that found their topic deleted";
    writer.counter("records_unplaced", help, sum(|shard| shard.unplaced))
}

fn record_ids(writer: &mut Writer<'_>, vitals: &Vitals) -> Result {
    let sum = |of: fn(&RecordIdVitals) -> u64| -> u64 {
        vitals.shards.iter().map(|shard| of(&shard.record_ids)).sum()
    };
    let help = "Ids of records that are remembered, of topics with dedup.window.ms";
    writer.gauge("dedup_ids", help, sum(|it| it.ids))?;
    writer.gauge("dedup_ids_bytes", "Memory of these ids", sum(|it| it.bytes))?;
    let help = "Memory that ids may take: dedup.memory.max.bytes";
    writer.gauge("dedup_ids_limit_bytes", help, vitals.record_id_bytes_max)?;
    let help = "Ids that were forgotten before dedup.window.ms was over, since there were too many";
    writer.counter("dedup_ids_forgotten_early", help, sum(|it| it.forgotten_early))?;
    let help = "Topics in whose window ids are missing that were forgotten early, each counted in every shard";
    writer.gauge("dedup_windows_cut", help, sum(|it| it.windows_cut))
}

fn journal(writer: &mut Writer<'_>, shards: &[ShardVitals]) -> Result {
    let sum = |of: fn(&ShardVitals) -> u64| shards.iter().map(of).sum::<u64>();
    let seconds = sum(|shard| shard.journal.total_sync_micros) as f64 / 1e6;
    let bounds = SYNC_BUCKETS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::MAX]);
    let count = |bucket: usize| shards.iter().map(|it| it.journal.sync_buckets[bucket]).sum();
    let buckets: Vec<(f64, u64)> =
        bounds.enumerate().map(|(bucket, bound)| (bound, count(bucket))).collect();
    writer.durations("journal_sync_seconds", "Syncs of journals", seconds, &buckets)?;
    let help = "Frames that were written, each with one sync";
    writer.counter("journal_frames", help, sum(|shard| shard.journal.frames))?;
    let help = "Entries in them";
    writer.counter("journal_entries", help, sum(|shard| shard.journal.entries))?;
    let help = "Bytes of them";
    writer.counter("journal_appended_bytes", help, sum(|shard| shard.journal.bytes))?;
    let help = "Bytes that wait for their sync";
    writer.gauge("journal_queued_bytes", help, sum(|shard| shard.journal.queued_bytes as u64))?;
    writer.gauge("journal_segments", "Files of journals", sum(|shard| shard.segments))?;
    let live = sum(|shard| shard.live_bytes);
    let dead = sum(|shard| shard.segment_bytes).saturating_sub(live);
    let states = [(one("state", "live"), live), (one("state", "dead"), dead)];
    let help = "Bytes of these files: of records that may still be read, and of all else";
    writer.gauges("journal_disk_bytes", help, states)
}

fn disk(writer: &mut Writer<'_>, node: &Node, shards: &[ShardVitals]) -> Result {
    if let Ok(storage) = node.broker.storage() {
        writer.gauge("disk_free_bytes", "Free on the disk with the data", storage.free_bytes)?;
        writer.gauge("disk_size_bytes", "Size of that disk", storage.total_bytes)?;
    }
    let unready = node.broker.unready();
    let alarms = [
        ("disk", shards.iter().any(|shard| shard.is_full)),
        ("sync_hung", shards.iter().any(|shard| shard.hung_for.is_some())),
        ("no_leader", unready == Some(UnreadyReason::NoLeader)),
    ];
    let alarms = alarms.map(|(alarm, is_raised)| (one("alarm", alarm), is_raised));
    writer.gauges("alarm", "1: an operator should look", alarms)
}

fn shards(writer: &mut Writer<'_>, shards: &[ShardVitals]) -> Result {
    let of = |value: fn(&ShardVitals) -> u64| {
        shards.iter().map(move |shard| (one("shard", shard.shard.0), value(shard)))
    };
    let help = "Whether this node leads the shard";
    writer.gauges("shard_leader", help, of(|shard| shard.is_led_here.into()))?;
    let help = "Whether this node knows the leader";
    writer.gauges("shard_has_leader", help, of(|shard| shard.leader.is_some().into()))?;
    writer.gauges("shard_term", "The term in which it is led", of(|shard| shard.term))?;
    let help = "The index after the last entry of its log";
    writer.gauges("shard_log_end_index", help, of(|shard| shard.log_end))?;
    let help = "The last entry that was applied since the node started";
    writer.gauges("shard_applied_index", help, of(|shard| shard.applied))?;
    let lags =
        shards.iter().filter_map(|shard| Some((one("shard", shard.shard.0), shard.lag_max?)));
    let help = "Entries that the member lacks which lacks most, of shards that this node leads";
    writer.gauges("shard_replica_lag_entries", help, lags)
}

fn traces(writer: &mut Writer<'_>, node: &Node) -> Result {
    let (written, dropped) = node.broker.traces_counted();
    let help = "Records that were written of what happened to records of topics with trace";
    writer.counter("traced_steps_written", help, written)?;
    let help = "Steps of records of topics with trace for which there was no room, or that could not be written";
    writer.counter("traced_steps_dropped", help, dropped)?;
    let Some(counts) = &node.spans else { return Ok(()) };
    let outcomes = [("exported", counts.exported()), ("dropped", counts.dropped())];
    let spans = outcomes.map(|(outcome, count)| (one("outcome", outcome), count));
    writer.counters("trace_spans", "Spans of traced records, by what became of them", spans)?;
    let help = "Records that were not looked at for traces, since there were too many";
    writer.counter("trace_records_passed_over", help, counts.passed_over())?;
    let help = "Events for traces that there was no room for";
    writer.counter("trace_events_missed", help, counts.missed())
}

fn security(writer: &mut Writer<'_>, node: &Node) -> Result {
    if let Some(users) = &node.users {
        let refused = [(one("outcome", "refused"), users.failed_logins())];
        writer.counters("authentications", "Log-ins, by what became of them", refused)?;
        let (recorded, dropped) = users.audit().counted();
        writer.counter("audit_recorded", "Events of the audit that were taken", recorded)?;
        let help = "Events of the audit for which there was no room";
        writer.counter("audit_dropped", help, dropped)?;
    }
    if let Some(tls) = &node.tls {
        let ends = tls.ends_secs() as f64;
        let help = "When the certificate ends, in seconds since 1970";
        writer.gauge("tls_certificate_end_seconds", help, ends)?;
    }
    Ok(())
}
