//! What is done in the background, at our own pace: retention marks bytes dead, compaction drops
//! what a later record replaced, producers that fell silent are forgotten, and space comes back.
//!
//! A round looks at what changed since the one before and at what has become due, whatever is
//! stored. After a start, and when the node is configured anew, every partition that holds records
//! is looked at once, some of them a round.
//!
//! * `retention`: what is too old or too much
//! * `compaction`: what a later record replaced, and `outlook`: when a pass is due
//! * `changes`, `due`: which partitions these look at, so that idle ones cost nothing
//! * `survey`: a look at all of them, in steps
//! * `space`: when space is taken back

pub(crate) mod changes;
mod compaction;
mod due;
mod outlook;
mod retention;
mod space;
mod survey;

use std::time::Duration;

use base::limits::TAIL_CACHE_AGE_MAX;
use base::{HashMap, PartitionId};
use journal::Reclaimed;
use machine::Command;
use tasks::Task;
use tokio::time::{Instant, MissedTickBehavior};

use crate::broker::{Broker, WeakBroker};
use crate::housekeeping::changes::Change;
use crate::housekeeping::compaction::Compaction;
use crate::housekeeping::retention::{Retention, Round};
use crate::housekeeping::space::Space;
use crate::housekeeping::survey::Survey;

/// Producers are forgotten after a day or so; an hour more or less does not matter.
const PRODUCERS_EVERY: Duration = Duration::from_secs(60 * 60);
/// New starts that one command carries.
const STARTS_PER_COMMAND: usize = 10_000;

pub(crate) async fn run(broker: WeakBroker, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut housekeeping = Housekeeping::default();
    let mut producers_due = Instant::now() + PRODUCERS_EVERY;
    loop {
        ticks.tick().await;
        let Some(broker) = broker.upgrade() else { return };
        broker.journal().rest(TAIL_CACHE_AGE_MAX);
        let looks = housekeeping.round(&broker).await;
        if looks != Looks::default() {
            tracing::trace!(?looks, "housekeeping");
        }
        if Instant::now() >= producers_due {
            producers_due = Instant::now() + PRODUCERS_EVERY;
            forget_producers(&broker).await;
        }
    }
}

/// Partitions that a round looked at, for which reason whatever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Looks {
    retention: usize,
    compaction: usize,
    /// Whether segments were looked at.
    space: bool,
}

#[derive(Debug, Default)]
struct Housekeeping {
    survey: Survey,
    retention: Retention,
    compaction: Compaction,
    space: Space,
}

impl Housekeeping {
    async fn round(&mut self, broker: &Broker) -> Looks {
        let mut changed = broker.shard().changes.take();
        if !changed.is_empty() {
            self.space.changed(Instant::now());
        }
        for topic in std::mem::take(&mut changed.topics) {
            match broker.read(|state| state.catalog.topic(topic).is_some()) {
                true => self.survey.add(topic),
                false => {
                    self.retention.forget(topic);
                    self.compaction.forget(topic);
                }
            }
        }
        if changed.all {
            self.survey.add_all();
        }
        for partition in self.survey.next(broker) {
            changed.add(partition, Change::ANEW);
        }
        let retention = self.retain(broker, &changed.partitions).await;
        self.compaction.note(broker, &changed.partitions);
        let compaction = match self.compaction.run(broker).await {
            Ok(looks) => looks,
            Err(error) => {
                tracing::warn!(%error, "compaction failed and will be tried again");
                0
            }
        };
        let space = self.space.is_due(Instant::now());
        if space {
            self.reclaim(broker).await;
        }
        Looks { retention, compaction, space }
    }

    /// Moves the start of partitions that hold more, or older, than their topic keeps.
    async fn retain(&mut self, broker: &Broker, changed: &HashMap<PartitionId, Change>) -> usize {
        let now = Instant::now();
        if changed.is_empty() && !self.retention.is_due(broker, now) {
            return 0;
        }
        let looking = broker.clone();
        let mut retention = std::mem::take(&mut self.retention);
        let changed = changed.clone();
        let look = move || {
            let round = retention.round(&looking, &changed, now);
            (retention, round)
        };
        // Its end by a panic is the node's: nothing is lost by it that would be missed.
        let looked = broker.workers().blocking(Task::HousekeepingDisk, look).await;
        let (retention, round) = looked.unwrap_or_default();
        self.retention = retention;
        let Round { starts, looks } = round;
        for starts in starts.chunks(STARTS_PER_COMMAND) {
            let command = Command::AdvanceStart { starts: starts.to_vec() };
            if let Err(error) = broker.execute(command).await {
                tracing::warn!(%error, "retention could not move the start of partitions");
                self.retention.again(starts.iter().map(|(partition, _)| *partition), now);
            }
        }
        looks
    }

    async fn reclaim(&mut self, broker: &Broker) {
        let working = broker.clone();
        let reclaim = move || working.journal().reclaim();
        let reclaimed = broker.workers().blocking(Task::HousekeepingDisk, reclaim).await;
        let now = Instant::now();
        match reclaimed {
            Ok(Ok(reclaimed)) => {
                if reclaimed != Reclaimed::default() {
                    tracing::debug!(?reclaimed, "space came back");
                }
                if self.space.passed(now, reclaimed, broker.journal().snapshot_bytes()) {
                    self.save_snapshot(broker).await;
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

    async fn save_snapshot(&mut self, broker: &Broker) {
        match broker.save_snapshot().await {
            Ok(()) => self.space.snapshot_taken(Instant::now()),
            Err(error) => {
                tracing::warn!(%error, "no snapshot could be saved, so dead segments stay");
            }
        }
    }
}

async fn forget_producers(broker: &Broker) {
    let silent_ms = broker.read(|state| state.catalog.node_config().own.producer_id_expiration_ms);
    let before_ms = broker.timeline().unstepped_ms().saturating_sub(silent_ms);
    if let Err(error) = broker.execute(Command::ExpireProducers { before_ms }).await {
        tracing::warn!(%error, "silent producers could not be forgotten");
    }
}

#[cfg(test)]
mod tests;
