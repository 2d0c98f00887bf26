//! Stores groups when they have changed, so that the next coordinator can restore them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Level;
use base::limits::MEMBERSHIP_BYTES_MAX;
use thiserror::Error;
use tokio::time::sleep;
use tracing::warn;

use crate::Text;
use crate::changed_groups::StoreWaiter;
use crate::registry::Registry;

/// Minimum interval of log entries, so that changes of many groups share one.
const KEEP_EVERY: Duration = Duration::from_millis(2);
/// Interval per MiB stored: a large group that keeps changing is written 20 times a second.
const KEEP_EVERY_MIB: Duration = Duration::from_millis(50);
/// Approximate size of one entry.
const ENTRY_BYTES: usize = MEMBERSHIP_BYTES_MAX;

/// The node is no longer the coordinator of these groups, so that their state cannot be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("another node coordinates the groups")]
pub struct NotCoordinator;

/// Calls `keep` with the stored form of each changed group, as far as the `level` permits it. Empty bytes: the
/// group has no members, and its stored form is to be removed. Replies that depend on a change are sent once
/// `keep` has completed: then the next coordinator knows the state that a member has received. If it ends with
/// [`NotCoordinator`] they are not sent. Ends only by cancellation: see [`crate::Coordinator::own`].
pub fn keep_members<F: Future<Output = Result<(), NotCoordinator>>>(
    groups: Weak<Registry>,
    level: impl Fn() -> Level,
    keep: impl Fn(Vec<(String, Vec<u8>)>) -> F,
) -> impl Future<Output = ()> {
    // From now on, not from the task's first run.
    if let Some(registry) = groups.upgrade() {
        registry.changed().keep();
    }
    async move {
        while let Some(changed) = groups.upgrade().map(|registry| Arc::clone(registry.changed())) {
            let mut names = changed.next().await.into_iter();
            let mut bytes = 0;
            loop {
                let some = {
                    let Some(registry) = groups.upgrade() else { break };
                    some_of(&registry, level(), &mut names)
                };
                let Some(Batch { names, kept, bytes: of_batch }) = some else { break };
                bytes += of_batch;
                let stored = if kept.is_empty() { Ok(()) } else { keep(kept).await };
                let due = changed.take_due(&names);
                if stored.is_ok() {
                    due.into_iter().for_each(StoreWaiter::notify);
                }
            }
            let of_bytes = KEEP_EVERY_MIB.mul_f64(bytes as f64 / f64::from(1 << 20));
            sleep(KEEP_EVERY.max(of_bytes)).await;
        }
        // The owner that dropped the groups has cancelled this already.
        std::future::pending().await
    }
}

/// The groups that one entry stores.
struct Batch {
    names: Vec<Text>,
    kept: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

/// `None`: no name is left.
fn some_of(
    registry: &Registry,
    level: Level,
    names: &mut impl Iterator<Item = Text>,
) -> Option<Batch> {
    let mut some = Batch { names: Vec::new(), kept: Vec::new(), bytes: 0 };
    while some.bytes < ENTRY_BYTES
        && let Some(name) = names.next()
    {
        // Otherwise a rebalance of the classic protocol is in progress, and the previous state stays stored.
        if let Some(mut kept) = registry.kept(&name, level) {
            if kept.len() > MEMBERSHIP_BYTES_MAX {
                let (bytes, at_most) = (kept.len(), MEMBERSHIP_BYTES_MAX);
                warn!(group = %name, bytes, at_most, "members of so large a group join again when another node coordinates it");
                kept.clear();
            }
            some.bytes += name.len() + kept.len();
            some.kept.push((name.to_string(), kept));
        }
        some.names.push(name);
    }
    (!some.names.is_empty()).then_some(some)
}

#[cfg(test)]
mod tests {
    use base::Levels;
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::timeout;

    use super::*;
    use crate::classic::{ClassicGroup, Join, JoinLimits, Protocol, Reply, Sync};
    use crate::client::Client;
    use crate::{Coordinator, Group, SessionTimeouts, text};

    const SESSION: Duration = Duration::from_secs(30);
    const SESSIONS: SessionTimeouts = SessionTimeouts { consumer: SESSION, streams: SESSION };
    const LIMITS: JoinLimits = JoinLimits { initial_delay: Duration::ZERO, members_max: 10 };

