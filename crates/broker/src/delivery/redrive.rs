//! Redrive of dead letters: they are appended to their source (or elsewhere) and settled in the dead-letter
//! topic, in one log entry, in the order of their offsets. Those from another shard go there by a message in
//! that entry.

use base::limits::BATCH_BYTES_DEFAULT;
use base::{LeaseGroupId, Offset, PartitionId, TopicId, headers};
use delivery::dead_letter_batches::append_batch;
use record::{BatchBuilder, BatchOptions, SharedRecord};
use shard::append::AppendBatch;
use shard::delivery::dead_letter::{copy, topic_for_letters};
use shard::delivery::error::{RedriveError, TransferError};
use shard::delivery::handle::{DriverQuery, Message};
use shard::delivery::inspect::{PeekOptions, PeekedRecord};
use shard::error::Unavailable;
use tokio::sync::oneshot;

use super::record_reader::RecordReader;
use crate::broker::Broker;

/// Selection of the dead letters to redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedriveSelection {
    /// All that are stored now and not leased.
    All,
    /// `(partition, offset)` in the dead-letter topic.
    Records(Vec<(u32, Offset)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveTo {
    /// The topic and partition in its headers.
    Source,
    Topic(TopicId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RedriveCounts {
    pub moved: u64,
    /// Records that stay: their source is not named or is deleted, or they are leased.
    pub left: u64,
}

/// Records that one log entry moves.
const RECORDS_PER_ENTRY: usize = 500;

impl Broker {
    /// Moves records of a lease group (of a dead-letter topic) back to their source, or to a topic. The copies
    /// lose the death headers.
    #[tasks::boxed]
    pub async fn redrive(
        &self,
        group: LeaseGroupId,
        what: RedriveSelection,
        to: RedriveTo,
    ) -> Result<RedriveCounts, RedriveError> {
        let (topic, partitions) = self.partitions_of(group)?;
        let mut redriven = RedriveCounts::default();
        match what {
            RedriveSelection::All => {
                let ids = (0..partitions).map(|index| PartitionId::new(topic, index));
                self.copies_are_current(&ids.collect::<Vec<_>>()).await?;
                for index in 0..partitions {
                    let partition = PartitionId::new(topic, index);
                    // Records that die again meanwhile are left for the next redrive.
                    let end = self.bounds_of(partition).await?.map_or(0, |bounds| bounds.end);
                    self.redrive_partition(group, index, end, to, &mut redriven).await?;
                }
            }
            RedriveSelection::Records(mut places) => {
                places.sort_unstable();
                places.dedup();
                for chunk in places.chunk_by(|a, b| a.0 == b.0) {
                    let partition = PartitionId::new(topic, chunk[0].0);
                    let mut reader = RecordReader::new(self, partition);
                    let mut records = Vec::new();
                    for &(_, offset) in chunk {
                        match reader.record(offset).await? {
                            Some(record) => records.push((offset, record)),
                            None => redriven.left += 1,
                        }
                    }
                    for records in records.chunks(RECORDS_PER_ENTRY) {
                        self.move_records(group, partition.index, records, to, &mut redriven)
                            .await?;
                    }
                }
            }
        }
        Ok(redriven)
    }

    async fn redrive_partition(
        &self,
        group: LeaseGroupId,
        partition: u32,
        end: Offset,
        to: RedriveTo,
        redriven: &mut RedriveCounts,
    ) -> Result<(), RedriveError> {
        let mut from = 0;
        loop {
            let partition = Some(partition);
            let options = PeekOptions { partition, from, records_max: RECORDS_PER_ENTRY };
            let peeked = self.peek(group, options).await?;
            let Some(last) = peeked.last() else { return Ok(()) };
            from = last.offset + 1;
            let here = peeked.into_iter().filter(|it| it.offset < end);
            let records: Vec<(Offset, SharedRecord)> =
                here.map(|PeekedRecord { offset, record, .. }| (offset, record)).collect();
            let Some(index) = partition else { return Ok(()) };
            self.move_records(group, index, &records, to, redriven).await?;
            if from >= end {
                return Ok(());
            }
        }
    }

    /// Moves records of one partition, in as few entries as their size allows.
    async fn move_records(
        &self,
        group: LeaseGroupId,
        partition: u32,
        records: &[(Offset, SharedRecord)],
        to: RedriveTo,
        redriven: &mut RedriveCounts,
    ) -> Result<(), RedriveError> {
        let mut rest = records;
        while !rest.is_empty() {
            let mut bytes = 0;
            let mut fits = |record: &SharedRecord| {
                bytes += record.encoded_len();
                bytes <= BATCH_BYTES_DEFAULT as usize
            };
            let count = rest.iter().take_while(|(_, record)| fits(record)).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            self.move_entry(group, partition, now, to, redriven).await?;
        }
        Ok(())
    }

    async fn move_entry(
        &self,
        group: LeaseGroupId,
        partition: u32,
        records: &[(Offset, SharedRecord)],
        to: RedriveTo,
        redriven: &mut RedriveCounts,
    ) -> Result<(), RedriveError> {
        let offsets: Vec<Offset> = records.iter().map(|(offset, _)| *offset).collect();
        let (topic, _) = self.partitions_of(group)?;
        let driver = self.driver_of(PartitionId::new(topic, partition));
        let asked = driver.query(|reply| DriverQuery::Free { group, partition, offsets, reply });
        let free = asked.await.ok_or(Unavailable::Stopping)?;
        let free = free.ok_or(RedriveError::UnknownGroup(group))?;
        let mut moving = Vec::new();
        let mut builders: Vec<(PartitionId, BatchBuilder)> = Vec::new();
        for ((offset, record), free) in records.iter().zip(free) {
            let target = self.target(partition, record, to).filter(|_| free);
            let Some(target) = target else {
                redriven.left += 1;
                continue;
            };
            let place = match builders.iter().position(|(known, _)| *known == target) {
                Some(place) => place,
                None => {
                    builders.push((target, BatchBuilder::new(BatchOptions::default())));
                    builders.len() - 1
                }
            };
            // It is smaller than the original, so it fits.
            match copy(&mut builders[place].1, record, &[]) {
                Ok(()) => moving.push(*offset),
                Err(_) => redriven.left += 1,
            }
        }
        let builders = builders.into_iter().filter(|(_, builder)| !builder.is_empty());
        let batches: Vec<AppendBatch> =
            builders.map(|(partition, builder)| append_batch(partition, builder)).collect();
        let (reply, answer) = oneshot::channel();
        let moved = moving.len() as u64;
        if moved == 0 {
            return Ok(());
        }
        let offsets = moving;
        let query = DriverQuery::MoveAway { group, partition, offsets, batches, reply };
        driver.send(Message::Query(query));
        match answer.await.map_err(|_| Unavailable::Stopping)? {
            Ok(entered) => {
                entered.arrived().await?;
                redriven.moved += moved;
            }
            Err(TransferError::Append { source, .. }) => return Err(source.into()),
            Err(TransferError::Unavailable(why)) => return Err(why.into()),
            // A consumer leased one of them in between. They are all in one shard.
            Err(TransferError::Settle { .. } | TransferError::Partly(_)) => redriven.left += moved,
        }
        Ok(())
    }

    fn target(&self, index: u32, record: &SharedRecord, to: RedriveTo) -> Option<PartitionId> {
        let view = record.view();
        let text = |name: &str| std::str::from_utf8(view.headers.last(name.as_bytes())??).ok();
        self.catalog_shard().read(|state| {
            let (topic, index) = match to {
                RedriveTo::Topic(topic) => (state.catalog.topic(topic)?, index),
                RedriveTo::Source => {
                    let source = text(headers::DEATH_PARTITION).and_then(|it| it.parse().ok());
                    let name = text(headers::DEATH_TOPIC)?;
                    (topic_for_letters(state.catalog, name)?, source.unwrap_or(index))
                }
            };
            Some(PartitionId::new(topic.id, index % topic.partition_count()))
        })
    }
}
