//! A place in a partition, as it is typed after `--from` and `--to`.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::time::{now_ms, parse_time};
use client::cluster::Metadata;
use client::{Client, ClientError, TopicPartition};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    Earliest,
    Latest,
    Offset(u64),
    /// So many records before the end of each partition.
    Last(u64),
    /// The first record at or after this, in ms since 1970.
    Time(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a position: write earliest, latest, an offset (1000), -100 for the last 100 \
     records of each partition, or a time (2026-03-01T12:00:00Z, '15m ago')"
)]
pub(crate) struct NotAPosition(String);

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "earliest" | "beginning" | "start" => return Ok(Position::Earliest),
            "latest" | "end" => return Ok(Position::Latest),
            _ => {}
        }
        if let Ok(offset) = text.parse() {
            return Ok(Position::Offset(offset));
        }
        if let Some(last) = text.strip_prefix('-').and_then(|last| last.parse().ok()) {
            return Ok(Position::Last(last));
        }
        let time = parse_time(text, now_ms()).map_err(|_| NotAPosition(text.to_owned()))?;
        Ok(Position::Time(time))
    }
}

/// The offset of a position in each partition, never outside of what the partition holds.
pub(crate) async fn locate(
    client: &Client,
    metadata: &Metadata,
    partitions: &[TopicPartition],
    position: Position,
) -> Result<BTreeMap<TopicPartition, u64>, ClientError> {
    let bounds = client.bounds(metadata, partitions).await?;
    let at_time = match position {
        Position::Time(time) => {
            let wanted = partitions.iter().cloned().map(|partition| (partition, time));
            client.offsets_at(metadata, wanted).await?
        }
        _ => BTreeMap::new(),
    };
    let located = bounds.into_iter().map(|(partition, bounds)| {
        let offset = match position {
            Position::Earliest => bounds.start,
            Position::Latest => bounds.end,
            Position::Offset(offset) => offset,
            Position::Last(records) => bounds.end.saturating_sub(records),
            Position::Time(_) => at_time.get(&partition).copied().flatten().unwrap_or(bounds.end),
        };
        (partition, offset.clamp(bounds.start, bounds.end.max(bounds.start)))
    });
    Ok(located.collect())
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
        assert!(matches!(read("15m ago"), Some(Position::Time(_))));
        for wrong in ["", "first", "-x", "1.5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
