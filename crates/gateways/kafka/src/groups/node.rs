//! The groups of this node, their background tasks, and their configuration.
//!
//! A node coordinates the groups of the shards that it leads. Its view of members holds for as long as it
//! leads, so there is a coordinator for each term of each shard. At the end of the term it is dropped with
//! all its state, and waiting requests end at once. Members are stored in the shard's log, and the next term
//! restores them.

use std::sync::Arc;
use std::time::Duration;

use base::{HashMap, ShardId};
use broker::config::GroupValues;
use broker::{Broker, Coordination, ExecuteError, HomeTerm};
use coordinator::classic::JoinLimits;
use coordinator::{
    Coordinator, Group, GroupAccess, NotCoordinator, SessionTimeouts, Totals, keep_members,
    watch_deadlines,
};
use kafka_protocol::ResponseError;
use parking_lot::RwLock;
use tasks::Task;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::gateway::Gateway;
use crate::groups::{consumer_requests, expiry, streams_requests};

/// Group state shared by all sessions.
#[derive(Debug)]
pub(crate) struct Groups {
    homes: Arc<Homes>,
    expiring: JoinHandle<()>,
}

/// The coordinators of the shards that this node leads.
#[derive(Debug)]
pub(crate) struct Homes {
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

impl Groups {
    /// Must be called within a runtime: it spawns tasks for deadlines and old offsets.
    pub(crate) fn new(broker: &Broker) -> Self {
        let homes =
            Homes { broker: broker.clone(), totals: Arc::default(), led: RwLock::default() };
        let homes = Arc::new(homes);
        if broker.is_alone() {
            // This node coordinates all groups from now on, and their time without members counts from here.
            let _ = homes.of("");
        }
        let expiring = expiry::run(broker.clone(), Arc::downgrade(&homes));
        Self { homes, expiring: broker.vital(Task::KafkaOffsetExpiry, expiring) }
    }

    pub(crate) fn homes(&self) -> &Arc<Homes> {
        &self.homes
    }

    /// As [`Homes::of`].
    pub(crate) fn of(&self, group: &str) -> Result<Arc<Coordinator>, ResponseError> {
        self.homes.of(group)
    }

    /// Whether this node coordinates the group.
    pub(crate) fn coordinates(&self, group: &str) -> bool {
        self.homes.home(group).is_ok()
    }

    /// Visits every group that this node coordinates, in no order.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&str, &Group)) {
        for groups in self.homes.all() {
            groups.for_each(&mut show);
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.expiring.abort();
    }
}

impl HomeCoordinator {
    fn groups(&self) -> Result<Arc<Coordinator>, ResponseError> {
        self.groups.clone().ok_or(ResponseError::CoordinatorLoadInProgress)
    }
}

/// A term whose groups are being restored. Dropping it releases waiting clients, also after a panic.
struct RestoreGuard<'a> {
    homes: &'a Homes,
    home: HomeTerm,
}

impl RestoreGuard<'_> {
    fn end(self, groups: Arc<Coordinator>) -> Result<Arc<Coordinator>, ResponseError> {
        let mut led = self.homes.led.write();
        // The term may be over: then the entry was removed, or belongs to another term.
        match led.get_mut(&self.home.shard).filter(|led| led.home == self.home) {
            Some(led) => led.groups = Some(Arc::clone(&groups)),
            None => return Err(ResponseError::NotCoordinator),
        }
        Ok(groups)
    }
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        let mut led = self.homes.led.write();
        let is_unfinished = |led: &&HomeCoordinator| led.home == self.home && led.groups.is_none();
        if led.get(&self.home.shard).filter(is_unfinished).is_some() {
            led.remove(&self.home.shard);
        }
    }
}

impl Homes {
    /// Returns the group's coordinator. Callers keep it only for a visit, because dropping it at the end of
    /// the term ends the requests that wait in it.
    pub(crate) fn of(&self, group: &str) -> Result<Arc<Coordinator>, ResponseError> {
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
        let restoring = RestoreGuard { homes: self, home };
        let groups = Arc::new(self.begin(home));
        restoring.end(groups)
    }

    fn home(&self, group: &str) -> Result<HomeTerm, ResponseError> {
        match self.broker.coordination(group) {
            Coordination::Here(home) => Ok(home),
            Coordination::Loading => Err(ResponseError::CoordinatorLoadInProgress),
            Coordination::Elsewhere => Err(ResponseError::NotCoordinator),
        }
    }

