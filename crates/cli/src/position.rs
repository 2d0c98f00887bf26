//! A place in a partition, as typed after `--from` and `--to`.

use std::collections::BTreeMap;

use client::cluster::Metadata;
use client::{Client, ClientError, TopicPartition};
use operations::position::Position;

/// The offset of a position in each partition, limited to the partition's range.
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
