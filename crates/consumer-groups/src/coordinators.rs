//! The coordinators of this node's groups, and their background tasks.
//!
//! A node coordinates the groups of the shards that it leads. Its view of members holds for as long as it
//! leads, so there is a coordinator for each term of each shard. At the end of the term it is dropped with
//! all its state, and waiting requests end at once. Members are stored in the shard's log, and the next term
//! restores them.

use std::sync::Arc;

use base::{HashMap, ShardId};
use broker::{Broker, Coordination, ExecuteError, HomeTerm};
use coordinator::{
    Coordinator, NotCoordinator, SessionTimeouts, Totals, keep_members, watch_deadlines,
};
use parking_lot::RwLock;
use tasks::Task;

use crate::settings::{consumer_limits, group_values, join_limits, streams_limits};

/// Reason why this node does not serve a group now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// Another node coordinates the group, or none.
    #[error("This is not the correct coordinator.")]
    NotCoordinator,
    /// The group's members are being restored.
    #[error("The coordinator is loading and hence can't process requests.")]
    Loading,
}

/// The coordinators of the shards that this node leads.
#[derive(Debug)]
pub struct Coordinators {
    broker: Broker,
    /// The bounds of groups apply to the whole node.
    totals: Arc<Totals>,
    led: RwLock<HashMap<ShardId, HomeCoordinator>>,
}

#[derive(Debug)]
struct HomeCoordinator {
    home: HomeTerm,
    /// `None` while its groups are restored.
    groups: Option<Arc<Coordinator>>,
}

impl HomeCoordinator {
    fn groups(&self) -> Result<Arc<Coordinator>, CoordinatorError> {
        self.groups.clone().ok_or(CoordinatorError::Loading)
    }
}

/// A term whose groups are being restored. Dropping it releases waiting clients, also after a panic.
struct RestoreGuard<'a> {
    coordinators: &'a Coordinators,
    home: HomeTerm,
}

impl RestoreGuard<'_> {
    fn end(self, groups: Arc<Coordinator>) -> Result<Arc<Coordinator>, CoordinatorError> {
        let mut led = self.coordinators.led.write();
        // The term may be over: then the entry was removed, or belongs to another term.
        match led.get_mut(&self.home.shard).filter(|led| led.home == self.home) {
            Some(led) => led.groups = Some(Arc::clone(&groups)),
            None => return Err(CoordinatorError::NotCoordinator),
        }
        Ok(groups)
    }
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        let mut led = self.coordinators.led.write();
        let is_unfinished = |led: &&HomeCoordinator| led.home == self.home && led.groups.is_none();
        if led.get(&self.home.shard).filter(is_unfinished).is_some() {
            led.remove(&self.home.shard);
        }
    }
}

impl Coordinators {
    pub(crate) fn new(broker: Broker) -> Self {
        Self { broker, totals: Arc::default(), led: RwLock::default() }
    }

    /// Whether this node coordinates the group.
    pub(crate) fn coordinates(&self, group: &str) -> bool {
        self.home(group).is_ok()
    }

    /// Returns the group's coordinator. Callers keep it only for a visit, because dropping it at the end of
    /// the term ends the requests that wait in it.
    pub fn of(&self, group: &str) -> Result<Arc<Coordinator>, CoordinatorError> {
        {
            let led = self.led.read();
            // Checked under the lock, here and below: [`Self::forget_lost`] takes the lock after a loss.
            let home = self.home(group)?;
            if let Some(led) = led.get(&home.shard).filter(|led| led.home == home) {
                return led.groups();
            }
        }
        let (home, former) = {
            let mut led = self.led.write();
            let home = self.home(group)?;
            if let Some(led) = led.get(&home.shard).filter(|led| led.home == home) {
                return led.groups();
            }
            (home, led.insert(home.shard, HomeCoordinator { home, groups: None }))
        };
        drop(former);
        // Outside of the lock: it may decode megabytes, while members of all other groups send heartbeats.
        let restoring = RestoreGuard { coordinators: self, home };
        let groups = Arc::new(self.begin(home));
        restoring.end(groups)
    }

    fn home(&self, group: &str) -> Result<HomeTerm, CoordinatorError> {
        match self.broker.coordination(group) {
            Coordination::Here(home) => Ok(home),
            Coordination::Loading => Err(CoordinatorError::Loading),
            Coordination::Elsewhere => Err(CoordinatorError::NotCoordinator),
        }
    }

