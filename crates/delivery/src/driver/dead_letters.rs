//! Appending of dead letters: of groups, and of batches that were refused because the topic is full.

use base::LeaseGroupId;
use futures_util::FutureExt;
use shard::error::Unavailable;
use shard::request::UnitReply;
use tokio::time::Instant;

use super::{Driver, Purpose};
use crate::commit::settles::settles_of;
use crate::commit::{FinishedCommit, Unit};
use crate::dead_lettering::{DeadLettering, FirstLetters, cause};
use crate::dead_letters::PendingLetter;
use crate::overflow::{NextOverflow, OverflowContext, Overflowed};

impl Driver {
    /// Queues dead letters of a group to be appended.
    pub(super) fn add_dead(&mut self, id: LeaseGroupId, dead: Vec<PendingLetter>) {
        if !dead.is_empty()
            && let Some(group) = self.groups.get_mut(id)
        {
            group.dead.add(dead);
            self.dead_letters.add(id);
        }
    }

    /// Starts a request for each group with dead letters and none in flight.
    pub(super) fn start_dead_lettering(&mut self) {
        for id in self.dead_letters.take_due(&self.groups) {
            self.dead_letter_first(id);
        }
    }

    /// Appends the first of a group's dead letters: those in memory, up to the limits of one entry.
    fn dead_letter_first(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let Some(target) = self.dead_letters.target(&group.config) else {
            return self.dead_letters.wait_until(group.dead.postpone(Instant::now()));
        };
        let time_ms = self.clock.now_ms();
        let FirstLetters { batches, settled, unread } =
            FirstLetters::of(group, &target, &mut self.reader, time_ms);
        if settled.is_empty() {
            if let Some((partition, offset)) = unread {
                self.reader.read_record(partition, offset);
            }
            return;
        }
        let (engine, count) = (group.engine, settled.len());
        group.dead.on_requested();
        let purpose = Purpose::DeadLettering(DeadLettering { group: id, engine, count });
        let (settles, batches) = (settles_of(id, settled), batches.batches());
        let unit = Unit { settles, batches, ..Unit::default() };
        self.commits.execute_unit(&mut self.groups, vec![id], unit, purpose);
    }

    /// The request that appends dead letters has ended. True if the group's engine must be rebuilt, because it
    /// counted the records of a refused entry as settled.
    pub(super) fn on_dead_lettered(
        &mut self,
        in_flight: DeadLettering,
        result: Result<UnitReply, Unavailable>,
    ) -> bool {
        let DeadLettering { group: id, engine, count } = in_flight;
        let Some(group) = self.groups.get_mut(id) else { return false };
        let (refused, sent) = match result {
            Ok(entered) => (cause(entered.rows), entered.sent),
            Err(unavailable) => (Some(unavailable.into()), Vec::new()),
        };
        if group.engine != engine {
            // The new engine counted them as settled, since their entry was in flight.
            return refused.is_some();
        }
        if let Some(why) = refused {
            tracing::warn!(group = %group.name, topic = %group.topic_name, %why,
                "dead letters could not be appended; trying again");
            group.dead.on_refused(why, Instant::now());
        } else {
            group.dead.on_sent(sent);
            group.on_dead_lettered(count);
            self.answer_dead_lettered(id);
            self.groups.enqueue(id);
        }
        false
    }

    /// Replies to rejects whose dead letters are appended.
    pub(super) fn answer_dead_lettered(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get_mut(id) else { return };
        for waiter in group.dead.take_ready() {
            self.answer(waiter);
        }
    }

    /// Makes dead letters of the next refused records; replies to the producer after the last.
    pub(super) fn dead_letter_refused(&mut self, overflowed: Overflowed) {
        let places = OverflowContext {
            shard: &self.shard,
            routers: self.dead_letters.routers(),
            time_ms: self.clock.now_ms(),
        };
        match overflowed.next(&places) {
            NextOverflow::Answer(overflowed) => overflowed.answer(),
            NextOverflow::Append(batches, overflowed) => {
                // No record is settled with them: each batch goes to the log of its own partition.
                let appended = self.places.append(batches);
                let go_on = |()| FinishedCommit::without_request(Purpose::Overflow(overflowed));
                self.commits.push(appended.map(go_on).boxed());
            }
            NextOverflow::Unpack(partition, bytes, overflowed) => {
                let unpacked = overflowed.unpack(partition, bytes, self.reader.cpu().clone());
                let go_on =
                    |overflowed| FinishedCommit::without_request(Purpose::Overflow(overflowed));
                self.commits.push(unpacked.map(go_on).boxed());
            }
        }
    }
}
