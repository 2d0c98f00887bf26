//! Building the batches that are appended for dead letters.

use base::PartitionId;
use base::limits::{BATCH_BYTES_DEFAULT, ENTRY_ROW_BYTES};
use bytes::{Bytes, BytesMut};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use shard::append::AppendBatch;
use shard::delivery::dead_letter::DeadRecord;

/// Dead letters as batches of their target partitions.
#[derive(Default)]
pub(crate) struct DeadLetterBatches {
    builders: Vec<(PartitionId, BatchBuilder)>,
    finished: Vec<AppendBatch>,
    bytes: usize,
}

impl DeadLetterBatches {
    pub(crate) fn routed(&mut self, batches: Vec<(PartitionId, Bytes)>) {
        // A batch for several partitions is written once.
        let same = |a: &(_, Bytes), b: &(_, Bytes)| a.1.as_ptr_range() == b.1.as_ptr_range();
        for batches in batches.chunk_by(same) {
            let [(partition, bytes), others @ ..] = batches else { continue };
            self.bytes += bytes.len() + batches.len() * ENTRY_ROW_BYTES;
            match BatchHeader::parse(bytes) {
                Ok(header) => {
                    let also = others.iter().map(|(partition, _)| *partition).collect();
                    let own = BytesMut::from(&bytes[..]);
                    self.finished
                        .push(AppendBatch { also, ..AppendBatch::new(*partition, header, own) });
                }
                Err(error) => {
                    tracing::error!(%error, "a router made no valid batch of a dead letter");
                }
            }
        }
    }

    pub(crate) fn add(&mut self, to: PartitionId, dead: &DeadRecord) {
        let place = match self.builders.iter().position(|(partition, _)| *partition == to) {
            Some(place) => place,
            None => {
                self.builders.push((to, BatchBuilder::new(BatchOptions::default())));
                self.builders.len() - 1
            }
        };
        if self.builders[place].1.len() >= BATCH_BYTES_DEFAULT as usize {
            let fresh = (to, BatchBuilder::new(BatchOptions::default()));
            let (to, full) = std::mem::replace(&mut self.builders[place], fresh);
            self.finished.push(append_batch(to, full));
        }
        let (_, builder) = &mut self.builders[place];
        let before = builder.len();
        if let Err(error) = dead.copy_into(builder, &[]) {
            // The record is as large as a batch can be: there is no room for the death headers.
            tracing::error!(%error, offset = dead.offset, "a dead letter is too large; it is dropped");
        }
        self.bytes += builder.len() - before;
    }

    /// Approximate size in an entry.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.builders.iter().all(|(_, builder)| builder.is_empty())
    }

    pub(crate) fn batches(self) -> Vec<AppendBatch> {
        let mut batches = self.finished;
        for (partition, builder) in self.builders {
            if !builder.is_empty() {
                batches.push(append_batch(partition, builder));
            }
        }
        batches
    }
}

pub fn append_batch(partition: PartitionId, builder: BatchBuilder) -> AppendBatch {
    let bytes = BytesMut::from(Bytes::from(builder.finish()));
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}
