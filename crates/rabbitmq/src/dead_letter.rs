//! Dead letters as in RabbitMQ: published to the queue's dead-letter exchange with the message's deaths in `x-death`
//! (`rabbit_dead_letter`, `mc:record_death`, `mc_amqpl`).
//!
//! Earlier deaths are kept in a separate header that no client can write, and shown in `x-death`. So a client that
//! publishes a dead letter again with its headers starts without deaths, and can neither hide a cycle nor fake one.

use base::topics::is_written_by_nodes;
use base::{PartitionId, headers};
use broker::delivery::{DeadLetterRouter, DeadRecord, DeathReason};
use bytes::{Bytes, BytesMut};
use message::headers::{BCC, CC, DEATHS as DEATHS_HEADER};
use message::{blind_copies, read_record, write_record_headers};
use record::{BatchBuilder, BatchError, BatchOptions, EncodedHeaders};
use routing::Message;
use topology::dead_letter::Route;
pub use topology::dead_letter::SCHEME;
use topology::{RoutedQueue, Topology, WeakTopology};

use crate::declarations::MessageHeaders;
use crate::table::{FieldTable, FieldValue};
use message::Properties;
use values::EncodedTable;

const DEATHS: &str = "x-death";
const FIRST: [&str; 3] = ["x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"];
/// In [`DEATHS_HEADER`]: the message's last routing keys besides its own, including BCC keys.
const OTHER_KEYS: &str = "other-keys";
const LAST: [&str; 3] = ["x-last-death-reason", "x-last-death-queue", "x-last-death-exchange"];

/// The router that the broker calls for dead letters.
#[derive(Debug)]
pub struct Router {
    /// Weak: the topology holds the broker, which holds this.
    topology: WeakTopology,
}

impl Router {
    pub fn new(topology: &Topology) -> Self {
        Self { topology: topology.downgrade() }
    }
}

impl DeadLetterRouter for Router {
    fn route(&self, route: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)> {
        let Some(topology) = self.topology.upgrade() else { return Vec::new() };
        let route = match serde_json::from_str::<Route>(route) {
            Ok(route) => route,
            Err(error) => {
                tracing::warn!(route, %error, "a dead letter's route cannot be read: it is dropped");
                return Vec::new();
            }
        };
        let letter = Letter::new(&route, dead);
        letter.publish(&topology, &route, dead).unwrap_or_else(|fault| {
            tracing::warn!(queue = %route.queue, %fault, "a dead letter cannot be written");
            Vec::new()
        })
    }
}

/// A dead letter before it is published.
#[derive(Debug)]
struct Letter {
    /// Its routing keys; its own key is the first.
    keys: Vec<String>,
    headers: FieldTable,
    deaths: DeathHistory,
}

/// The deaths of a message, newest first; one entry for each queue and reason.
#[derive(Clone, PartialEq, Debug, Default)]
struct DeathHistory {
    entries: Vec<FieldTable>,
    first: Option<[String; 3]>,
    /// The routing keys besides its own that were used for its last death. Its CC header may differ, and BCC keys are
    /// in no header any more.
    other_keys: Vec<String>,
}

impl Letter {
    fn new(route: &Route, dead: &DeadRecord) -> Self {
        let view = dead.record.view();
        let mut table = BytesMut::new();
        let message = read_record(&view, &mut table);
        let mut headers = without_former_death(FieldTable::decode(&table).unwrap_or_default());
        // A record of another protocol counts as a message published to its queue.
        let own_key = message.routing_key.unwrap_or(&route.queue).to_owned();
        let mut keys = vec![own_key];
        keys.extend(carbon_copies(&headers));
        let known = view
            .headers
            .iter()
            .find(|header| header.key == DEATHS_HEADER)
            .and_then(|header| DeathHistory::decode(header.value?));
        let other_keys = match &known {
            Some(deaths) => deaths.other_keys.clone(),
            None => {
                let mut others = keys[1..].to_vec();
                others.extend(blind_copies(&view));
                others
            }
        };
        let mut deaths = known.unwrap_or_default();
        let expiration = message.properties.expiration;
        deaths.record(
            reason(dead.reason),
            route,
            message.exchange,
            &keys,
            expiration,
            dead.time_ms,
        );
        deaths.show(message.exchange, &mut headers);
        match &route.routing_key {
            Some(key) => {
                keys = vec![key.to_string()];
                deaths.other_keys.clear();
                // If a client published the message again with these headers, it would be routed to the former keys.
                headers.0.retain(|(name, _)| ![CC, BCC].contains(&name.as_bytes()));
            }
            // BCC keys are used as well, but are not shown in `x-death`.
            None => {
                keys.truncate(1);
                keys.extend(other_keys.iter().cloned());
                deaths.other_keys = other_keys;
            }
        }
        Self { keys, headers, deaths }
    }

