//! What members are told of the group, and of each other.

use crate::Text;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub host: Text,
    pub port: u16,
}

/// A reason why the group is not as its members want it, with the protocol's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusCode {
    StaleTopology = 0,
    MissingSourceTopics = 1,
    IncorrectlyPartitionedTopics = 2,
    MissingInternalTopics = 3,
    ShutdownApplication = 4,
    AssignmentDelayed = 5,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub code: StatusCode,
    pub detail: String,
}

/// Where a member answers queries, and what of: topics with partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointPartitions {
    pub endpoint: Endpoint,
    pub active: Vec<(Text, Vec<i32>)>,
    pub standby: Vec<(Text, Vec<i32>)>,
}
