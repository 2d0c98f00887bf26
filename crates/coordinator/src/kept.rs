//! The stored form of a group: its members, and what each of them has. The next coordinator restores the group from it,
//! and members do not notice. It may lag: a member with a newer generation or epoch is then fenced, and joins again.
//!
//! ```text
//! version u8, 1; then KeptV1 in postcard's encoding
//! ```
//!
//! Groups of the classic protocol and of KIP-848 are stored. Members of share groups get a new assignment with their next
//! heartbeat, and those of streams groups join again.

use base::{Format, Levels};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use world::Instant;

use crate::classic::ClassicGroup;
use crate::classic::kept::ClassicV1;
use crate::consumer::ConsumerGroup;
use crate::consumer::kept::ConsumerV1;
use crate::{Group, Text, text};

const VERSION: u8 = 1;
const _: () = assert!(VERSION as u32 == Format::GroupMembers.newest(Levels::OURS.max));

#[derive(Serialize, Deserialize)]
enum KeptV1<'a> {
    #[serde(borrow)]
    Classic(ClassicV1<'a>),
    #[serde(borrow)]
    Consumer(ConsumerV1<'a>),
}

/// Why a group cannot be restored.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KeptError {
    #[error("version {0} is not known here")]
    UnknownVersion(u8),
    #[error("it cannot be read: {0}")]
    Malformed(#[from] postcard::Error),
    #[error("{0}")]
    Inconsistent(&'static str),
    #[error("there is no room for its members")]
    NoRoom,
}

/// Changes whenever the stored form of a group does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stamp {
    /// The group has no members, so that nothing is stored.
    #[default]
    Nothing,
    Of(u64),
}

impl Group {
    /// `None` during a rebalance of the classic protocol: the state before it stays stored.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Classic(group) => group.stamp(),
            Self::Consumer(group) => Some(group.stamp()),
            Self::Share(_) | Self::Streams(_) => Some(Stamp::Nothing),
        }
    }

    /// The bytes to store, empty for [`Stamp::Nothing`]; `None` as [`Group::stamp`] has it.
    pub(crate) fn kept(&self) -> Option<Vec<u8>> {
        match self {
            Self::Classic(group) => group.kept(),
            Self::Consumer(group) => Some(group.kept()),
            Self::Share(_) | Self::Streams(_) => Some(Vec::new()),
        }
    }

    /// Each member has a session timeout to send its next heartbeat.
    pub(crate) fn restored(
        name: &str,
        kept: &[u8],
        consumer_session_timeout: Duration,
        now: Instant,
    ) -> Result<Self, KeptError> {
        let (version, body) = kept.split_first().ok_or(KeptError::Inconsistent("it is empty"))?;
        if *version != VERSION {
            return Err(KeptError::UnknownVersion(*version));
        }
        match postcard::from_bytes(body)? {
            KeptV1::Classic(kept) => kept.restored(text(name), now).map(Self::Classic),
            KeptV1::Consumer(kept) => {
                kept.restored(text(name), consumer_session_timeout, now).map(Self::Consumer)
            }
        }
    }
}

impl ClassicGroup {
    /// See [`Group::kept`].
    pub(crate) fn kept(&self) -> Option<Vec<u8>> {
        let stamp = self.stamp()?;
        Some(bytes_of(stamp, || KeptV1::Classic(self.to_keep())))
    }
}

impl ConsumerGroup {
    /// See [`Group::kept`].
    pub(crate) fn kept(&self) -> Vec<u8> {
        bytes_of(self.stamp(), || KeptV1::Consumer(self.to_keep()))
    }
}

fn bytes_of<'a>(stamp: Stamp, kept: impl FnOnce() -> KeptV1<'a>) -> Vec<u8> {
    if stamp == Stamp::Nothing {
        return Vec::new();
    }
    let bytes = postcard::to_extend(&kept(), vec![VERSION]);
    bytes.expect("a vector grows, and these are types that postcard can encode")
}

pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

pub(crate) fn own(text: Option<&str>) -> Option<Text> {
    text.map(Text::from)
}