    /// A group with one member, which leads and has its own assignment.
    async fn joins(groups: &Registry, name: &str) -> Text {
        let joined = groups.visit_and_wait(name, |visit, waiter| {
            let group =
                visit.group.get_or_insert_with(|| Group::Classic(ClassicGroup::new(text(name))));
            let Group::Classic(group) = group else { panic!("it is classic") };
            let join = Join {
                waiter,
                member_id: Text::default(),
                fresh_id: text("m"),
                instance_id: None,
                client: Client::default(),
                session_timeout: SESSION,
                rebalance_timeout: SESSION,
                protocol_type: text("consumer"),
                protocols: vec![Protocol { name: text("range"), metadata: Default::default() }],
                reason: String::new(),
                may_be_sent_back: false,
                may_skip_assignment: true,
            };
            group.join(join, LIMITS, visit.now, visit.effects);
        });
        let Ok(Reply::Join(Ok(joined))) = joined.await else { panic!("it is let in") };
        let member = joined.member_id.clone();
        let synced = groups.visit_and_wait(name, |visit, waiter| {
            let Some(Group::Classic(group)) = visit.group else { panic!("it is there") };
            let sync = Sync {
                waiter,
                member_id: member.clone(),
                instance_id: None,
                generation: joined.generation,
                protocol_type: None,
                protocol: None,
                assignments: vec![(member.clone(), "all".into())],
            };
            group.sync(sync, visit.now, visit.effects);
        });
        assert!(matches!(synced.await, Ok(Reply::Sync(Ok(_)))));
        member
    }

    fn heartbeat(groups: &Registry, name: &str, member: &Text) -> bool {
        groups.visit(name, |visit| {
            let Some(Group::Classic(group)) = visit.group else { return false };
            group.heartbeat(member, None, 1, visit.now).is_ok()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn changed_group_is_stored_once_and_restored_at_another_coordinator() {
        let mut groups = Coordinator::default();
        let (sender, mut kept) = mpsc::unbounded_channel();
        let keep = move |some| {
            let sent = sender.send(some);
            async move { sent.map_err(|_| NotCoordinator) }
        };
        groups.own(tokio::spawn(keep_members(groups.registry(), || Levels::OURS.max, keep)));
        let member = joins(&groups, "g").await;
        let some = kept.recv().await.expect("it changed");
        let [(name, bytes)] = &some[..] else { panic!("{some:?}") };
        assert_eq!(name, "g");

        let next = Registry::default();
        next.restore("g", bytes, SESSIONS).expect("it was kept");
        assert!(heartbeat(&next, "g", &member) && !heartbeat(&next, "g", &text("another")));
        assert_eq!(next.kept("g", Levels::OURS.max).as_ref(), Some(bytes));
        assert_eq!(next.restore("h", &bytes[..3], SESSIONS).map_err(|_| ()), Err(()));

        // A heartbeat changes nothing that is stored; without the group its stored form is removed.
        assert!(heartbeat(&groups, "g", &member));
        let nothing = timeout(Duration::from_secs(1), kept.recv()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        groups.visit("g", |visit| *visit.group = None);
        assert_eq!(kept.recv().await, Some(vec![("g".to_owned(), Vec::new())]));
    }

    /// A reply is sent after its state is stored.
    #[tokio::test(start_paused = true)]
    async fn reply_waits_until_its_change_is_stored() {
        let mut groups = Coordinator::default();
        let (sender, mut kept) = mpsc::unbounded_channel();
        let keep = move |some| {
            let (stored, waits) = oneshot::channel::<Result<(), NotCoordinator>>();
            let sent = sender.send((some, stored));
            async move {
                sent.map_err(|_| NotCoordinator)?;
                waits.await.map_err(|_| NotCoordinator)?
            }
        };
        groups.own(tokio::spawn(keep_members(groups.registry(), || Levels::OURS.max, keep)));
        let groups = Arc::new(groups);
        let joining = tokio::spawn({
            let groups = Arc::clone(&groups);
            async move { joins(&groups, "g").await }
        });
        // A rebalance is in progress, whose state is not stored: the member joins, and syncs.
        let (some, stored) = kept.recv().await.expect("it changed");
        assert!(some.iter().any(|(name, bytes)| name == "g" && !bytes.is_empty()));
        sleep(Duration::from_secs(1)).await;
        assert!(!joining.is_finished(), "it is answered before it is stored");
        let (_, waits) = groups.visit_to_store("g", |_| ());
        let mut waits = waits.expect("it is about to be stored");
        assert!(waits.try_recv().is_err());
        // Another group is not affected.
        assert!(groups.visit_to_store("h", |_| ()).1.is_none());
        stored.send(Ok(())).expect("it is waited for");
        joining.await.expect("it ends");
        waits.await.expect("it is stored");
        assert!(groups.visit_to_store("g", |_| ()).1.is_none(), "nothing has changed since");

        // The term ends before the next change is stored.
        let (_, waits) = groups.visit_to_store("g", |visit| *visit.group = None);
        let (_, stored) = kept.recv().await.expect("it changed");
        stored.send(Err(NotCoordinator)).expect("it is waited for");
        waits.expect("it has changed").await.expect_err("it is not stored");
    }
}
