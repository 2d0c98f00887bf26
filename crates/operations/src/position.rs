//! A place in a partition, in human notation.

use std::str::FromStr;

use crate::time::{now_ms, parse_time};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    Earliest,
    Latest,
    Offset(u64),
    /// This many records before the end of each partition.
    Last(u64),
    /// The first record at or after this, in ms since 1970.
    Time(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a position: write earliest, latest, an offset (1000), -100 for the last 100 \
     records of each partition, or a time (2026-03-01T12:00:00Z, '15m ago')"
)]
pub struct NotAPosition(String);

impl Position {
    /// `now_ms`: reference time of `15m ago`.
    pub fn parse(text: &str, now_ms: i64) -> Result<Self, NotAPosition> {
        match text {
            "earliest" | "beginning" | "start" => return Ok(Self::Earliest),
            "latest" | "end" => return Ok(Self::Latest),
            _ => {}
        }
        if let Ok(offset) = text.parse() {
            return Ok(Self::Offset(offset));
        }
        if let Some(last) = text.strip_prefix('-').and_then(|last| last.parse().ok()) {
            return Ok(Self::Last(last));
        }
        let time = parse_time(text, now_ms).map_err(|_| NotAPosition(text.to_owned()))?;
        Ok(Self::Time(time))
    }
}

/// For the command line, which counts from its own clock.
impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_names_offsets_counts_and_times() {
        let read = |text: &str| text.parse::<Position>().ok();
        assert_eq!(read("earliest"), Some(Position::Earliest));
        assert_eq!(read("latest"), Some(Position::Latest));
        assert_eq!(read("1000"), Some(Position::Offset(1000)));
        assert_eq!(read("-25"), Some(Position::Last(25)));
        assert_eq!(read("@1772366400"), Some(Position::Time(1_772_366_400_000)));
        assert_eq!(Position::parse("1s ago", 5_000), Ok(Position::Time(4_000)));
        for wrong in ["", "first", "-x", "1.5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
