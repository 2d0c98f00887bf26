//! The stored form of a group: its members with their assignments. The next coordinator restores the group from
//! it, transparently to members. It may lag: a member with a newer generation or epoch is then fenced, and
//! rejoins.
//!
//! ```text
//! version u8: 2 for a group of Kafka Streams, 3 for one that a member has left, and 1 for others
//! KeptV1 in postcard's encoding
//! ```
//!
//! Members of share groups are not stored: they get a new assignment with their next heartbeat.

use base::{Format, Level, Levels};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use world::Instant;

use crate::classic::stored_group::ClassicV1;
use crate::classic::{ClassicGroup, Phase};
use crate::consumer::ConsumerGroup;
use crate::consumer::stored_group::ConsumerV1;
use crate::epochs::{EpochGroup, Protocol};
use crate::group::Group;
use crate::stored_fields::{KeptError, Stamp};
use crate::streams::StreamsGroup;
use crate::streams::stored_group::StreamsV1;
use crate::text;

const VERSION: u8 = 1;
/// May contain [`KeptV1::Streams`].
const VERSION_STREAMS: u8 = 2;
/// May contain [`KeptV1::Rebalancing`].
const VERSION_REBALANCING: u8 = 3;
const _: () = assert!(VERSION as u32 == Format::GroupMembers.newest(Level::FIRST));
const _: () = assert!(VERSION_STREAMS as u32 == Format::GroupMembers.newest(Level::STREAMS));
const _: () = assert!(VERSION_REBALANCING as u32 == Format::GroupMembers.newest(Levels::OURS.max));

#[derive(Serialize, Deserialize)]
enum KeptV1<'a> {
    #[serde(borrow)]
    Classic(ClassicV1<'a>),
    #[serde(borrow)]
    Consumer(ConsumerV1<'a>),
    /// Since version 2.
    #[serde(borrow)]
    Streams(StreamsV1<'a>),
    /// A classic group that a member has left, and that has no new generation yet. Since version 3.
    #[serde(borrow)]
    Rebalancing(ClassicV1<'a>),
}

/// Session timeouts of the members of a restored group. Members of the classic protocol have their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionTimeouts {
    pub consumer: Duration,
    pub streams: Duration,
}

impl Group {
    /// `None` during a rebalance of the classic protocol without a departure: the previous state stays stored.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Classic(group) => group.stamp(),
            Self::Consumer(group) => Some(group.stamp()),
            Self::Streams(group) => Some(group.stamp()),
            Self::Share(_) => Some(Stamp::Nothing),
        }
    }

    /// The bytes to store, empty for [`Stamp::Nothing`]; `None` as in [`Group::stamp`].
    pub(crate) fn kept(&self, level: Level) -> Option<Vec<u8>> {
        match self {
            Self::Classic(group) => group.kept(level),
            Self::Consumer(group) => Some(group.kept()),
            Self::Streams(group) if level >= Level::STREAMS => Some(group.kept()),
            Self::Share(_) | Self::Streams(_) => Some(Vec::new()),
        }
    }

    /// Restores a group. Each member has a session timeout to send its next heartbeat.
    pub(crate) fn restored(
        name: &str,
        kept: &[u8],
        sessions: SessionTimeouts,
        now: Instant,
    ) -> Result<Self, KeptError> {
        let (version, body) = kept.split_first().ok_or(KeptError::Inconsistent("it is empty"))?;
        if !(VERSION..=VERSION_REBALANCING).contains(version) {
            return Err(KeptError::UnknownVersion(*version));
        }
        let name = text(name);
        match postcard::from_bytes(body)? {
            KeptV1::Classic(kept) => kept.stable(name, now).map(Self::Classic),
            KeptV1::Rebalancing(kept) => kept.rebalancing(name, now).map(Self::Classic),
            KeptV1::Consumer(kept) => {
                kept.restored(name, sessions.consumer, now).map(Self::Consumer)
            }
            KeptV1::Streams(kept) => kept.restored(name, sessions.streams, now).map(Self::Streams),
        }
    }
}

impl<P: Protocol> EpochGroup<P> {
    pub(crate) fn stamp(&self) -> Stamp {
        match self.is_empty() {
            true => Stamp::Nothing,
            false => Stamp::Of(self.members.changes()),
        }
    }
}

impl ClassicGroup {
    /// See [`Group::kept`].
    pub(crate) fn kept(&self, level: Level) -> Option<Vec<u8>> {
        let stamp = self.stamp()?;
        match self.phase() {
            Phase::PreparingRebalance if level < Level::DEPARTURES => None,
            Phase::PreparingRebalance => {
                Some(bytes_of(stamp, VERSION_REBALANCING, || KeptV1::Rebalancing(self.to_keep())))
            }
            Phase::Empty | Phase::CompletingRebalance | Phase::Stable => {
                Some(bytes_of(stamp, VERSION, || KeptV1::Classic(self.to_keep())))
            }
        }
    }
}

impl ConsumerGroup {
    /// See [`Group::kept`].
    pub(crate) fn kept(&self) -> Vec<u8> {
        bytes_of(self.stamp(), VERSION, || KeptV1::Consumer(self.to_keep()))
    }
}

impl StreamsGroup {
    /// See [`Group::kept`].
    pub(crate) fn kept(&self) -> Vec<u8> {
        bytes_of(self.stamp(), VERSION_STREAMS, || KeptV1::Streams(self.to_keep()))
    }
}

fn bytes_of<'a>(stamp: Stamp, version: u8, kept: impl FnOnce() -> KeptV1<'a>) -> Vec<u8> {
    if stamp == Stamp::Nothing {
        return Vec::new();
    }
    let bytes = postcard::to_extend(&kept(), vec![version]);
    bytes.expect("a vector grows, and these are types that postcard can encode")
}
