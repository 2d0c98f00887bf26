//! A summary of a node and the top rows of a table, which `postroad top` requests repeatedly. An operation family of
//! its own.
//!
//! The client sends the number of rows it shows, so that a reply is as large as a screen, whatever the node stores.
//! Rates cover the time between two looks, also if another client requested the first.

use serde::{Deserialize, Serialize};

/// The name of the family.
pub const FAMILY: &str = "overview";

/// A request. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Reply: [`Overview`].
    Look(TableQuery),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableQuery {
    pub table: Table,
    pub order: Order,
    /// Case-insensitive substring of the name; for a queue or group also of its topic's name.
    pub filter: String,
    pub rows_max: u32,
}

/// Subject of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    Topics,
    /// Groups that settle records one by one.
    Queues,
    /// Groups that commit offsets, one row for each of their topics.
    Groups,
}

/// Sort order: descending, except for names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Appends of a topic, settles of a queue, commits of a group.
    Rate,
    /// Unsettled or unread records.
    Backlog,
    /// Age of the oldest of them, among the rows with the largest backlogs. Topics have none.
    Age,
    Name,
}

// --------------------------------------------------------------------------------------- replies

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overview {
    pub at_ms: i64,
    /// Time covered by the rates; null: no look preceded this one recently, and there are no rates.
    pub over_ms: Option<u64>,
    pub node: Node,
    /// Nodes of the cluster with a replica of a shard, or this node alone.
    pub nodes: Vec<Member>,
    /// Conditions that an operator should look at.
    pub alarms: Vec<String>,
    pub totals: Totals,
    /// For this node, unless stated otherwise.
    pub rates: Option<Rates>,
    /// Number of rows without a limit.
    pub matching: u64,
    pub rows: Rows,
    /// More offsets are committed than are counted: some are missing in the rows.
    pub cut: bool,
    /// Upper bound of the processor time used for counting; other tasks may have run meanwhile.
    pub counted_in_micros: u64,
}

/// The replying node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub version: String,
    pub cluster: String,
    pub node: u64,
    pub up_ms: u64,
    /// Processors in use: 1.5 are one and a half. Null: no rates.
    pub processors: Option<f64>,
    /// Null, here and below: the machine does not report it.
    pub resident_bytes: Option<u64>,
    pub disk_free_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub connections: Vec<Connections>,
    /// Bytes of produce requests in flight, and their limit.
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
    /// Whether it is connected to the replying node, or is that node.
    pub live: bool,
    /// Shards that it leads, as far as the replying node knows.
    pub leads: Vec<u32>,
}

/// Counts over the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    pub topics: u64,
    pub partitions: u64,
    pub queues: u64,
    /// Pairs of a group that commits offsets and a topic.
    pub groups: u64,
    /// Unsettled records of queues.
    pub waiting: u64,
    /// Part of `waiting`, as the next two. Null: too many queues have waiting records to query each.
    pub ready: Option<u64>,
    pub leased: Option<u64>,
    pub delayed: Option<u64>,
}

/// Rates a second.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// All nodes together.
    pub records_in: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    /// Queues led by this node only, as the next three.
    pub delivered: f64,
    pub redelivered: f64,
    pub settled: f64,
    pub dead_letters: f64,
    /// Disk syncs, and the duration of one.
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
    /// Offsets between start and end, which are records unless the topic was compacted.
    pub records: u64,
    /// Bytes on the disk of the replying node.
    pub bytes: u64,
    /// Records a second; null: no rates.
    pub records_in: Option<f64>,
    /// Largest backlog among its queues and groups.
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
    /// Part of the backlog. Null, here and below: unknown at this node.
    pub ready: Option<u64>,
    pub leased: Option<u64>,
    pub delayed: Option<u64>,
    pub consumers: Option<u32>,
    /// Age of the oldest unsettled record; 0: all are settled.
    pub age_seconds: Option<f64>,
    /// Records a second into its topic; null: no rates.
    pub records_in: Option<f64>,
    pub settled: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupRow {
    pub group: String,
    pub topic: String,
    /// Partitions with a committed offset.
    pub partitions: u32,
    pub backlog: u64,
    /// Age of the oldest unread record; 0: all are read. Null: unknown.
    pub age_seconds: Option<f64>,
    pub records_in: Option<f64>,
    /// Records a second by which its committed offsets advanced.
    pub committed: Option<f64>,
}