    fn publish(
        &self,
        topology: &Topology,
        route: &Route,
        dead: &DeadRecord,
    ) -> Result<Vec<(PartitionId, Bytes)>, BatchError> {
        let Some(vhost) = topology.vhost(&route.vhost) else { return Ok(Vec::new()) };
        let view = dead.record.view();
        let mut ignored = BytesMut::new();
        let message = read_record(&view, &mut ignored);
        let table = self.headers.to_bytes();
        let headers = Some(EncodedTable(&table));
        // The message may have expired; its dead letter must not expire again.
        let properties = Properties { headers, expiration: None, ..message.properties };
        let looked_at = MessageHeaders(&properties);
        let delay = looked_at.delay_ms();
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let routed = Message { keys: &keys, headers: &looked_at, deferred: delay.is_some() };
        let mut queues = Vec::new();
        vhost.routes().route_unchecked(&route.exchange, &routed, &mut queues);
        queues.retain(|RoutedQueue { queue, .. }| {
            !self.is_cycle(&queue.name, dead.reason) && !is_written_by_nodes(&queue.topic_name)
        });
        let mut letters: [Option<Bytes>; 2] = [None, None];
        let mut batches = Vec::with_capacity(queues.len());
        for RoutedQueue { queue, deferred } in queues {
            let letter = &mut letters[usize::from(deferred)];
            let batch = match letter {
                Some(batch) => batch.clone(),
                None => {
                    let delay = delay.filter(|_| deferred);
                    let due = delay.map(|delay| dead.time_ms.saturating_add(delay));
                    let made = self.batch(route, dead, &properties, due)?;
                    letter.insert(made).clone()
                }
            };
            // Only a topic of another protocol has several partitions.
            let index = (dead.offset % u64::from(queue.partition_count().max(1))) as u32;
            batches.push((queue.partition(index), batch));
        }
        Ok(batches)
    }

    fn batch(
        &self,
        route: &Route,
        dead: &DeadRecord,
        properties: &Properties<'_>,
        due_ms: Option<i64>,
    ) -> Result<Bytes, BatchError> {
        let mut out = EncodedHeaders::new();
        let key = &self.keys[0];
        // The table was encoded above, so it is valid.
        let held_back = due_ms.is_some();
        let record_key =
            write_record_headers(&route.exchange, key, properties, held_back, &mut out);
        let record_key = record_key.unwrap_or_default();
        let deaths = self.deaths.encode();
        out.push(DEATHS_HEADER, Some(&deaths));
        let numbers = [
            (headers::PRIORITY, properties.priority.map(i64::from)),
            (headers::DELIVER_AT, due_ms),
            (headers::DEATH_COUNT, Some(dead.attempts.into())),
            (headers::DEATH_PARTITION, Some(dead.partition.into())),
            (headers::DEATH_OFFSET, Some(dead.offset as i64)),
            (headers::DEATH_TIME, Some(dead.time_ms)),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                out.push(name.as_bytes(), Some(number.to_string().as_bytes()));
            }
        }
        let texts = [
            (headers::DEATH_REASON, dead.reason.name()),
            (headers::DEATH_TOPIC, &dead.topic_name),
            (headers::DEATH_GROUP, &dead.group_name),
        ];
        for (name, text) in texts {
            out.push(name.as_bytes(), Some(text.as_bytes()));
        }
        let body = dead.record.value().unwrap_or_default();
        let mut builder = BatchBuilder::with_capacity(BatchOptions::default(), body.len() + 1024);
        // Its time to live restarts.
        builder.push_sliced(dead.time_ms, record_key, &[&body], &out)?;
        Ok(Bytes::from(builder.finish()))
    }

    /// Returns whether the letter was in this queue before without a rejection since. It would then cycle for ever,
    /// and is dropped.
    fn is_cycle(&self, queue: &str, reason: DeathReason) -> bool {
        if reason == DeathReason::Rejected {
            return false;
        }
        let text = |death: &FieldTable, name| {
            death.get(name).and_then(FieldValue::as_str).unwrap_or_default().to_owned()
        };
        let been = self.deaths.entries.iter().position(|death| text(death, "queue") == queue);
        let Some(been) = been else { return false };
        let since = &self.deaths.entries[..=been];
        let cycle = since.iter().all(|death| text(death, "reason") != "rejected");
        if cycle {
            tracing::debug!(%queue, "a dead letter would go round for ever: it is dropped");
        }
        cycle
    }
}

