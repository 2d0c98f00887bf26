//! What of a group outlives its coordinator: who its members are, and what each of them has. Whoever coordinates the
//! group next goes on from there, and members do not notice. It may be a little old: a member that is further on is
//! then fenced by its generation or epoch, and joins again.
//!
//! ```text
//! version u8, 1; then KeptV1 in postcard's encoding
//! ```
//!
//! Groups of the classic protocol and of KIP-848 are kept. Members of share groups hold nothing that the next
//! coordinator could not give them at once, and those of streams groups join again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use world::Instant;

use crate::classic::kept::ClassicV1;
use crate::consumer::kept::ConsumerV1;
use crate::{Group, Text, text};

const VERSION: u8 = 1;

#[derive(Serialize, Deserialize)]
enum KeptV1<'a> {
    #[serde(borrow)]
    Classic(ClassicV1<'a>),
    #[serde(borrow)]
    Consumer(ConsumerV1<'a>),
}

/// Why nothing is made of what was kept.
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

/// Of a group: differs when something else is to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Stamp {
    /// Nothing is.
    #[default]
    Nothing,
    Of(u64),
}

impl Group {
    /// `None` while the group is between two states that could be gone on from: the former one is kept until then.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Classic(group) => group.stamp(),
            Self::Consumer(group) => Some(group.stamp()),
            Self::Share(_) | Self::Streams(_) => Some(Stamp::Nothing),
        }
    }

    /// Empty where nothing is to be kept; `None` as [`Group::stamp`] has it.
    pub(crate) fn kept(&self) -> Option<Vec<u8>> {
        if self.stamp()? == Stamp::Nothing {
            return Some(Vec::new());
        }
        let kept = match self {
            Self::Classic(group) => KeptV1::Classic(group.to_keep()),
            Self::Consumer(group) => KeptV1::Consumer(group.to_keep()),
            Self::Share(_) | Self::Streams(_) => return Some(Vec::new()),
        };
        let bytes = postcard::to_extend(&kept, vec![VERSION]);
        Some(bytes.expect("a vector grows, and these are types that postcard can encode"))
    }

    /// The group as it was. Each member has to show itself again in time.
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

pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

pub(crate) fn own(text: Option<&str>) -> Option<Text> {
    text.map(Text::from)
}
