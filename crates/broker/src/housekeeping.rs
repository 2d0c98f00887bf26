//! What is done in the background, at our own pace: retention marks bytes dead, compaction drops
//! what a later record replaced, producers that fell silent are forgotten, and space comes back.

use std::time::Duration;

use base::limits::TAIL_CACHE_AGE_MAX;
use journal::Reclaimed;
use machine::Command;
use tasks::Task;
use tokio::time::{Instant, MissedTickBehavior};

use crate::broker::{Broker, WeakBroker};
use crate::compaction::Compaction;
use crate::retention::Retention;

/// Producers are forgotten after a day or so; an hour more or less does not matter.
const PRODUCERS_EVERY: Duration = Duration::from_secs(60 * 60);
/// New starts that one command carries.
const STARTS_PER_COMMAND: usize = 10_000;

pub(crate) async fn run(broker: WeakBroker, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut retention = Retention::default();
    let mut compaction = Compaction::default();
    let mut producers_due = Instant::now() + PRODUCERS_EVERY;
    loop {
        ticks.tick().await;
        let Some(broker) = broker.upgrade() else { return };
        broker.journal().rest(TAIL_CACHE_AGE_MAX);
        retain(&mut retention, &broker).await;
        compact(&mut compaction, &broker).await;
        if Instant::now() >= producers_due {
            producers_due = Instant::now() + PRODUCERS_EVERY;
            forget_producers(&broker).await;
        }
        reclaim(&broker).await;
    }
}

/// Moves the start of partitions that hold more, or older, than their topic keeps.
async fn retain(retention: &mut Retention, broker: &Broker) {
    let looking = broker.clone();
    let mut remembered = std::mem::take(retention);
    let look = move || {
        let starts = remembered.starts(&looking, Instant::now().into_std());
        (remembered, starts)
    };
    let starts;
    (*retention, starts) = tasks::blocking(Task::HousekeepingDisk, look).await.unwrap_or_default();
    for starts in starts.chunks(STARTS_PER_COMMAND) {
        let command = Command::AdvanceStart { starts: starts.to_vec() };
        if let Err(error) = broker.execute(command).await {
            tracing::warn!(%error, "retention could not move the start of partitions");
            return;
        }
    }
}

async fn compact(compaction: &mut Compaction, broker: &Broker) {
    if let Err(error) = compaction.run(broker).await {
        tracing::warn!(%error, "compaction failed and will be tried again");
    }
}

async fn forget_producers(broker: &Broker) {
    let silent_ms = broker.read(|state| state.node_config().own.producer_id_expiration_ms);
    let before_ms = broker.timeline().unstepped_ms().saturating_sub(silent_ms);
    if let Err(error) = broker.execute(Command::ExpireProducers { before_ms }).await {
        tracing::warn!(%error, "silent producers could not be forgotten");
    }
}

async fn reclaim(broker: &Broker) {
    let working = broker.clone();
    let reclaimed =
        tasks::blocking(Task::HousekeepingDisk, move || working.journal().reclaim()).await;
    match reclaimed {
        Ok(Ok(reclaimed)) => {
            if reclaimed != Reclaimed::default() {
                tracing::debug!(?reclaimed, "space came back");
            }
            // A dead segment goes once a snapshot says that it is dead; without traffic none comes.
            if reclaimed.waiting > 0
                && let Err(error) = broker.save_snapshot().await
            {
                tracing::warn!(%error, "no snapshot could be saved, so dead segments stay");
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, "space could not be reclaimed; trying again"),
        Err(error) => tracing::error!(%error, "reclaiming space panicked"),
    }
}
