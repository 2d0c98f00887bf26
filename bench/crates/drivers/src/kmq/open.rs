//! The open messages of a partition and their deadlines, as a tracker knows them from the markers
//! that it has read.

use std::collections::{BTreeSet, HashMap};

use super::marker::{Key, Marker};

/// For this long after a marker, the markers define the time: pending end markers may follow in the
/// topic. After that all markers have been read, and the clock defines the time.
const SILENCE_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Offset of its start marker in the markers topic.
    marker_offset: i64,
    /// `None`: a redelivery is in progress.
    due_ms: Option<i64>,
}

/// Open messages of one partition.
#[derive(Debug)]
pub(super) struct OpenMessages {
    open: HashMap<Key, Open>,
    by_offset: BTreeSet<(i64, Key)>,
    by_due: BTreeSet<(i64, Key)>,
    /// End of the topic when this tracker was assigned the partition. Until it is reached, open
    /// messages may have ended long ago.
    already_there: i64,
    /// Offset of the next marker.
    position: i64,
    /// Timestamp of the last marker, and its arrival.
    latest: Option<(i64, i64)>,
}

impl OpenMessages {
    /// `end`: end offset of the topic's partition when it was assigned to this tracker.
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

    /// Applies a marker with its offset and timestamp, at the time `now_ms`.
    pub(super) fn read(
        &mut self,
        (key, marker): (Key, Marker),
        marker_offset: i64,
        written_ms: i64,
        now_ms: i64,
    ) {
        self.position = marker_offset + 1;
        self.latest = Some((written_ms, now_ms));
        // A second start belongs to a second delivery; the later one counts.
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

    /// Takes the messages due for redelivery, the earliest first; each is returned once.
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

    /// Schedules another redelivery at this time, after a failed one.
    pub(super) fn retry(&mut self, key: Key, at_ms: i64) {
        let Some(open) = self.open.get_mut(&key) else { return };
        open.due_ms = Some(at_ms);
        self.by_due.insert((at_ms, key));
    }

    /// Offset from which the next tracker must read to find all open messages.
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
    fn message_not_ended_in_time_is_due_once() {
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
    fn marker_time_applies_while_markers_arrive() {
        let mut messages = OpenMessages::new(0);
        messages.read((key(1), START), 0, 1_000, 5_000);
        // The clock is far ahead of the markers, so its end marker may follow.
        assert!(messages.due(5_500, 10).is_empty());
        messages.read((key(2), START), 1, 1_100, 5_600);
        assert_eq!(messages.due(5_700, 10), [key(1)]);
        // No marker arrives for a while.
        assert_eq!(messages.due(6_600, 10), [key(2)]);
    }

    #[test]
    fn message_is_not_due_before_the_existing_markers_are_read() {
        let mut messages = OpenMessages::new(2);
        messages.read((key(1), START), 0, 1_000, 1_000);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
        messages.read((key(1), Marker::End), 1, 1_001, 1_001);
        assert!(messages.due(LONG_AFTER, 10).is_empty());
    }

    #[test]
    fn second_start_restarts_the_lease() {
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
    fn open_messages_hold_back_the_commit() {
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
    fn failed_redelivery_is_retried() {
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
