//! Background work at its own pace: retention marks bytes dead, compaction drops replaced records, silent producers
//! are forgotten, and space is reclaimed.
//!
//! The shard's leader does the work that goes through the log. Every node compacts and reclaims space on its own
//! disk.
//!
//! A round examines the partitions that changed since the previous one or have become due, regardless of the amount
//! of stored data. After a start, and after a change of the node's configuration, every partition with records is
//! examined once, a number of them in each round.
//!
//! * `retention`: records that are too old or too many
//! * `compaction`: replaced records, and `outlook`: when a pass is due
//! * `shard::state_machine::changes`, `due`: the partitions that these examine, so that idle ones cost nothing
//! * `transactions`: transactions past their timeout
//! * `record_ids`: ids outside their window
//! * `survey`: all partitions, in steps
//! * `space`: when space is reclaimed
//! * `heavy`: one shard of the node compacts at a time

mod compaction;
mod due;
mod heavy;
mod outlook;
mod record_ids;
mod retention;
mod space;
mod survey;
mod transactions;

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{HashMap, PartitionId, ShardId};
use futures_util::future::join_all;
use journal::ReclaimReport;
use machine::Command;
use shard::LocalShard;
use shard::state_machine::changes::{Change, ChangedPartitions};
use tasks::Task;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::backup::Backups;
use crate::housekeeping::compaction::Compaction;
use crate::housekeeping::heavy::{HeavyWork, QueuedWork};
use crate::housekeeping::record_ids::RecordIds;
use crate::housekeeping::retention::{Retention, Round};
use crate::housekeeping::space::Space;
use crate::housekeeping::survey::Survey;
use crate::limits::TAIL_CACHE_AGE_MAX;

/// Producers expire after a day or so; an hour more or less does not matter.
const PRODUCERS_EVERY: Duration = Duration::from_secs(60 * 60);
/// Time after which an unused transactional id is forgotten (Kafka's `transactional.id.expiration.ms`).
const TRANSACTIONAL_IDS_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Number of new log starts in one command.
const STARTS_PER_COMMAND: usize = 10_000;

/// Runs until the shards are gone. Each shard has its own rounds: a slow or leaderless shard delays no other.
pub async fn run(shards: Vec<Weak<LocalShard>>, backups: Weak<Backups>, interval: Duration) {
    let heavy = HeavyWork::default();
    let keeping =
        shards.iter().map(|shard| run_rounds(shard.clone(), QueuedWork::in_line(&heavy), interval));
    tokio::join!(join_all(keeping), expire_backups(&backups, interval));
}

fn ticks(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs the rounds of one shard.
async fn run_rounds(shard: Weak<LocalShard>, heavy: QueuedWork, interval: Duration) {
    let mut ticks = ticks(interval);
    let mut housekeeping = Housekeeping { heavy, ..Housekeeping::default() };
    let mut producers_due = Instant::now() + PRODUCERS_EVERY;
    loop {
        ticks.tick().await;
        let Some(shard) = &shard.upgrade() else { return };
        shard.journal().rest(TAIL_CACHE_AGE_MAX);
        let looks = housekeeping.round(shard).await;
        if looks != ExaminedCounts::default() {
            tracing::trace!(shard = %shard.id(), ?looks, "housekeeping");
        }
        if Instant::now() >= producers_due {
            producers_due = Instant::now() + PRODUCERS_EVERY;
            forget_producers(shard).await;
        }
    }
}

async fn expire_backups(backups: &Weak<Backups>, interval: Duration) {
    let mut ticks = ticks(interval);
    loop {
        ticks.tick().await;
        let Some(backups) = backups.upgrade() else { return };
        backups.expire();
    }
}

/// Number of partitions that a round examined, for any reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ExaminedCounts {
    retention: usize,
    compaction: usize,
    /// Whether segments were examined.
    space: bool,
}

#[derive(Debug, Default)]
struct Housekeeping {
    survey: Survey,
    retention: Retention,
    compaction: Compaction,
    space: Space,
    heavy: QueuedWork,
    record_ids: RecordIds,
    /// Whether this node led the shard in the last round, and has examined its changes since.
    leads: bool,
}

impl Housekeeping {
    async fn round(&mut self, shard: &Arc<LocalShard>) -> ExaminedCounts {
        let changed = shard.shard.changes.take();
        if !changed.is_empty() {
            self.space.changed(Instant::now());
        }
        let leads = self.leads(shard);
        self.record_ids.forget(shard, Instant::now()).await;
        transactions::abort_expired(shard).await;
        let (retention, compaction) = self.examine(shard, changed, leads).await;
        let space = self.space.is_due(Instant::now());
        if space {
            self.reclaim(shard).await;
        }
        ExaminedCounts { retention, compaction, space }
    }