    fn begin(&self, home: HomeTerm) -> Coordinator {
        let mut groups = Coordinator::among(&self.totals);
        self.restore(home, &groups);
        let broker = self.broker.clone();
        let keep = move |members| {
            let broker = broker.clone();
            async move {
                // The log accepts it in this term only, so it cannot overwrite the next coordinator's state.
                let check_term =
                    || if broker.still_leads(home) { Ok(()) } else { Err(NotCoordinator) };
                check_term()?;
                match broker.shards().keep_members(home, members).await {
                    Ok(()) => check_term(),
                    Err(ExecuteError::Unavailable(_)) => Err(NotCoordinator),
                    // On a full disk groups continue, and members rejoin at the next coordinator.
                    Err(ExecuteError::Refused(why)) => {
                        tracing::debug!(%why, "members of groups are not stored");
                        check_term()
                    }
                }
            }
        };
        let broker = self.broker.clone();
        let keeping = keep_members(groups.registry(), move || broker.level().now(), keep);
        groups.own(self.broker.vital(Task::KafkaGroupMembers, keeping));
        let broker = self.broker.clone();
        let limits = move || join_limits(&group_values(&broker));
        let watching = watch_deadlines(groups.registry(), limits);
        groups.own(self.broker.vital(Task::KafkaGroupTimers, watching));
        groups
    }

    /// Restores the groups that were stored in an earlier term.
    fn restore(&self, home: HomeTerm, groups: &Coordinator) {
        for (name, kept) in self.broker.shards().memberships(home) {
            let sessions = {
                let catalog = self.broker.catalog();
                SessionTimeouts {
                    consumer: consumer_limits(&catalog, &name).0.session_timeout,
                    streams: streams_limits(&catalog, &name).0.session_timeout,
                }
            };
            if let Err(error) = groups.restore(&name, &kept, sessions) {
                tracing::warn!(group = %name, %error, "its members have to join again");
            }
        }
    }

    /// Drops the coordinators of shards that this node no longer leads, which ends the requests that wait in
    /// them.
    pub fn forget_lost(&self) {
        let mut lost = Vec::new();
        self.led.write().retain(|_, led| {
            let still_leads = self.broker.still_leads(led.home);
            if !still_leads {
                lost.extend(led.groups.take());
            }
            still_leads
        });
        // After the lock is released: a group may be large.
        drop(lost);
    }

    /// The coordinators that are loaded, and whose term still lasts.
    pub(crate) fn all(&self) -> Vec<Arc<Coordinator>> {
        let led = self.led.read();
        let led = led.values().filter(|led| self.broker.still_leads(led.home));
        led.filter_map(|led| led.groups.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::BrokerOptions;
    use world::{SimulatedDisk, World};

    use super::*;

    /// Without the task that expires offsets, and without a coordinator of its own.
    async fn coordinators() -> (Broker, Coordinators) {
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
        let broker = broker.expect("opens");
        (broker.clone(), Coordinators::new(broker))
    }

    #[tokio::test]
    async fn groups_report_loading_during_restore_without_holding_the_lock() {
        let (broker, coordinators) = coordinators().await;
        let home = coordinators.home("g").expect("it is alone");
        coordinators.led.write().insert(home.shard, HomeCoordinator { home, groups: None });
        let restoring = RestoreGuard { coordinators: &coordinators, home };
        assert_eq!(coordinators.of("g").err(), Some(CoordinatorError::Loading));
        assert!(coordinators.all().is_empty());
        coordinators.forget_lost();
        let groups = Arc::new(coordinators.begin(home));
        restoring.end(Arc::clone(&groups)).expect("the term goes on");
        assert!(Arc::ptr_eq(&coordinators.of("g").expect("it is restored"), &groups));
        drop(groups);
        broker.shutdown().await;
    }

    #[tokio::test]
    async fn unfinished_restore_is_started_again() {
        let (broker, coordinators) = coordinators().await;
        let home = coordinators.home("g").expect("it is alone");
        coordinators.led.write().insert(home.shard, HomeCoordinator { home, groups: None });
        drop(RestoreGuard { coordinators: &coordinators, home });
        assert!(coordinators.of("g").is_ok());
        broker.shutdown().await;
    }
}
