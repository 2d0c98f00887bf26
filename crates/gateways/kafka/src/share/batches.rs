//! Reads the batches of acquired records.
//!
//! A member treats acquired records without their batches as deleted, and acknowledges them, which settles
//! them. So only deleted records are reported like that; records that cannot be read are released.

use base::PartitionId;
use broker::{Broker, FetchError, StoredBatches};
use bytes::Bytes;
use tracing::warn;

use crate::errors::Fault;
use crate::share::acquired::Run;

/// Reads the batches of these runs, except for deleted ones.
pub(super) async fn read(
    broker: &Broker,
    partition: PartitionId,
    runs: &[Run],
) -> Result<Vec<Bytes>, Fault> {
    let mut batches = Vec::new();
    for run in runs {
        if let Err(error) = read_run(broker, partition, *run, &mut batches).await {
            warn!(%partition, from = run.from, %error, "leased records cannot be read");
            if !is_gone(&error) {
                return Err(error.into());
            }
        }
    }
    Ok(batches)
}

fn is_gone(error: &FetchError) -> bool {
    match error {
        FetchError::UnknownPartition(_) | FetchError::OffsetOutOfRange { .. } => true,
        FetchError::Storage(_) | FetchError::Unavailable(_) => false,
    }
}

async fn read_run(
    broker: &Broker,
    partition: PartitionId,
    run: Run,
    batches: &mut Vec<Bytes>,
) -> Result<(), FetchError> {
    let (mut from, mut left) = (run.from, run.bytes);
    while from < run.to && left > 0 {
        let mut read = broker.read_raw_batches(partition, from, left).await?;
        // Aborted batches in between stay: a member uses the records that it has acquired, and no others.
        read.cut_at_stable_end();
        let before = from;
        for slice in read.records {
            let Some((wanted, next)) = up_to(&slice, run.to) else { return Ok(()) };
            from = from.max(next);
            left = left.saturating_sub(wanted);
            let (bytes, base_offset) = (slice.bytes.slice(..wanted), slice.base_offset);
            StoredBatches { bytes, base_offset }.put_pieces(batches);
        }
        if from == before {
            return Ok(());
        }
    }
    Ok(())
}

/// Bytes at the front that are whole batches with a base offset below `to`, and the offset after the last of
/// them. `None` without such a batch.
fn up_to(slice: &StoredBatches, to: u64) -> Option<(usize, u64)> {
    record::split_at(&slice.bytes, slice.base_offset)
        .map_while(Result::ok)
        .take_while(|(header, _)| header.base_offset < to)
        .last()
        .map(|(header, range)| (range.end, header.next_offset()))
}

#[cfg(test)]
mod tests {
    use base::TopicId;
    use broker::Unavailable;

    use super::*;

    #[test]
    fn records_of_another_leader_or_unreadable_ones_do_not_count_as_deleted() {
        let gone = FetchError::OffsetOutOfRange { offset: 1, log_start: 2, end: 3 };
        assert!(is_gone(&gone));
        assert!(is_gone(&FetchError::UnknownPartition(PartitionId::new(TopicId(1), 0))));
        assert!(!is_gone(&FetchError::Unavailable(Unavailable::NotLeader)));
        assert!(!is_gone(&FetchError::Storage("an error of the disk".to_owned())));
    }
}
