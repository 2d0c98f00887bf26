//! Stores groups when they have changed, so that the next coordinator can restore them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::HashSet;
use base::limits::MEMBERSHIP_BYTES_MAX;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::warn;

use crate::{Registry, Text};

/// Changes within this time share an entry of the log.
const KEEP_EVERY: Duration = Duration::from_millis(50);
/// About so many bytes are in one entry.
const ENTRY_BYTES: usize = MEMBERSHIP_BYTES_MAX;

/// Groups that have changed since they were stored.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    groups: Mutex<HashSet<Text>>,
    some: Notify,
}

impl Changed {
    pub(crate) fn note(&self, group: Text) {
        if self.groups.lock().insert(group) {
            self.some.notify_one();
        }
    }

    async fn next(&self) -> HashSet<Text> {
        loop {
            let groups = std::mem::take(&mut *self.groups.lock());
            if !groups.is_empty() {
                return groups;
            }
            self.some.notified().await;
        }
    }
}

/// Calls `keep` with the stored form of each group that has changed. No bytes: the group has no members, and its stored
/// form is to be removed. A group that `keep` fails to store is stored with its next change. Ends only by being
/// cancelled: see [`crate::Coordinator::own`].
pub async fn keep_members<F: Future<Output = ()>>(
    groups: Weak<Registry>,
    keep: impl Fn(Vec<(String, Vec<u8>)>) -> F,
) {
    while let Some(changed) = groups.upgrade().map(|registry| Arc::clone(registry.changed())) {
        let mut names = changed.next().await.into_iter();
        loop {
            let some = {
                let Some(registry) = groups.upgrade() else { break };
                some_of(&registry, &mut names)
            };
            if some.is_empty() {
                break;
            }
            keep(some).await;
        }
        sleep(KEEP_EVERY).await;
    }
    // Whoever dropped the groups has cancelled this already.
    std::future::pending().await
}

fn some_of(registry: &Registry, names: &mut impl Iterator<Item = Text>) -> Vec<(String, Vec<u8>)> {
    let (mut some, mut bytes) = (Vec::new(), 0);
    while bytes < ENTRY_BYTES
        && let Some(name) = names.next()
    {
        let Some(mut kept) = registry.kept(&name) else { continue };
        if kept.len() > MEMBERSHIP_BYTES_MAX {
            let (bytes, at_most) = (kept.len(), MEMBERSHIP_BYTES_MAX);
            warn!(group = %name, bytes, at_most, "members of so large a group join anew when another node coordinates it");
            kept.clear();
        }
        bytes += name.len() + kept.len();
        some.push((name.to_string(), kept));
    }
    some
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::classic::{ClassicGroup, Join, JoinLimits, Protocol, Sync};
    use crate::member::{Client, Reply};
    use crate::{Coordinator, Group, text};

    const SESSION: Duration = Duration::from_secs(30);
    const LIMITS: JoinLimits = JoinLimits { initial_delay: Duration::ZERO, members_max: 10 };

    /// A group with one member, which leads and has what it gave itself.
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
    async fn a_change_is_stored_once_and_restores_the_group_at_another_coordinator() {
        let mut groups = Coordinator::default();
        let (sender, mut kept) = mpsc::unbounded_channel();
        let keep = move |some| {
            let sent = sender.send(some);
            async move { sent.expect("it is waited for") }
        };
        groups.own(tokio::spawn(keep_members(groups.registry(), keep)));
        let member = joins(&groups, "g").await;
        let some = kept.recv().await.expect("it changed");
        let [(name, bytes)] = &some[..] else { panic!("{some:?}") };
        assert_eq!(name, "g");

        let next = Registry::default();
        next.restore("g", bytes, SESSION).expect("it was kept");
        assert!(heartbeat(&next, "g", &member) && !heartbeat(&next, "g", &text("another")));
        assert_eq!(next.kept("g").as_ref(), Some(bytes));
        assert_eq!(next.restore("h", &bytes[..3], SESSION).map_err(|_| ()), Err(()));

        // A heartbeat changes nothing that is stored; without the group its stored form is removed.
        assert!(heartbeat(&groups, "g", &member));
        let nothing = timeout(Duration::from_secs(1), kept.recv()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        groups.visit("g", |visit| *visit.group = None);
        assert_eq!(kept.recv().await, Some(vec![("g".to_owned(), Vec::new())]));
    }
}
