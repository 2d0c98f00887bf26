//! A node at a glance, and the rows at the top of a table of what it has: what `postroad top` asks again and again. A
//! family of operations of its own.
//!
//! Whoever asks says how many rows it shows, so that an answer is as large as a screen whatever is stored. Rates are
//! between two looks, whoever asked for the first.

use serde::{Deserialize, Serialize};

/// The name of the family.
pub const FAMILY: &str = "overview";

/// What is asked for. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Answers [`Overview`].
    Look(Look),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    pub table: Table,
    pub order: Order,
    /// Only those whose name has this in it, in whatever case: of a queue or group also those of its topic.
    pub filter: String,
    pub rows_max: u32,
}

/// What the rows are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    Topics,
    /// Groups that settle records one by one.
    Queues,
    /// Groups that commit offsets, a row for each of their topics.
    Groups,
}

/// What stands first: the most, but for names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Of a topic what comes in, of a queue what is settled, of a group what is committed.
    Rate,
    /// Records that are not settled, or not read.
    Backlog,
    /// The age of the oldest of them, of those with the largest backlogs. Topics have none.
    Age,
    Name,
}

// --------------------------------------------------------------------------------------- answers

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overview {
    pub at_ms: i64,
    /// The time that the rates are over; null: nobody looked a short while before, and there are none.
    pub over_ms: Option<u64>,
    pub node: Node,
    /// Of the cluster: this node alone, or all that have a part of a shard.
    pub nodes: Vec<Member>,
    /// What somebody should look at.
    pub alarms: Vec<String>,
    pub totals: Totals,
    /// Of this node, where nothing else is said.
    pub rates: Option<Rates>,
    /// How many rows there would be without a limit.
    pub matching: u64,
    pub rows: Rows,
    /// Groups have committed more offsets than are looked at: some are not in the rows.
    pub cut: bool,
    /// What counting it all took of a processor, at most: others may have had it meanwhile.
    pub counted_in_micros: u64,
}

/// The node that answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub version: String,
    pub cluster: String,
    pub node: u64,
    pub up_ms: u64,
    /// Processors that it uses: 1.5 are one and a half. Null: no rates.
    pub processors: Option<f64>,
    /// Null, here and below: the machine does not say.
    pub resident_bytes: Option<u64>,
    pub disk_free_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub connections: Vec<Connections>,
    /// Bytes of producers' requests that are not confirmed yet, and how many may be.
    pub unconfirmed_bytes: u64,
    pub unconfirmed_bytes_max: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Connections {
    pub protocol: String,
    pub connections: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    pub node: u64,
    /// Whether it is connected to the node that answers, or is that one.
    pub live: bool,
    /// Shards that it leads, as far as the node that answers knows.
    pub leads: Vec<u32>,
}

/// Of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    pub topics: u64,
    pub partitions: u64,
    pub queues: u64,
    /// Pairs of a group that commits offsets and a topic.
    pub groups: u64,
    /// Records that queues have and did not settle.
    pub waiting: u64,
    /// Of those. Null: more queues have records waiting than are asked for that.
    pub ready: Option<u64>,
    pub leased: Option<u64>,
    pub delayed: Option<u64>,
}

/// A second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Of all nodes.
    pub records_in: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// Of queues whose leader the node is, as the next three.
    pub delivered: f64,
    pub redelivered: f64,
    pub settled: f64,
    pub dead_letters: f64,
    /// Syncs of the disk, and how long one took.
    pub syncs: f64,
    pub sync_micros: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rows {
    Topics(Vec<TopicRow>),
    Queues(Vec<QueueRow>),
    Groups(Vec<GroupRow>),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TopicRow {
    pub topic: String,
    pub partitions: u32,
    /// Offsets that it has, which are records where nothing was compacted.
    pub records: u64,
    /// Of it on the disk of the node that answers.
    pub bytes: u64,
    /// Records a second; null: no rates.
    pub records_in: Option<f64>,
    /// Of the queue or group of it that has the most.
    pub backlog: u64,
    /// Queues, and groups that commit offsets.
    pub groups: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueueRow {
    pub topic: String,
    pub group: String,
    pub paused: bool,
    pub backlog: u64,
    /// Of it. Null, here and below: it is not known here.
    pub ready: Option<u64>,
    pub leased: Option<u64>,
    pub delayed: Option<u64>,
    pub consumers: Option<u32>,
    /// Of the oldest record that is not settled; 0: all are.
    pub age_seconds: Option<f64>,
    /// Records a second into its topic; null: no rates.
    pub records_in: Option<f64>,
    pub settled: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupRow {
    pub group: String,
    pub topic: String,
    /// In which it has committed.
    pub partitions: u32,
    pub backlog: u64,
    /// Of the oldest record that it has not read; 0: it has read all. Null: it is not known.
    pub age_seconds: Option<f64>,
    pub records_in: Option<f64>,
    /// Records that it went on by, a second.
    pub committed: Option<f64>,
}
