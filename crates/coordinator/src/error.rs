//! Reasons why a group rejects a member's request.

use std::borrow::Cow;

use thiserror::Error;

/// The reaction that a member needs. The names are those of Kafka's errors; a gateway has the codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ErrorKind {
    #[error("unknown member id")]
    UnknownMemberId,
    #[error("the instance id belongs to another member")]
    FencedInstanceId,
    /// KIP-848: the member with the instance id must leave first.
    #[error("the instance id is in use")]
    UnreleasedInstanceId,
    #[error("another generation of the group")]
    IllegalGeneration,
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    #[error("the group has no protocol that all its members know")]
    InconsistentGroupProtocol,
    /// KIP-394: it has to rejoin with the id that it receives.
    #[error("the member must join with its id")]
    MemberIdRequired,
    #[error("the group has as many members as it may")]
    GroupMaxSizeReached,
    /// The member must abandon its partitions, and rejoin.
    #[error("another member epoch")]
    FencedMemberEpoch,
    #[error("the member epoch is stale")]
    StaleMemberEpoch,
    #[error("not a regular expression")]
    InvalidRegularExpression,
    #[error("the topology can never work")]
    StreamsInvalidTopology,
    #[error("invalid request")]
    InvalidRequest,
}

/// An error with details, as the newer protocols send it to their clients.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{message}")]
pub struct GroupError {
    pub kind: ErrorKind,
    pub message: Cow<'static, str>,
}

impl GroupError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }
}
