//! Operators' queries and changes of lease groups.

use base::{LeaseGroupId, Offset};
use dispatch::RecordState;
use shard::append::AppendBatch;
use shard::delivery::error::{RemoveError, SettleError, TransferError};
use shard::delivery::group_backlog::depth;
use shard::delivery::handle::{DriverQuery, SettleResults, TransferResult};
use shard::delivery::inspect::Counters;
use shard::delivery::rates::{Counts, Rates};
use tokio::sync::oneshot;

use super::Driver;
use crate::groups::view::find;
use crate::waiter::{Reply, Waiter};

impl Driver {
    pub(super) fn answer_query(&mut self, query: DriverQuery) {
        // The caller may be gone: the changes stay.
        match query {
            DriverQuery::Counters { group, reply } => drop(reply.send(self.counters(group))),
            DriverQuery::Unsettled { group, partition, from, records_max, reply } => {
                drop(reply.send(self.unsettled(group, partition, from, records_max)));
            }
            DriverQuery::Leases { group, after, leases_max, reply } => {
                let leases = self.groups.get(group).map(|it| it.dispatch.leases(after, leases_max));
                drop(reply.send(leases.unwrap_or_default()));
            }
            DriverQuery::Purge { group, durable, reply } => {
                drop(reply.send(self.purge(group, durable)));
            }
            DriverQuery::Remove { group, partition, offset, durable, reply } => {
                drop(reply.send(self.remove(group, partition, offset, durable)));
            }
            DriverQuery::Free { group, partition, offsets, reply } => {
                drop(reply.send(self.free(group, partition, &offsets)));
            }
            DriverQuery::MoveAway { group, partition, offsets, batches, reply } => {
                self.move_away(group, partition, &offsets, batches, reply);
            }
        }
    }

    fn counters(&mut self, id: LeaseGroupId) -> Option<Counters> {
        let (depth, topic) = self.shard.read(|state| {
            let (group, topic) = find(state.catalog, id)?;
            let (progress, rows) = (state.rows.lease_group(group.id)?, state.rows.topic(topic.id)?);
            Some((depth(progress, rows), topic.id))
        })?;
        self.groups.on_appended(None);
        let published = self.published.per_second(topic, self.clock.now_ms());
        let now_ms = self.timeline.now_ms();
        let Some(group) = self.groups.get_mut(id) else {
            let counts = self.groups.retired_counts(id);
            let rates = Rates { published, ..Rates::default() };
            let counters = Counters { depth, ready: depth, rates, ..Counters::default() };
            return Some(with_counts(counters, counts));
        };
        group.meters.note(group.counts, now_ms, &self.totals);
        let known = group.dispatch.counters();
        let partitions = group.dispatch.partitions();
        let oldest = partitions.filter_map(|index| group.dispatch.oldest(index)?.1);
        let counters = Counters {
            depth: known.depth,
            ready: known.ready + known.blocked,
            leased: known.leased,
            leased_bytes: known.leased_bytes,
            delayed: known.delayed,
            consumers: known.consumers,
            oldest_unsettled_ms: oldest.min().map(|at| self.timeline.shifts().wall(at)),
            rates: Rates { published, ..group.meters.rates(now_ms) },
            ..Counters::default()
        };
        Some(with_counts(counters, group.counts))
    }

    /// The engine's state of a partition's unsettled records. `None`: the group does not exist.
    fn unsettled(
        &mut self,
        group: LeaseGroupId,
        partition: u32,
        from: Offset,
        records_max: usize,
    ) -> Option<Vec<dispatch::RecordInfo>> {
        if !self.groups.load(group) {
            return None;
        }
        self.groups.on_appended(None);
        let group = self.groups.get(group)?;
        Some(group.dispatch.peek(partition, from, records_max))
    }

    fn purge(
        &mut self,
        group: LeaseGroupId,
        durable: oneshot::Sender<SettleResults>,
    ) -> Result<u64, RemoveError> {
        if !self.groups.load(group) {
            return Err(RemoveError::UnknownGroup(group));
        }
        self.groups.on_appended(None);
        let purged = self.groups.get_mut(group).map_or(0, |it| it.dispatch.purge());
        self.changed_from_outside(group, durable);
        Ok(purged)
    }

    fn remove(
        &mut self,
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
        durable: oneshot::Sender<SettleResults>,
    ) -> Result<(), RemoveError> {
        if !self.groups.load(group) {
            return Err(RemoveError::UnknownGroup(group));
        }
        self.groups.on_appended(None);
        if let Some(found) = self.groups.get_mut(group) {
            found.dispatch.remove(partition, offset)?;
        }
        self.changed_from_outside(group, durable);
        Ok(())
    }

    /// An operator changed the group, and waits until that is durable.
    fn changed_from_outside(
        &mut self,
        group: LeaseGroupId,
        durable: oneshot::Sender<SettleResults>,
    ) {
        if let Some(found) = self.groups.get_mut(group) {
            self.commits.note_changed(found);
        }
        self.groups.enqueue(group);
        let reply = Reply::Settles(vec![Ok(())], durable.into());
        self.commits.wait(Waiter::new(reply, vec![group], Vec::new()));
    }

    /// Whether each of these records is neither settled nor leased. `None`: the group does not exist.
    fn free(
        &mut self,
        group: LeaseGroupId,
        partition: u32,
        offsets: &[Offset],
    ) -> Option<Vec<bool>> {
        if !self.groups.load(group) {
            return None;
        }
        self.groups.on_appended(None);
        let group = self.groups.get(group)?;
        let free = offsets.iter().map(|&offset| {
            let known = group.dispatch.peek(partition, offset, 1);
            known.first().is_some_and(|known| {
                let busy = matches!(
                    known.state,
                    RecordState::Leased { .. } | RecordState::Dead { .. } | RecordState::Settling
                );
                known.offset == offset && !busy
            })
        });
        Some(free.collect())
    }

    /// Settles records that are not leased, and appends, in one log entry.
    fn move_away(
        &mut self,
        id: LeaseGroupId,
        partition: u32,
        offsets: &[Offset],
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<TransferResult>,
    ) {
        self.commit_all();
        let free = self.free(id, partition, offsets);
        if let Some(item) = free.and_then(|free| free.iter().position(|free| !free)) {
            let source = SettleError::NotLeased;
            let _ = reply.send(Err(TransferError::Settle { item, source }));
            return;
        }
        if let Some(group) = self.groups.get_mut(id) {
            for &offset in offsets {
                // It was free a moment ago.
                let _ = group.dispatch.remove(partition, offset);
            }
        }
        self.transfer_group(id, batches, reply);
    }
}

fn with_counts(counters: Counters, counts: Counts) -> Counters {
    let Counts { delivered, redelivered, settled, dead_letters } = counts;
    Counters { delivered, redelivered, settled, dead_letters, ..counters }
}
