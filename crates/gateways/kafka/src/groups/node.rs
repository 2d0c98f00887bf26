//! The groups of this node, with what looks after them, and what its configuration says about them.
//!
//! A node coordinates the groups of the shards that it leads. What it knows of members is true for as long as the node
//! leads, so there is a coordinator for each term of each shard. When the term is over it goes with all that is in it,
//! and who waits is told at once. Stored members are in the shard's log, and the next term restores them.

use std::sync::Arc;
use std::time::Duration;

use base::{HashMap, ShardId};
use broker::config::GroupValues;
use broker::{Broker, Coordination, ExecuteError, HomeTerm};
use coordinator::classic::JoinLimits;
use coordinator::{
    Coordinator, Group, SessionTimeouts, TermOver, Totals, Visit, keep_members, watch_deadlines,
};
use kafka_protocol::ResponseError;
use parking_lot::RwLock;
use tasks::Task;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::gateway::Gateway;
use crate::groups::{consumer_requests, expiry, streams_requests};

/// What all sessions share about groups.
#[derive(Debug)]
pub(crate) struct Groups {
    homes: Arc<Homes>,
    expiring: JoinHandle<()>,
}

/// The coordinators of the shards that this node leads.
#[derive(Debug)]
pub(crate) struct Homes {
    broker: Broker,
    /// The bounds of groups are the node's.
    totals: Arc<Totals>,
    led: RwLock<HashMap<ShardId, Led>>,
}

#[derive(Debug)]
struct Led {
    home: HomeTerm,
    /// `None` while its groups are restored.
    groups: Option<Arc<Coordinator>>,
}

impl Groups {
    /// Must be called within a runtime: tasks look after deadlines and old offsets.
    pub(crate) fn new(broker: &Broker) -> Self {
        let homes =
            Homes { broker: broker.clone(), totals: Arc::default(), led: RwLock::default() };
        let homes = Arc::new(homes);
        if broker.is_alone() {
            // It coordinates all groups from now on, and their time without members counts from here.
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

    /// Shows every group that this node coordinates, in no order.
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

impl Led {
    fn groups(&self) -> Result<Arc<Coordinator>, ResponseError> {
        self.groups.clone().ok_or(ResponseError::CoordinatorLoadInProgress)
    }
}

/// A term whose groups are restored. Clients wait for the end of it, also if it panics.
struct Restoring<'a> {
    homes: &'a Homes,
    home: HomeTerm,
}

impl Restoring<'_> {
    fn end(self, groups: Arc<Coordinator>) -> Result<Arc<Coordinator>, ResponseError> {
        let mut led = self.homes.led.write();
        // The term may be over: then the entry is gone, or another term's.
        match led.get_mut(&self.home.shard).filter(|led| led.home == self.home) {
            Some(led) => led.groups = Some(Arc::clone(&groups)),
            None => return Err(ResponseError::NotCoordinator),
        }
        Ok(groups)
    }
}

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        let mut led = self.homes.led.write();
        let is_unfinished = |led: &&Led| led.home == self.home && led.groups.is_none();
        if led.get(&self.home.shard).filter(is_unfinished).is_some() {
            led.remove(&self.home.shard);
        }
    }
}

impl Homes {
    /// The coordinator that the group is in. Nobody keeps it for longer than a visit takes: whoever waits in it is told
    /// that the term is over by its end.
    pub(crate) fn of(&self, group: &str) -> Result<Arc<Coordinator>, ResponseError> {
        {
            let led = self.led.read();
            // Asked under the lock, here and below: whoever forgets what is lost takes it after the loss.
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
            (home, led.insert(home.shard, Led { home, groups: None }))
        };
        drop(former);
        // Outside of the lock: it may decode megabytes, and members of all other groups send heartbeats meanwhile.
        let restoring = Restoring { homes: self, home };
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
                // The log takes it in this term alone: what the next coordinator stores is not overwritten.
                let goes_on = || if broker.still_leads(home) { Ok(()) } else { Err(TermOver) };
                goes_on()?;
                match broker.shards().keep_members(home, members).await {
                    Ok(()) => goes_on(),
                    Err(ExecuteError::Unavailable(_)) => Err(TermOver),
                    // With a full disk groups go on, and members join again at the next coordinator.
                    Err(ExecuteError::Refused(why)) => {
                        tracing::debug!(%why, "who is in groups is not kept");
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
                tracing::warn!(group = %name, %error, "its members have to join anew");
            }
        }
    }

    /// Forgets the groups of shards that this node leads no more, and tells who waits in them.
    pub(crate) fn forget_lost(&self) {
        let mut lost = Vec::new();
        self.led.write().retain(|_, led| {
            let goes_on = self.broker.still_leads(led.home);
            if !goes_on {
                lost.extend(led.groups.take());
            }
            goes_on
        });
        // After the lock: a group may be large.
        drop(lost);
    }

    /// Those in which somebody asked about a group.
    pub(crate) fn all(&self) -> Vec<Arc<Coordinator>> {
        let led = self.led.read();
        let led = led.values().filter(|led| self.broker.still_leads(led.home));
        led.filter_map(|led| led.groups.clone()).collect()
    }
}

/// Shows a group an event whose answer is sent once what came of it is stored: no member knows more than the next
/// coordinator will.
pub(crate) async fn visit_to_store<R>(
    gateway: &Gateway,
    group: &str,
    event: impl FnOnce(Visit<'_>) -> R,
) -> Result<R, ResponseError> {
    let (result, stored) = gateway.groups.of(group)?.visit_to_store(group, event);
    if let Some(mut stored) = stored {
        answer_or_drain(gateway, &mut stored).await?;
    }
    Ok(result)
}

/// The client looks for another coordinator if the node shuts down first, or coordinates the group no more: then the
/// group ends, and with it the other end.
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

/// What the node's configuration says about groups now.
pub(crate) fn group_values(broker: &Broker) -> GroupValues {
    broker.catalog().node_config().own.groups
}

pub(crate) fn join_limits(values: &GroupValues) -> JoinLimits {
    JoinLimits {
        initial_delay: millis(values.initial_rebalance_delay_ms),
        members_max: values.members_max,
    }
}

/// A time in a request or a configuration; less than none is none.
pub(crate) fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::BrokerOptions;
    use world::{SimulatedDisk, World};

    use super::*;

    /// Without the tasks that look after old offsets, and without its own coordinator.
    async fn homes() -> (Broker, Homes) {
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
        let broker = broker.expect("opens");
        let homes =
            Homes { broker: broker.clone(), totals: Arc::default(), led: RwLock::default() };
        (broker, homes)
    }

    #[tokio::test]
    async fn groups_are_loading_while_they_are_restored_and_the_lock_is_free() {
        let (broker, homes) = homes().await;
        let home = homes.home("g").expect("it is alone");
        homes.led.write().insert(home.shard, Led { home, groups: None });
        let restoring = Restoring { homes: &homes, home };
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
    async fn restoring_that_does_not_end_begins_again() {
        let (broker, homes) = homes().await;
        let home = homes.home("g").expect("it is alone");
        homes.led.write().insert(home.shard, Led { home, groups: None });
        drop(Restoring { homes: &homes, home });
        assert!(homes.of("g").is_ok());
        broker.shutdown().await;
    }
}
