//! Due records that must be looked up again, because the wheel kept only time and place.
//!
//! The records due longest should be delivered first, yet one read should find many. Lookups are
//! therefore grouped in *turns*: records that leave the wheel during one turn form the next, and
//! within a turn they are in order of offset. The more records a turn has, the closer they are to
//! each other. It is bounded, so that a record waits for at most two turns.

use std::collections::VecDeque;

use base::Offset;

/// Maximum number of records of a turn: twice as many as are loaded at a time.
pub(crate) const TURN_RECORDS_MAX: usize = 8_192;

#[derive(Debug, Default)]
pub(crate) struct DueQueue {
    /// The first is being looked up, the last accepts new records.
    turns: VecDeque<DueRound>,
    records: usize,
}

#[derive(Debug, Default)]
struct DueRound {
    offsets: VecDeque<Offset>,
    /// A closed turn is sorted by offset and takes no more records; an open one is in order of arrival.
    closed: bool,
}

impl DueRound {
    fn close(&mut self) {
        if !self.closed {
            self.offsets.make_contiguous().sort_unstable();
            self.closed = true;
        }
    }

    fn find(&self, offset: Offset) -> Option<usize> {
        match self.closed {
            true => self.offsets.binary_search(&offset).ok(),
            false => self.offsets.iter().position(|&known| known == offset),
        }
    }
}

impl DueQueue {
    pub(crate) const fn new() -> Self {
        Self { turns: VecDeque::new(), records: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.records
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The record became due.
    pub(crate) fn push(&mut self, offset: Offset) {
        let open = |turn: &DueRound| !turn.closed && turn.offsets.len() < TURN_RECORDS_MAX;
        if !self.turns.back().is_some_and(open) {
            if let Some(full) = self.turns.back_mut() {
                full.close();
            }
            self.turns.push_back(DueRound::default());
        }
        self.turns.back_mut().expect("there is one now").offsets.push_back(offset);
        self.records += 1;
    }

    /// The record was looked up without room for it: it returns to the current turn.
    pub(crate) fn put_back(&mut self, offset: Offset) {
        let Some(first) = self.turns.front_mut() else { return self.push(offset) };
        let place = match first.closed {
            true => first.offsets.partition_point(|&known| known < offset),
            false => first.offsets.len(),
        };
        first.offsets.insert(place, offset);
        self.records += 1;
    }

    /// The next range to look up: from the first of the turn to the last that follows in steps of
    /// at most `near`, `span` offsets at most. The turn accepts no more records.
    pub(crate) fn next(&mut self, near: u64, span: u64) -> Option<(Offset, Offset)> {
        let turn = self.turns.front_mut()?;
        turn.close();
        let &first = turn.offsets.front()?;
        let most = first.saturating_add(span.max(1));
        let mut reached = first + 1;
        for &next in turn.offsets.iter().skip(1) {
            if next >= most || next.saturating_sub(reached) > near {
                break;
            }
            reached = next + 1;
        }
        Some((first, reached))
    }

    /// Removes a record if it is in the current turn.
    pub(crate) fn take(&mut self, offset: Offset) -> bool {
        let Some(turn) = self.turns.front_mut().filter(|turn| turn.closed) else { return false };
        if turn.offsets.front() == Some(&offset) {
            turn.offsets.pop_front();
        } else if let Some(place) = turn.find(offset) {
            turn.offsets.remove(place);
        } else {
            return false;
        }
        self.records -= 1;
        if turn.offsets.is_empty() {
            self.turns.pop_front();
        }
        true
    }

    /// Removes the records in `first..end`, and returns them as ranges of one each.
    pub(crate) fn take_range(&mut self, first: Offset, end: Offset) -> Vec<(Offset, Offset)> {
        let mut taken = Vec::new();
        for turn in &mut self.turns {
            if turn.closed {
                let begin = turn.offsets.partition_point(|&offset| offset < first);
                let end = turn.offsets.partition_point(|&offset| offset < end);
                taken.extend(turn.offsets.drain(begin..end.max(begin)));
            } else {
                turn.offsets.retain(|offset| {
                    let inside = (first..end).contains(offset);
                    if inside {
                        taken.push(*offset);
                    }
                    !inside
                });
            }
        }
        self.turns.retain(|turn| !turn.offsets.is_empty());
        self.records -= taken.len();
        taken.into_iter().map(|offset| (offset, offset + 1)).collect()
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        self.turns.iter().any(|turn| turn.find(offset).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(offsets: impl IntoIterator<Item = Offset>) -> DueQueue {
        let mut due = DueQueue::default();
        offsets.into_iter().for_each(|offset| due.push(offset));
        due
    }

    #[test]
    fn records_due_during_a_turn_belong_to_the_next_turn() {
        let mut due = due([90, 50, 10]);
        assert_eq!(due.next(0, 99), Some((10, 11)));
        due.push(5);
        due.push(60);
        assert!(!due.take(5), "it is not its turn");
        for offset in [10, 50, 90, 5, 60] {
            assert_eq!(due.next(0, 99), Some((offset, offset + 1)));
            assert!(due.take(offset));
        }
        assert!(due.is_empty() && due.turns.is_empty());
    }

    #[test]
    fn turn_is_bounded_however_many_records_are_due() {
        let mut due = due((0..20_000).rev());
        assert_eq!((due.len(), due.turns.len()), (20_000, 3));
        assert_eq!(due.next(0, 4_096), Some((20_000 - 8_192, 20_000 - 4_096)));
    }

    #[test]
    fn near_offsets_are_looked_up_together_up_to_a_span() {
        let mut due = due([7, 3, 5, 20, 100]);
        assert_eq!(due.next(1, 99), Some((3, 8)));
        assert_eq!(due.next(12, 99), Some((3, 21)));
        assert_eq!(due.next(99, 4), Some((3, 6)));
        assert_eq!(due.next(99, 999), Some((3, 101)));
    }

    #[test]
    fn due_record_is_found_and_removed_in_any_turn() {
        let mut due = due([90, 50]);
        due.next(0, 1);
        due.push(70);
        due.push(10);
        assert!(due.contains(70) && due.contains(90) && !due.contains(71));
        assert_eq!(due.take_range(10, 11), [(10, 11)]);
        assert!(!due.contains(10));
        assert_eq!(due.take_range(60, 91), [(90, 91), (70, 71)]);
        due.put_back(20);
        assert_eq!((due.next(0, 99), due.len()), (Some((20, 21)), 2));
    }
}
