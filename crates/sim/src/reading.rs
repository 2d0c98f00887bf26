//! Reads all of a partition, as a consumer does.

use base::PartitionId;
use broker::{Broker, StoredBatches};
use bytes::Bytes;
use record::{Batch, BatchHeader};

use crate::history::{SentRecord, sent_of};

/// A record that was read.
#[derive(Clone, Debug)]
pub struct ReadRecord {
    pub offset: u64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

pub async fn read_all(broker: &Broker, partition: PartitionId) -> Result<Vec<ReadRecord>, String> {
    let mut found = Vec::new();
    let mut offset = broker.bounds(partition).ok_or("it is not there")?.log_start;
    loop {
        let read = broker.read_batches(partition, offset, 256 << 10).await;
        let batches = read.map_err(|error| error.to_string())?;
        for batch in batches.iter() {
            let bytes = own_bytes(batch.map_err(|error| error.to_string())?);
            offset = records_of(&bytes, offset, &mut found)?;
        }
        let next = batches.next_offset();
        if next <= offset && batches.iter().next().is_none() {
            return Ok(found);
        }
        offset = offset.max(next);
    }
}

/// Bytes of a batch with its base offset in the partition that was read.
pub(crate) fn own_bytes((header, bytes): (BatchHeader, Bytes)) -> Bytes {
    StoredBatches { bytes, base_offset: Some(header.base_offset) }.into_bytes()
}

/// The records of batches, from this offset on; and the offset behind them.
fn records_of(bytes: &Bytes, from: u64, found: &mut Vec<ReadRecord>) -> Result<u64, String> {
    let mut next = from;
    for part in record::split(bytes) {
        let (_, range) = part.map_err(|error| error.to_string())?;
        let bytes = bytes.slice(range);
        record::verify_checksum(&bytes).map_err(|error| error.to_string())?;
        let batch = Batch::decode(&bytes).map_err(|error| error.to_string())?;
        for record in batch.records() {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset >= next {
                let copied = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
                let (key, value) = (copied(record.key), copied(record.value));
                found.push(ReadRecord { offset: record.offset, key, value });
            }
        }
        next = next.max(batch.header().next_offset());
    }
    Ok(next)
}

/// The sender of each record of these batches, by its offset; `None` for a record that was never sent.
pub fn sent_of_batches(bytes: &Bytes) -> Result<Vec<(u64, Option<SentRecord>)>, String> {
    let mut found = Vec::new();
    records_of(bytes, 0, &mut found)?;
    Ok(sent(&found))
}

fn sent(found: &[ReadRecord]) -> Vec<(u64, Option<SentRecord>)> {
    let sent = |it: &ReadRecord| it.value.as_deref().and_then(sent_of);
    found.iter().map(|it| (it.offset, sent(it))).collect()
}

/// The sender of each record of a partition, by its offset; `None` for a record that was never sent.
pub async fn sent_in(
    broker: &Broker,
    partition: PartitionId,
) -> Result<Vec<(u64, Option<SentRecord>)>, String> {
    Ok(sent(&read_all(broker, partition).await?))
}
