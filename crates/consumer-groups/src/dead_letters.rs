//! Dead letters of share groups, as KIP-1191 writes them.
//!
//! A share group's lease groups name the topic in their `dead.letter.route`, and whether a letter copies the
//! record. The letter's headers have the record's position, the group and the reason. A copy also has the
//! broker's own headers, so that it can be redriven. Without a copy, the letter refers to a record that stays
//! in its topic as long as retention lasts.
//!
//! A topic receives letters only if it is configured to (`errors.deadletterqueue.group.enable`): otherwise
//! every client that may configure a group could write to any topic.

use base::PartitionId;
use base::topics::is_written_by_nodes;
use broker::WeakBroker;
use broker::delivery::{DeadLetterRouter, DeadRecord, DeathReason};
use bytes::Bytes;
use record::{BatchBuilder, BatchError, BatchOptions, Header};
use tracing::warn;

/// Prefix of the routes of share groups.
pub(crate) const SCHEME: &str = "share";
/// With a copy of the record.
const COPIES: &str = "copies";
/// Without a copy.
const NAMES: &str = "names";

/// The route of a share group that has a dead-letter topic.
pub(crate) fn route(topic: &str, copies_record: bool) -> String {
    format!("{SCHEME}:{}:{topic}", if copies_record { COPIES } else { NAMES })
}

/// A parsed route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route<'a> {
    pub topic: &'a str,
}

impl<'a> Route<'a> {
    /// Returns `None` for the route of another gateway.
    pub fn parse(route: &'a str) -> Option<Self> {
        let (_, topic) = route.strip_prefix(SCHEME)?.strip_prefix(':')?.split_once(':')?;
        Some(Self { topic })
    }
}

// Headers of a letter (KIP-1191).
pub const TOPIC: &str = "__dlq.errors.topic";
pub const PARTITION: &str = "__dlq.errors.partition";
pub const OFFSET: &str = "__dlq.errors.offset";
pub const GROUP: &str = "__dlq.errors.group";
pub const DELIVERIES: &str = "__dlq.errors.delivery.count";
pub const MESSAGE: &str = "__dlq.errors.message";

/// Holds the broker weakly, because the broker holds it.
#[derive(Debug)]
pub(crate) struct ShareDeadLetters(WeakBroker);

impl ShareDeadLetters {
    pub(crate) fn new(broker: WeakBroker) -> Self {
        Self(broker)
    }

    /// Returns the partition for letters of this topic from records of the given partition.
    fn place(&self, topic: &str, partition: u32) -> Result<PartitionId, &'static str> {
        let broker = self.0.upgrade().ok_or("the node is shutting down")?;
        let catalog = broker.catalog();
        let topic = catalog.topic_named(topic).ok_or("the dead-letter topic is not there")?;
        if is_written_by_nodes(topic.name()) {
            return Err("only nodes write to the topic");
        }
        if !topic.config().dead_letters_of_groups {
            return Err("the dead-letter topic takes no letters of groups: \
                        errors.deadletterqueue.group.enable is false");
        }
        Ok(PartitionId::new(topic.id(), partition % topic.partition_count()))
    }
}

impl DeadLetterRouter for ShareDeadLetters {
    fn route(&self, route: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)> {
        let (contents, topic) = route.split_once(':').unwrap_or((NAMES, route));
        let place = match self.place(topic, dead.partition) {
            Ok(place) => place,
            Err(reason) => {
                // As in Kafka: the group continues.
                warn!(group = %dead.group_name, topic, reason, "a dead letter is dropped");
                return Vec::new();
            }
        };
        match letter(dead, contents == COPIES) {
            Ok(batch) => vec![(place, batch)],
            Err(error) => {
                warn!(group = %dead.group_name, topic, %error, "a dead letter is dropped");
                Vec::new()
            }
        }
    }
}

fn letter(dead: &DeadRecord, copies_record: bool) -> Result<Bytes, BatchError> {
    let text = |number: u64| number.to_string().into_bytes();
    let (partition, offset) = (text(dead.partition.into()), text(dead.offset));
    let deliveries = text(dead.attempts.into());
    let context: [(&str, &[u8]); 6] = [
        (TOPIC, dead.topic_name.as_bytes()),
        (PARTITION, &partition),
        (OFFSET, &offset),
        (GROUP, dead.group_name.as_bytes()),
        (DELIVERIES, &deliveries),
        (MESSAGE, message(dead.reason).as_bytes()),
    ];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    if copies_record {
        dead.copy_into(&mut builder, &context)?;
    } else {
        let headers =
            context.map(|(key, value)| Header { key: key.as_bytes(), value: Some(value) });
        builder.push(dead.time_ms, None, None, &headers)?;
    }
    Ok(Bytes::from(builder.finish()))
}

/// The first two are Kafka's messages, which its tools look for.
fn message(reason: DeathReason) -> &'static str {
    match reason {
        DeathReason::Rejected => "Offset rejected by client.",
        DeathReason::Attempts => "Offset delivery count exceeded the threshold.",
        DeathReason::Expired => "Record has expired.",
        DeathReason::Overflow => "Topic holds more than its limit.",
    }
}

/// The reason that belongs to a letter's message.
pub fn reason(text: &str) -> Option<DeathReason> {
    use DeathReason::{Attempts, Expired, Overflow, Rejected};
    [Rejected, Attempts, Expired, Overflow].into_iter().find(|reason| message(*reason) == text)
}