    fn begin(&self, home: HomeTerm) -> Coordinator {
        let mut groups = Coordinator::among(&self.totals);
        self.restore(home, &groups);
        let of_node = self.broker.clone();
        let keep = move |members| {
            let broker = of_node.clone();
            async move {
                // The log accepts it in this term only, so it cannot overwrite the next coordinator's state.
                let goes_on =
                    || if broker.still_leads(home) { Ok(()) } else { Err(NotCoordinator) };
                goes_on()?;
                match broker.shards().keep_members(home, members).await {
                    Ok(()) => goes_on(),
                    Err(ExecuteError::Unavailable(_)) => Err(NotCoordinator),
                    // On a full disk groups continue, and members rejoin at the next coordinator.
                    Err(ExecuteError::Refused(why)) => {
                        tracing::debug!(%why, "members of groups are not stored");
                        goes_on()
                    }
                }
            }
        };
        let of_node = self.broker.clone();
        let keeping = keep_members(groups.registry(), move || of_node.level().now(), keep);
        groups.own(self.broker.vital(Task::KafkaGroupMembers, keeping));
        let of_node = self.broker.clone();
        let limits = move || join_limits(&group_values(&of_node));
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
                    consumer: consumer_requests::limits_of(&catalog, &name).0.session_timeout,
                    streams: streams_requests::limits_of(&catalog, &name).0.session_timeout,
                }
            };
            if let Err(error) = groups.restore(&name, &kept, sessions) {
                tracing::warn!(group = %name, %error, "its members have to join again");
            }
        }
    }

    /// Drops the coordinators of shards that this node no longer leads, which ends the requests that wait in
    /// them.
    pub(crate) fn forget_lost(&self) {
        let mut lost = Vec::new();
        self.led.write().retain(|_, led| {
            let goes_on = self.broker.still_leads(led.home);
            if !goes_on {
                lost.extend(led.groups.take());
            }
            goes_on
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

/// Applies an event to a group, and returns once its result is stored: no member knows more than the next
/// coordinator will.
pub(crate) async fn visit_to_store<R>(
    gateway: &Gateway,
    group: &str,
    event: impl FnOnce(GroupAccess<'_>) -> R,
) -> Result<R, ResponseError> {
    let (result, stored) = gateway.groups.of(group)?.visit_to_store(group, event);
    if let Some(mut stored) = stored {
        answer_or_drain(gateway, &mut stored).await?;
    }
    Ok(result)
}

/// Waits for a reply. The client looks for another coordinator if the node shuts down first, or no longer
/// coordinates the group: then the group is dropped with the sender.
pub(crate) async fn answer_or_drain<T>(
    gateway: &Gateway,
    answer: &mut oneshot::Receiver<T>,
) -> Result<T, ResponseError> {
    tokio::select! {
        biased;
        reply = answer => reply.map_err(|_| ResponseError::NotCoordinator),
        () = gateway.draining() => Err(ResponseError::CoordinatorNotAvailable),
    }
}

/// The node's current configuration of groups.
pub(crate) fn group_values(broker: &Broker) -> GroupValues {
    broker.catalog().node_config().own.groups
}

pub(crate) fn join_limits(values: &GroupValues) -> JoinLimits {
    JoinLimits {
        initial_delay: millis(values.initial_rebalance_delay_ms),
        members_max: values.members_max,
    }
}

/// A time in a request or a configuration; a negative one counts as zero.
pub(crate) fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::BrokerOptions;
    use world::{SimulatedDisk, World};

    use super::*;

    /// Without the task that expires offsets, and without a coordinator of its own.
    async fn homes() -> (Broker, Homes) {
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
        let broker = broker.expect("opens");
        let homes =
            Homes { broker: broker.clone(), totals: Arc::default(), led: RwLock::default() };
        (broker, homes)
    }

    #[tokio::test]
    async fn groups_report_loading_during_restore_without_holding_the_lock() {
        let (broker, homes) = homes().await;
        let home = homes.home("g").expect("it is alone");
        homes.led.write().insert(home.shard, HomeCoordinator { home, groups: None });
        let restoring = RestoreGuard { homes: &homes, home };
        assert_eq!(homes.of("g").err(), Some(ResponseError::CoordinatorLoadInProgress));
        assert!(homes.all().is_empty());
        homes.forget_lost();
        let groups = Arc::new(homes.begin(home));
        restoring.end(Arc::clone(&groups)).expect("the term goes on");
        assert!(Arc::ptr_eq(&homes.of("g").expect("it is restored"), &groups));
        drop(groups);
        broker.shutdown().await;
    }

    #[tokio::test]
    async fn unfinished_restore_is_started_again() {
        let (broker, homes) = homes().await;
        let home = homes.home("g").expect("it is alone");
        homes.led.write().insert(home.shard, HomeCoordinator { home, groups: None });
        drop(RestoreGuard { homes: &homes, home });
        assert!(homes.of("g").is_ok());
        broker.shutdown().await;
    }
}
