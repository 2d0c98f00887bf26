//! Groups that commit a position in each partition, as the node that coordinates them knows them.

use serde::{Deserialize, Serialize};

/// A place that a group is to go on at.
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
    /// What the node knows of its members; null: another node coordinates it.
    pub membership: Option<Membership>,
}

/// What a group is by its members. Nodes forget it when they stop: a group is empty then until its members come again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The protocol of its members: `classic`, `consumer`, `streams`.
    pub kind: String,
    /// As Kafka calls it: `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Assigning`, `Reconciling`, `Stable`, ..
    pub state: String,
    /// How partitions are divided; null: by nobody yet, or it is not said.
    pub assignor: Option<String>,
    /// It grows with each time that they are divided.
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
    /// The name that it keeps over restarts, if it has one.
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client: String,
    pub address: String,
    /// Which topics it wants; null: it does not say that by names.
    pub topics: Option<Vec<String>>,
    /// What it has, of topics that whoever asks may see; null: that is not said by partitions, or cannot be read.
    pub assignment: Option<Vec<AssignedTopic>>,
    /// What it is to have as soon as others have given it up; null: nothing else than it has.
    pub target: Option<Vec<AssignedTopic>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AssignedTopic {
    pub topic: String,
    pub partitions: Vec<u32>,
}
