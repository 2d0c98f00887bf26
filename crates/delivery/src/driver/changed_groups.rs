//! Groups that were changed by something other than a settle, or whose engine is rebuilt.

use std::collections::BTreeSet;

use base::LeaseGroupId;
use dispatch::SessionId;
use shard::delivery::divided_credit::Notice;
use shard::delivery::error::TakeError;
use shard::delivery::event::GoneReason;
use shard::error::Unavailable;

use super::Driver;
use crate::groups::GroupEffect;

impl Driver {
    /// The group was created, deleted or changed by something other than a settle, or its topic changed.
    pub(super) fn on_moved(&mut self, id: LeaseGroupId, partition: u32, sought: bool) {
        match self.groups.on_moved(id) {
            GroupEffect::Deleted => self.on_deleted(id),
            GroupEffect::Changed { .. } if sought => {
                if self.groups.on_sought(id, partition) {
                    self.seek(id);
                }
            }
            GroupEffect::Changed { grown } => {
                self.groups.refresh_log_starts(id, partition);
                if grown {
                    self.send_grown(id);
                }
            }
            GroupEffect::Elsewhere => {}
        }
        self.groups.enqueue(id);
    }

    /// Notifies sessions: the topic may have partitions in more shards now.
    fn send_grown(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get(id) else { return };
        let sessions: BTreeSet<SessionId> = group.consumers.values().map(|it| it.session).collect();
        for session in sessions {
            self.sessions.notify(session, Notice::Grown { group: id });
        }
    }

    fn on_deleted(&mut self, id: LeaseGroupId) {
        self.note_steps(id);
        let Some(mut group) = self.groups.delete(id) else { return };
        self.dead_letters.remove(id);
        let now_ms = self.timeline.now_ms();
        let users: Vec<SessionId> = self.sessions.users_of(id).collect();
        for session in users {
            group.dispatch.end_session(session, now_ms);
        }
        group.dispatch.return_to(&mut self.sessions.pools);
        self.commits.forget_changes(id);
        for (consumer, joined) in group.consumers {
            self.sessions.send_gone(joined.session, consumer, GoneReason::Deleted);
        }
        for taker in group.takers {
            let _ = taker.reply.send(Err(TakeError::UnknownGroup(id)));
        }
        // Deleting the group settles all of its records in effect.
        for waiter in group.dead.take_waiters() {
            self.answer(waiter);
        }
        self.sessions.forget_group(id);
    }

    /// Rebuilds the engine from the durable state and settles in flight: leases are void, consumers stay.
    pub(super) fn renew(&mut self, id: LeaseGroupId) {
        self.note_steps(id);
        let now_ms = self.timeline.now_ms();
        let sessions = &mut self.sessions;
        let renewed = self.groups.renew(id, |old| {
            // The credit of its leases is returned to the sessions' pools.
            for session in sessions.users_of(id) {
                old.dispatch.end_session(session, now_ms);
            }
            old.dispatch.return_to(&mut sessions.pools);
        });
        let Some(mut old) = renewed else { return };
        self.commits.forget_changes(id);
        // Their settles are lost with the engine, also those not yet in flight.
        old.dead.fail_waiters(&Unavailable::NotLeader);
        for waiter in self.commits.take_waiters_of(id) {
            waiter.fail(&Unavailable::NotLeader);
        }
    }

    /// Resets the group to the positions that it was sought to. Rejects of its dead letters are acknowledged:
    /// the seek came after them.
    pub(super) fn seek(&mut self, id: LeaseGroupId) {
        self.groups.seek(id);
        self.answer_dead_lettered(id);
        self.groups.enqueue(id);
    }
}
