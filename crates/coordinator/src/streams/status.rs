//! Information for members about the group, and about each other.

use crate::Text;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    pub host: Text,
    pub port: u16,
}

/// Reasons why the group does not work as its members expect, with the protocol's numbers.
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

/// The query endpoint of a member, and its topics with partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointPartitions {
    pub endpoint: Endpoint,
    pub active: Vec<(Text, Vec<i32>)>,
    pub standby: Vec<(Text, Vec<i32>)>,
}
