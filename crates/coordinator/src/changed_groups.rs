//! Changed groups that are not stored yet, and the requests that wait for that.

use std::sync::atomic::{AtomicBool, Ordering};

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::Text;
use crate::classic::Reply;

/// Resolves once the state of a group is stored, and to an error if its coordinator ends before.
pub type StoreReceipt = oneshot::Receiver<()>;

/// Notified once the state of a group is stored. Otherwise the other end is closed.
#[derive(Debug)]
pub(crate) enum StoreWaiter {
    Answer(oneshot::Sender<Reply>, Reply),
    Stored(oneshot::Sender<()>),
}

impl StoreWaiter {
    pub(crate) fn notify(self) {
        // The requester may be gone: the group will detect that by its silence.
        match self {
            Self::Answer(answer, reply) => drop(answer.send(reply)),
            Self::Stored(stored) => drop(stored.send(())),
        }
    }
}

/// Changed groups that are not stored yet, and the requests that wait for that.
#[derive(Debug, Default)]
pub(crate) struct ChangedGroups {
    /// Whether groups are stored.
    are_kept: AtomicBool,
    groups: Mutex<UnstoredGroups>,
    some: Notify,
}

#[derive(Debug, Default)]
struct UnstoredGroups {
    changed: HashMap<Text, Vec<StoreWaiter>>,
    /// Taken out of `changed`. Their stored form will be current, unless they are in `changed` again.
    storing: HashMap<Text, Vec<StoreWaiter>>,
}

impl UnstoredGroups {
    fn due(&mut self, group: &str) -> Option<&mut Vec<StoreWaiter>> {
        let Self { changed, storing } = self;
        changed.get_mut(group).or_else(|| storing.get_mut(group))
    }
}

impl ChangedGroups {
    /// Groups are stored from now on.
    pub(crate) fn keep(&self) {
        self.are_kept.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, group: Text) {
        if !self.are_kept.load(Ordering::Relaxed) {
            return;
        }
        self.groups.lock().changed.entry(group).or_default();
        self.some.notify_one();
    }

    /// Sends a reply once the present state of the group is stored.
    pub(crate) fn answer(&self, group: &str, answer: oneshot::Sender<Reply>, reply: Reply) {
        let due = StoreWaiter::Answer(answer, reply);
        match self.groups.lock().due(group) {
            Some(all) => all.push(due),
            None => due.notify(),
        }
    }

    /// `None`: the present state of the group is stored.
    pub(crate) fn stored(&self, group: &str) -> Option<StoreReceipt> {
        let mut groups = self.groups.lock();
        let all = groups.due(group)?;
        let (sender, stored) = oneshot::channel();
        all.push(StoreWaiter::Stored(sender));
        Some(stored)
    }

    /// Takes all changed groups.
    pub(crate) async fn next(&self) -> Vec<Text> {
        loop {
            {
                let mut groups = self.groups.lock();
                if !groups.changed.is_empty() {
                    groups.storing = std::mem::take(&mut groups.changed);
                    return groups.storing.keys().cloned().collect();
                }
            }
            self.some.notified().await;
        }
    }

    /// The requests that wait for these groups to be stored, and for no later change of them.
    pub(crate) fn take_due(&self, names: &[Text]) -> Vec<StoreWaiter> {
        let mut groups = self.groups.lock();
        let due = names.iter().filter_map(|name| groups.storing.remove(name));
        due.flatten().collect()
    }
}
