//! Recording of steps of records, and queries for their state.

use std::sync::Arc;

use base::LeaseGroupId;
use shard::delivery::history::{FeedEvent, FeedEventKind, HistoryQuery, UnsettledRecord};
use shard::delivery::inspect::stands;
use shard::delivery::trace_queue::{TracedStep, share};

use super::Driver;

impl Driver {
    /// Records the steps of a group since the last call.
    pub(super) fn note_steps(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get_mut(id).filter(|group| group.dispatch.has_steps()) else {
            return;
        };
        let at_ms = self.clock.now_ms();
        let share = share(&group.topic_name, &group.topic_config);
        let (topic_name, group_name) = (&group.topic_name, &group.name);
        let (topic, traces) = (group.topic, &self.traces);
        let mut ring = self.history.lock();
        group.dispatch.take_steps(|step| {
            if let Some(per_million) = share {
                let (topic_name, group_name) = (Arc::clone(topic_name), Arc::clone(group_name));
                traces.send(TracedStep {
                    at_ms,
                    topic,
                    topic_name,
                    group: id,
                    group_name,
                    per_million,
                    step,
                });
            }
            ring.add(at_ms, id, step);
            if let Some(feed) = &self.feed {
                feed.send(FeedEvent { at_ms, what: FeedEventKind::Stepped { group: id, step } });
            }
        });
    }

    pub(super) fn note_steps_of_all(&mut self) {
        let with_steps = self.groups.iter().filter(|group| group.dispatch.has_steps());
        let groups: Vec<LeaseGroupId> = with_steps.map(|group| group.id).collect();
        groups.into_iter().for_each(|id| self.note_steps(id));
    }

    /// The record's state in each group; `None` if it is settled there or the group is gone.
    pub(super) fn record_states(&mut self, query: &HistoryQuery) -> Vec<Option<UnsettledRecord>> {
        let HistoryQuery { groups, partition, offset } = query;
        for id in groups {
            self.groups.load(*id);
        }
        self.groups.on_appended(None);
        let shifts = self.timeline.shifts();
        let standing = |id: &LeaseGroupId| {
            // Makes the latest steps visible to the following query of the ring.
            self.note_steps(*id);
            let (known, behind) = self.groups.get(*id)?.dispatch.standing(*partition, *offset)?;
            let (state, attempts) = (stands(known.state, &shifts), known.attempts);
            Some(UnsettledRecord { state, attempts, behind })
        };
        groups.iter().map(standing).collect()
    }
}