    /// Whether this node leads the shard. After a change of its role everything is examined.
    fn leads(&mut self, shard: &LocalShard) -> bool {
        let leads = shard.is_led_here();
        if std::mem::replace(&mut self.leads, leads) != leads {
            (self.retention, self.compaction) = Default::default();
            self.survey.add_all();
            // Its replica is not behind the others any more.
            shard.shard.compacted.end_replacement();
        }
        leads
    }

    /// Returns the numbers of partitions that retention and compaction examined.
    async fn examine(
        &mut self,
        shard: &Arc<LocalShard>,
        mut changed: ChangedPartitions,
        leads: bool,
    ) -> (usize, usize) {
        for topic in std::mem::take(&mut changed.topics) {
            match shard.read(|state| state.catalog.topic(topic).is_some()) {
                true => self.survey.add(topic),
                false => {
                    self.retention.forget(topic);
                    self.compaction.forget(topic);
                    shard.shard.compacted.forget(topic);
                }
            }
        }
        if changed.all {
            self.survey.add_all();
        }
        for partition in self.survey.next(shard) {
            changed.add(partition, Change::ANEW);
        }
        let retention = match leads {
            true => self.retain(shard, &changed.partitions).await,
            false => 0,
        };
        self.compaction.note(shard, &changed.partitions);
        let compaction = match self.compaction.run(shard, &mut self.heavy).await {
            Ok(looks) => looks,
            Err(error) => {
                tracing::warn!(%error, "compaction failed and will be tried again");
                0
            }
        };
        (retention, compaction)
    }

    /// Advances the log start of partitions with more or older records than their topic retains.
    async fn retain(
        &mut self,
        shard: &Arc<LocalShard>,
        changed: &HashMap<PartitionId, Change>,
    ) -> usize {
        let now = Instant::now();
        if changed.is_empty() && !self.retention.is_due(shard, now) {
            return 0;
        }
        let looking = Arc::clone(shard);
        let mut retention = std::mem::take(&mut self.retention);
        let changed = changed.clone();
        let look = move || {
            let round = retention.round(&looking, &changed, now);
            (retention, round)
        };
        // A panic there ends the node anyway; the default state loses only hints.
        let looked = shard.workers().blocking(Task::HousekeepingDisk, look).await;
        let (retention, round) = looked.unwrap_or_default();
        self.retention = retention;
        let Round { starts, looks } = round;
        for starts in starts.chunks(STARTS_PER_COMMAND) {
            let command = Command::AdvanceStart { starts: starts.to_vec() };
            if let Err(error) = shard.execute(command).await {
                tracing::warn!(%error, "retention could not move the start of partitions");
                self.retention.retry(starts.iter().map(|(partition, _)| *partition), now);
            }
        }
        looks
    }

    async fn reclaim(&mut self, shard: &Arc<LocalShard>) {
        let working = Arc::clone(shard);
        let reclaim = move || working.journal().reclaim();
        let reclaimed = shard.workers().blocking(Task::HousekeepingDisk, reclaim).await;
        let now = Instant::now();
        match reclaimed {
            Ok(Ok(reclaimed)) => {
                if reclaimed != ReclaimReport::default() {
                    tracing::debug!(?reclaimed, "space came back");
                }
                if self.space.passed(now, reclaimed, shard.journal().snapshot_bytes()) {
                    self.save_snapshot(shard).await;
                }
            }
            Ok(Err(error)) => {
                self.space.failed(now);
                tracing::warn!(%error, "space could not be reclaimed; trying again");
            }
            Err(error) => {
                self.space.failed(now);
                tracing::error!(%error, "reclaiming space panicked");
            }
        }
    }

    async fn save_snapshot(&mut self, shard: &LocalShard) {
        match shard.save_snapshot().await {
            Ok(()) => self.space.snapshot_taken(Instant::now()),
            Err(error) => {
                tracing::warn!(%error, "no snapshot could be saved, so dead segments stay");
            }
        }
    }
}

async fn forget_producers(shard: &LocalShard) {
    if shard.id() == ShardId::CATALOG || !shard.is_led_here() {
        return;
    }
    let silent_ms = shard.read(|state| state.catalog.node_config().own.producer_id_expiration_ms);
    let before_ms = shard.timeline().unstepped_ms().saturating_sub(silent_ms);
    if let Err(error) = shard.execute(Command::ExpireProducers { before_ms }).await {
        tracing::warn!(%error, "silent producers could not be forgotten");
    }
    transactions::forget_unused(shard, TRANSACTIONAL_IDS_KEPT.as_millis() as i64).await;
}

#[cfg(test)]
mod tests;