/// Removes the broker's headers of an earlier death, which do not apply to the next one.
fn without_former_death(mut table: FieldTable) -> FieldTable {
    table.0.retain(|(name, _)| !name.starts_with(headers::DEATH_PREFIX));
    table
}

/// RabbitMQ's name of the reason.
const fn reason(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Rejected => "rejected",
        DeathReason::Attempts => "delivery_limit",
        DeathReason::Expired => "expired",
        DeathReason::Overflow => "maxlen",
    }
}

fn carbon_copies(headers: &FieldTable) -> Vec<String> {
    let name = std::str::from_utf8(CC).unwrap_or_default();
    match headers.get(name) {
        Some(FieldValue::Array(keys)) => {
            keys.iter().filter_map(FieldValue::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

impl DeathHistory {
    fn record(
        &mut self,
        reason: &str,
        route: &Route,
        exchange: &str,
        keys: &[String],
        expiration: Option<&[u8]>,
        time_ms: i64,
    ) {
        let queue = &*route.queue;
        let is = |death: &FieldTable, name: &str, text: &str| {
            death.get(name).and_then(FieldValue::as_str) == Some(text)
        };
        let known = self
            .entries
            .iter()
            .position(|death| is(death, "queue", queue) && is(death, "reason", reason));
        let mut death = match known {
            Some(place) => self.entries.remove(place),
            None => {
                let mut death = FieldTable::new();
                if let Some(expiration) = expiration {
                    let expiration = FieldValue::LongString(Bytes::copy_from_slice(expiration));
                    death.push("original-expiration", expiration);
                }
                death.push("count", 0_i64);
                death.push("reason", reason);
                death.push("queue", queue);
                let seconds = u64::try_from(time_ms / 1000).unwrap_or_default();
                death.push("time", FieldValue::Timestamp(seconds));
                death.push("exchange", exchange);
                let keys: Vec<_> = keys.iter().map(|key| FieldValue::from(key.as_str())).collect();
                death.push("routing-keys", keys);
                death
            }
        };
        let count = death.get("count").and_then(FieldValue::as_integer).unwrap_or(0);
        death.set("count", count.saturating_add(1));
        self.entries.insert(0, death);
        if self.first.is_none() {
            self.first = Some([reason.to_owned(), queue.to_owned(), exchange.to_owned()]);
        }
    }

    /// Writes the deaths to the message's headers.
    fn show(&self, exchange: &str, headers: &mut FieldTable) {
        let entries = self.entries.iter().cloned().map(FieldValue::Table).collect::<Vec<_>>();
        headers.set(DEATHS, entries);
        for (name, text) in FIRST.iter().zip(self.first.iter().flatten()) {
            headers.set(name, text.as_str());
        }
        let newest = self.entries.first();
        let of_newest = |name| newest.and_then(|death| death.get(name)?.as_str()).unwrap_or("");
        for (name, text) in LAST.iter().zip([of_newest("reason"), of_newest("queue"), exchange]) {
            headers.set(name, text);
        }
    }

    fn encode(&self) -> Bytes {
        let mut table = FieldTable::new();
        let entries = self.entries.iter().cloned().map(FieldValue::Table).collect::<Vec<_>>();
        table.push(DEATHS, entries);
        for (name, text) in FIRST.iter().zip(self.first.iter().flatten()) {
            table.push(*name, text.as_str());
        }
        if !self.other_keys.is_empty() {
            let keys = self.other_keys.iter().map(|key| FieldValue::from(key.as_str()));
            table.push(OTHER_KEYS, keys.collect::<Vec<_>>());
        }
        table.to_bytes()
    }

    fn decode(encoded: &[u8]) -> Option<Self> {
        let table = FieldTable::decode(encoded).ok()?;
        let Some(FieldValue::Array(entries)) = table.get(DEATHS) else { return None };
        let entry = |value: &FieldValue| match value {
            FieldValue::Table(death) => Some(death.clone()),
            _ => None,
        };
        let entries = entries.iter().filter_map(entry).collect();
        let text = |name: &str| Some(table.get(name)?.as_str()?.to_owned());
        let first = FIRST.map(text);
        let first = match first {
            [Some(reason), Some(queue), Some(exchange)] => Some([reason, queue, exchange]),
            _ => None,
        };
        let other_keys = match table.get(OTHER_KEYS) {
            Some(FieldValue::Array(keys)) => {
                keys.iter().filter_map(FieldValue::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Some(Self { entries, first, other_keys })
    }
}
