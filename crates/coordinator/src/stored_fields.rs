//! Parts of the stored forms of all groups.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Text;
use crate::reconcile::Progress;

/// Reason why a group cannot be restored.
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

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum ProgressV1 {
    Stable,
    Revoking,
    Waiting,
}

impl From<Progress> for ProgressV1 {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Stable => Self::Stable,
            Progress::Revoking => Self::Revoking,
            Progress::Waiting => Self::Waiting,
        }
    }
}

impl From<ProgressV1> for Progress {
    fn from(kept: ProgressV1) -> Self {
        match kept {
            ProgressV1::Stable => Self::Stable,
            ProgressV1::Revoking => Self::Revoking,
            ProgressV1::Waiting => Self::Waiting,
        }
    }
}

pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

pub(crate) fn own(text: Option<&str>) -> Option<Text> {
    text.map(Text::from)
}
