//! A group of any protocol.

use world::Instant;

use crate::classic::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, Effects, JoinLimits};
use crate::consumer::{ConsumerGroup, ConsumerProtocol};
use crate::epochs::Protocol;
use crate::share::{ShareGroup, ShareProtocol};
use crate::streams::{StreamsGroup, StreamsProtocol};

/// A group with known members.
#[derive(Debug)]
pub enum Group {
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
    Share(ShareGroup),
    Streams(StreamsGroup),
}

impl Group {
    /// Names of the kinds of groups. Those of share groups and of streams groups are also the names of their
    /// members' protocols.
    pub const CLASSIC: &str = "classic";
    pub const CONSUMER: &str = ConsumerProtocol::NAME;
    pub const SHARE: &str = ShareProtocol::NAME;
    pub const STREAMS: &str = StreamsProtocol::NAME;

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.is_empty(),
            Self::Share(group) => group.is_empty(),
            Self::Streams(group) => group.is_empty(),
        }
    }

    /// Whether dropping it loses nothing.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Classic(group) => group.is_idle(),
            Self::Consumer(group) => group.is_empty(),
            Self::Share(group) => group.is_empty(),
            Self::Streams(group) => group.is_empty(),
        }
    }

    /// Whether a member may be consuming the topic now, so that its offsets must stay. Members of a share group
    /// have none.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Self::Classic(group) => group.is_subscribed_to(topic),
            Self::Consumer(group) => group.is_subscribed_to(topic),
            Self::Share(_) => false,
            Self::Streams(group) => group.is_subscribed_to(topic),
        }
    }

    pub(crate) fn check_at(&self) -> Option<Instant> {
        match self {
            Self::Classic(group) => group.check_at(),
            Self::Consumer(group) => group.check_at(),
            Self::Share(group) => group.check_at(),
            Self::Streams(group) => group.check_at(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Classic(group) => group.bytes(),
            Self::Consumer(group) => group.bytes(),
            Self::Share(group) => group.bytes(),
            Self::Streams(group) => group.bytes(),
        }
    }

    pub fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.phase().name(),
            Self::Consumer(group) => group.state_name(),
            Self::Share(group) => group.state_name(),
            Self::Streams(group) => group.state_name(),
        }
    }

    /// The name that ListGroups filters by.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => Self::CLASSIC,
            Self::Consumer(_) => Self::CONSUMER,
            Self::Share(_) => Self::SHARE,
            Self::Streams(_) => Self::STREAMS,
        }
    }

    /// The protocol type of its members; empty if there was none yet.
    pub fn protocol_type(&self) -> &str {
        match self {
            Self::Classic(group) => group.protocol_type().unwrap_or_default(),
            Self::Consumer(_) => CONSUMER_PROTOCOL_TYPE,
            Self::Share(_) => Self::SHARE,
            Self::Streams(_) => Self::STREAMS,
        }
    }

    pub(crate) fn expire(&mut self, limits: JoinLimits, now: Instant, effects: &mut Effects) {
        match self {
            Self::Classic(group) => group.expire(limits, now, effects),
            Self::Consumer(group) => group.expire(now),
            Self::Share(group) => group.expire(now),
            Self::Streams(group) => group.expire(now),
        }
    }
}
