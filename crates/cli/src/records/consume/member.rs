//! Consuming as a member of a group, by the classic protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use client::TopicPartition;
use client::fetcher::Delivery;
use client::member::{HEARTBEAT_EVERY, Membership, MembershipStatus};
use operations::position::Position;
use tokio::sync::oneshot;
use tokio::time::interval;

use super::{Consumption, StopReason, reading_ends};
use crate::command_error::CommandError;
use crate::position::locate;
use crate::progress;
const COMMIT_EVERY: Duration = Duration::from_secs(1);

impl Consumption {
    pub(super) async fn in_group(&mut self, group: &str) -> Result<(), CommandError> {
        for topic in &self.arguments.topics {
            self.client.topic(topic).await?;
        }
        let topics = self.arguments.topics.clone();
        let mut membership = Membership::new(self.client.clone(), group, &topics);
        let outcome = self.as_member(group, &mut membership).await;
        // Also after an error: commits the printed offsets and leaves, so that the other members need not wait for the
        // session timeout.
        let printed = self.finish_printing().await;
        let committed = membership.commit(&self.printed.positions()).await;
        let left = membership.leave().await;
        outcome?;
        printed?;
        if committed? == MembershipStatus::Rebalancing {
            eprintln!(
                "postroad: the last offsets could not be committed; the group will read some \
                 records again"
            );
        }
        // If leaving failed, the session times out, which only takes longer.
        let _ = left;
        Ok(())
    }

    /// Ends when everything is read, when enough is printed, or by a signal.
    async fn as_member(
        &mut self,
        group: &str,
        membership: &mut Membership,
    ) -> Result<(), CommandError> {
        loop {
            let partitions = tokio::select! {
                joined = membership.join() => joined?,
                () = self.signals.received() => return Ok(()),
            };
            let from = self.positions_of_group(group, partitions).await?;
            // Commits the start position even if there is nothing to read: without an offset, later records would not
            // count as the group's lag.
            self.printed.begin(&from);
            self.start(from).await?;
            let ending = self.until_group_or_reading_ends(membership).await;
            self.readers.shutdown().await;
            if ending? != StopReason::Rebalancing {
                return Ok(());
            }
            // The partitions belong to this member until it rejoins: print and commit what was read.
            self.barrier().await;
            membership.commit(&self.printed.positions()).await?;
            self.printed.forget();
        }
    }

    /// The group's committed offsets; the start position for partitions without one.
    async fn positions_of_group(
        &self,
        group: &str,
        partitions: Vec<TopicPartition>,
    ) -> Result<Vec<(TopicPartition, u64)>, CommandError> {
        let committed = self.client.committed(group).await?;
        let (known, unknown): (Vec<_>, Vec<_>) =
            partitions.into_iter().partition(|partition| committed.contains_key(partition));
        let mut from: Vec<_> = known
            .into_iter()
            .map(|partition| {
                let offset = committed[&partition];
                (partition, offset)
            })
            .collect();
        if !unknown.is_empty() {
            let mut topics: Vec<&str> = unknown.iter().map(|partition| &*partition.topic).collect();
            topics.dedup();
            let metadata = self.client.metadata(Some(&topics)).await?;
            let start = self.arguments.from.unwrap_or(Position::Earliest);
            from.extend(locate(&self.client, &metadata, &unknown, start).await?);
        }
        from.sort_unstable();
        Ok(from)
    }

    async fn until_group_or_reading_ends(
        &mut self,
        membership: &Membership,
    ) -> Result<StopReason, CommandError> {
        let mut heartbeats = interval(HEARTBEAT_EVERY);
        let mut commits = interval(COMMIT_EVERY);
        let mut ticks = interval(progress::EVERY);
        let mut committed = BTreeMap::new();
        loop {
            tokio::select! {
                // A member without partitions waits for an assignment.
                ending = reading_ends(&mut self.readers),
                    if !self.readers.is_empty() || !self.arguments.follow => return Ok(ending?),
                ended = &mut self.end, if self.ended.is_none() => {
                    self.ended = Some(ended.unwrap_or(Ok(())));
                    return Ok(StopReason::Printed);
                }
                () = self.signals.received() => return Ok(StopReason::Interrupted),
                _ = heartbeats.tick() => {
                    if membership.heartbeat().await? == MembershipStatus::Rebalancing {
                        return Ok(StopReason::Rebalancing);
                    }
                }
                _ = commits.tick() => {
                    let positions = self.printed.positions();
                    if positions != committed {
                        if membership.commit(&positions).await? == MembershipStatus::Rebalancing {
                            return Ok(StopReason::Rebalancing);
                        }
                        committed = positions;
                    }
                }
                _ = ticks.tick() => self.show_progress(),
            }
        }
    }

    /// Waits until everything read so far is written out.
    async fn barrier(&mut self) {
        let (passed, pass) = oneshot::channel();
        if let Some(deliveries) = &self.deliveries
            && deliveries.send(Delivery::Barrier(passed)).await.is_ok()
        {
            // Without a reply the printer has ended: nothing is left to wait for.
            let _ = pass.await;
        }
    }
}
