//! Commands on records: producing, consuming and tracing them; and single records on the command line: their names,
//! and their form in a table.

pub(crate) mod consume;
pub(crate) mod produce;
mod record_line;
pub(crate) mod trace;

use std::str::FromStr;
use std::time::Duration;

use operations::document::{self, RemovedRecords};
use operations::payload::Payload;
use operations::time::human_duration;

use crate::command_error::CommandError;
use crate::printable;

/// `PARTITION:OFFSET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordAddress {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no record: write PARTITION:OFFSET, such as 0:1234")]
pub(crate) struct NotAPlace(String);

impl FromStr for RecordAddress {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (partition, offset) = text.split_once(':')?;
            Some(RecordAddress { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
        };
        read().ok_or_else(|| NotAPlace(text.to_owned()))
    }
}

impl From<RecordAddress> for document::RecordPosition {
    fn from(place: RecordAddress) -> Self {
        document::RecordPosition { partition: place.partition, offset: place.offset }
    }
}

pub(crate) fn places(records: &[RecordAddress]) -> Vec<document::RecordPosition> {
    records.iter().map(|place| (*place).into()).collect()
}

/// An error that names the first record that stayed.
pub(crate) fn all_removed(removed: &RemovedRecords) -> Result<(), CommandError> {
    match (removed.refused.first(), removed.refused.len()) {
        (None, _) => Ok(()),
        (Some(refused), 1) => Err(CommandError::user(refused.reason.clone())),
        (Some(refused), count) => {
            Err(CommandError::user(format!("{} (and {} more like it)", refused.reason, count - 1)))
        }
    }
}

/// Text on one line, cut if it is long; for binary data the number of bytes.
pub(crate) fn preview(payload: Option<&Payload>, characters_max: usize) -> String {
    let Some(payload) = payload else { return "-".into() };
    let Some(text) = payload.text() else { return format!("({} bytes)", payload.len()) };
    let shown: String = text.chars().take(characters_max).collect();
    let mut line = printable::text(&shown);
    if text.chars().nth(characters_max).is_some() {
        line.push('…');
    }
    line
}

/// Time left until then.
pub(crate) fn until(at_ms: i64, now_ms: i64) -> String {
    human_duration(Duration::from_millis(at_ms.saturating_sub(now_ms).max(0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_by_partition_and_offset() {
        assert_eq!("3:1234".parse(), Ok(RecordAddress { partition: 3, offset: 1234 }));
        for wrong in ["", "3", "3:", ":3", "a:1", "1:-1"] {
            assert!(wrong.parse::<RecordAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_preview_is_one_short_line() {
        let preview = |bytes: &[u8]| preview(Some(&Payload::copied(bytes)), 5);
        assert_eq!(preview(b"a\n\x1bc"), "a\\u{a}\\u{1b}c");
        assert_eq!(preview("äöüßéx".as_bytes()), "äöüßé…");
        assert_eq!(preview(&[0xff; 9]), "(9 bytes)");
        assert_eq!(super::preview(None, 5), "-");
    }
}
