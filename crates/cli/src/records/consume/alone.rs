//! Consuming without a group: every named partition, from a position on.

use client::cluster::Metadata;
use client::{ClientError, TopicPartition};
use operations::position::Position;
use tokio::time::interval;

use super::{Consumption, StopReason, reading_ends};
use crate::command_error::CommandError;
use crate::position::locate;
use crate::progress;

impl Consumption {
    pub(super) async fn alone(&mut self) -> Result<(), CommandError> {
        let mut partitions = Vec::new();
        for topic in self.arguments.topics.clone() {
            let metadata = self.client.topic(&topic).await?;
            let wanted = self.wanted(&metadata, &topic)?;
            let from = self.arguments.from.unwrap_or(Position::Earliest);
            let located = locate(&self.client, &metadata, &wanted, from).await?;
            if let Position::Offset(asked) = from {
                for (partition, end) in located.iter().filter(|(_, found)| **found < asked) {
                    eprintln!(
                        "postroad: {partition} ends at offset {end}: no record is at {asked}"
                    );
                }
            }
            partitions.extend(located);
        }
        self.start(partitions).await?;
        let mut ticks = interval(progress::EVERY);
        let ending = loop {
            tokio::select! {
                ending = reading_ends(&mut self.readers) => break ending,
                ended = &mut self.end, if self.ended.is_none() => {
                    self.ended = Some(ended.unwrap_or(Ok(())));
                    break Ok(StopReason::Printed);
                }
                () = self.signals.received() => break Ok(StopReason::Interrupted),
                _ = ticks.tick() => self.show_progress(),
            }
        };
        self.readers.shutdown().await;
        let printed = self.finish_printing().await;
        ending?;
        printed
    }

    fn wanted(&self, metadata: &Metadata, topic: &str) -> Result<Vec<TopicPartition>, ClientError> {
        let all = metadata.partitions(topic);
        if self.arguments.partition.is_empty() {
            return Ok(all);
        }
        let mut wanted = Vec::new();
        for &partition in &self.arguments.partition {
            let found = all.get(partition as usize).cloned();
            wanted.push(found.ok_or_else(|| ClientError::NoSuchPartition {
                topic: topic.to_owned(),
                partition,
                partitions: all.len(),
            })?);
        }
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted)
    }
}
