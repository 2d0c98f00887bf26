//! Stores the ids that a leader learned from the log in the state of the shard, once, in parts. Ids that arrive
//! meanwhile are in the entries of their records already.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::DEDUP_IDS_PER_ENTRY;
use base::TopicId;
use machine::TopicIdsChange;

use super::scanned_ids::ScannedIds;

#[derive(Debug, Default)]
pub(super) struct Seeding(Option<RemainingIds>);

/// Ids that are not proposed yet.
#[derive(Debug)]
struct RemainingIds {
    /// Topics with their numbers of ids as of the beginning.
    topics: VecDeque<(TopicId, usize)>,
    /// Number of ids of the first topic that are proposed.
    proposed: usize,
}

impl Seeding {
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the last part is proposed.
    pub(super) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|rest| rest.topics.is_empty())
    }

    /// Adds the next part to the changes of an entry. `new_change` returns the change of a topic; `None` if its ids
    /// no longer count. Returns true with the last part.
    pub(super) fn next(
        &mut self,
        learned: &ScannedIds,
        changes: &mut BTreeMap<TopicId, TopicIdsChange>,
        new_change: impl Fn(TopicId) -> Option<TopicIdsChange>,
    ) -> bool {
        let begin = || RemainingIds { topics: learned.topics().into(), proposed: 0 };
        let rest = self.0.get_or_insert_with(begin);
        let mut room = DEDUP_IDS_PER_ENTRY;
        while let Some((topic, count)) = rest.topics.front().copied() {
            let change = changes.get_mut(&topic);
            let change = match (change, new_change(topic)) {
                (_, None) => None,
                (Some(change), _) => Some(change),
                (None, Some(new)) => Some(changes.entry(topic).or_insert(new)),
            };
            let Some(change) = change else {
                rest.topics.pop_front();
                rest.proposed = 0;
                continue;
            };
            let to = count.min(rest.proposed + room);
            change.inherited.extend(learned.part(topic, rest.proposed, to));
            room -= to - rest.proposed;
            rest.proposed = to;
            if to < count {
                return false;
            }
            rest.topics.pop_front();
            rest.proposed = 0;
        }
        true
    }
}
