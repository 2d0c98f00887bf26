//! Groups that commit a position in each partition, as seen by their coordinator.

use serde::{Deserialize, Serialize};

/// New position of a group in a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffsetPlace {
    pub topic: String,
    pub partition: u32,
    pub offset: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupPage {
    pub groups: Vec<OffsetGroupSummary>,
    /// Whether there are more after the last one.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupSummary {
    pub name: String,
    /// Membership as seen by the node; null: another node coordinates the group.
    pub membership: Option<Membership>,
}

/// State of a group's members. A node loses it when it stops: the group is empty until its members rejoin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The protocol of its members: `classic`, `consumer`, `streams`.
    pub kind: String,
    /// Kafka's name: `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Assigning`, `Reconciling`, `Stable`, ..
    pub state: String,
    /// Assignor of the partitions; null: no assignment yet, or unknown.
    pub assignor: Option<String>,
    /// Grows with each assignment.
    pub epoch: i32,
    pub members: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupReport {
    /// The node that coordinates it.
    pub coordinator: u32,
    pub membership: Membership,
    /// By id, after the given one.
    pub members: Vec<OffsetGroupMember>,
    /// Whether there are more after the last one.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OffsetGroupMember {
    pub id: String,
    /// Name that it keeps over restarts (static membership), if any.
    pub instance: Option<String>,
    /// Client id.
    pub client: String,
    pub address: String,
    /// Subscribed topics; null: the subscription does not list names.
    pub topics: Option<Vec<String>>,
    /// Current assignment, in topics visible to the caller; null: not expressed in partitions, or unreadable.
    pub assignment: Option<Vec<AssignedTopic>>,
    /// Target assignment, once other members have released the partitions; null: the current one.
    pub target: Option<Vec<AssignedTopic>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AssignedTopic {
    pub topic: String,
    pub partitions: Vec<u32>,
}
