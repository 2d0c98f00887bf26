//! Which messages of a partition are in somebody's hands, and until when: what a tracker knows from
//! the markers that it read.

use std::collections::{BTreeSet, HashMap};

use super::marker::{Key, Marker};

/// For so long after a marker came, time is what the markers say: their end markers may be behind
/// in the topic. After that, all of them have been read, and time is the clock's.
const SILENCE_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Of its start marker in the markers topic.
    marker_offset: i64,
    /// `None`: it is being redelivered.
    due_ms: Option<i64>,
}

/// Of one partition.
#[derive(Debug)]
pub(super) struct OpenMessages {
    open: HashMap<Key, Open>,
    by_offset: BTreeSet<(i64, Key)>,
    by_due: BTreeSet<(i64, Key)>,
    /// What was in the topic when this tracker got the partition: until it is read, what is open
    /// may have ended long ago.
    already_there: i64,
    /// The marker to be read next.
    position: i64,
    /// The time of the last marker, and when it came.
    latest: Option<(i64, i64)>,
}

impl OpenMessages {
    /// `end`: where the topic's partition ended when it was given to this tracker.
    pub(super) fn new(end: i64) -> Self {
        Self {
            open: HashMap::new(),
            by_offset: BTreeSet::new(),
            by_due: BTreeSet::new(),
            already_there: end,
            position: 0,
            latest: None,
        }
    }

    /// A marker, where it was, when it was written, and the time now.
    pub(super) fn read(
        &mut self,
        (key, marker): (Key, Marker),
        marker_offset: i64,
        written_ms: i64,
        now_ms: i64,
    ) {
        self.position = marker_offset + 1;
        self.latest = Some((written_ms, now_ms));
        // A second start is of a message that was received twice: the later one counts.
        self.ended(key);
        if let Marker::Start { redeliver_after_ms } = marker {
            let due_ms = written_ms + redeliver_after_ms;
            self.open.insert(key, Open { marker_offset, due_ms: Some(due_ms) });
            self.by_offset.insert((marker_offset, key));
            self.by_due.insert((due_ms, key));
        }
    }

    pub(super) fn ended(&mut self, key: Key) {
        let Some(open) = self.open.remove(&key) else { return };
        self.by_offset.remove(&(open.marker_offset, key));
        if let Some(due_ms) = open.due_ms {
            self.by_due.remove(&(due_ms, key));
        }
    }

    /// What has to be redelivered now, the earliest first; each is given once.
    pub(super) fn due(&mut self, now_ms: i64, max: usize) -> Vec<Key> {
        let mut due = Vec::new();
        let Some((latest_ms, came_ms)) = self.latest else { return due };
        if self.position < self.already_there {
            return due;
        }
        let now_ms = if now_ms - came_ms < SILENCE_MS { latest_ms } else { now_ms };
        while due.len() < max
            && let Some(&(due_ms, key)) = self.by_due.first()
            && due_ms <= now_ms
        {
            self.by_due.pop_first();
            if let Some(open) = self.open.get_mut(&key) {
                open.due_ms = None;
            }
            due.push(key);
        }
        due
    }

    /// Its redelivery failed: once more, at this time.
    pub(super) fn retry(&mut self, key: Key, at_ms: i64) {
        let Some(open) = self.open.get_mut(&key) else { return };
        open.due_ms = Some(at_ms);
        self.by_due.insert((at_ms, key));
    }

    /// From where the next tracker must read to know of all that is open.
    pub(super) fn to_commit(&self) -> i64 {
        self.by_offset.first().map_or(self.position, |(offset, _)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Marker = Marker::Start { redeliver_after_ms: 100 };
    const LONG_AFTER: i64 = 1_000_000;

    fn key(offset: i64) -> Key {
        Key { partition: 0, offset }
    }

    #[test]
    fn what_did_not_end_in_time_is_due_once() {
        let mut messages = OpenMessages::new(0);
        for (at, offset) in [(0, 10), (1, 11), (2, 12)] {
            messages.read((key(offset), START), at, 1_000 + at, 1_000 + at);
        }
        messages.read((key(11), Marker::End), 3, 1_050, 1_050);
        assert!(messages.due(1_060, 10).is_empty());
        assert_eq!(messages.due(LONG_AFTER, 1), [key(10)]);
        assert_eq!(messages.due(LONG_AFTER, 10), [key(12)]);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
    }

    #[test]
    fn while_markers_come_their_time_counts() {
        let mut messages = OpenMessages::new(0);
        messages.read((key(1), START), 0, 1_000, 5_000);
        // The clock is far ahead of what was read: its end may be behind.
        assert!(messages.due(5_500, 10).is_empty());
        messages.read((key(2), START), 1, 1_100, 5_600);
        assert_eq!(messages.due(5_700, 10), [key(1)]);
        // Nothing came for a while.
        assert_eq!(messages.due(6_600, 10), [key(2)]);
    }

    #[test]
    fn nothing_is_due_before_all_that_was_there_is_read() {
        let mut messages = OpenMessages::new(2);
        messages.read((key(1), START), 0, 1_000, 1_000);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
        messages.read((key(1), Marker::End), 1, 1_001, 1_001);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
    }

    #[test]
    fn a_second_start_counts_from_then_on() {
        let mut messages = OpenMessages::new(0);
        messages.read((key(1), START), 0, 1_000, 1_000);
        messages.read((key(1), START), 1, 1_090, 1_090);
        assert_eq!(messages.to_commit(), 1);
        messages.read((key(2), START), 2, 1_150, 1_150);
        assert!(messages.due(1_150, 10).is_empty());
        messages.read((key(3), START), 3, 1_190, 1_190);
        assert_eq!(messages.due(1_190, 10), [key(1)]);
    }

    #[test]
    fn what_is_open_or_being_redelivered_is_not_committed() {
        let mut messages = OpenMessages::new(0);
        assert_eq!(messages.to_commit(), 0);
        for (at, offset) in [(0, 10), (1, 11)] {
            messages.read((key(offset), START), at, 1_000, 1_000);
        }
        messages.read((key(11), Marker::End), 2, 1_000, 1_000);
        assert_eq!(messages.due(LONG_AFTER, 10), [key(10)]);
        assert_eq!(messages.to_commit(), 0);
        messages.ended(key(10));
        assert_eq!(messages.to_commit(), 3);
    }

    #[test]
    fn a_redelivery_that_failed_is_tried_again() {
        let mut messages = OpenMessages::new(0);
        messages.read((key(1), START), 0, 1_000, 1_000);
        assert_eq!(messages.due(LONG_AFTER, 10), [key(1)]);
        messages.retry(key(1), LONG_AFTER + 1_000);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
        assert_eq!(messages.due(LONG_AFTER + 1_000, 10), [key(1)]);
        // It ended meanwhile.
        messages.ended(key(1));
        messages.retry(key(1), LONG_AFTER + 2_000);
        assert!(messages.due(LONG_AFTER + 9_000, 10).is_empty());
    }
}
