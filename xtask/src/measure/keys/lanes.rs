//! Rules of a queue that is ordered by key: one delivery at a time for each key, and the next record only after the
//! previous one has ended. Pure.

use std::fmt::Display;

/// A record's place: its key, and its number among the records of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySequence {
    pub(super) key: u32,
    pub(super) sequence: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct KeyProgress {
    /// Sequence number of the next record.
    next: u32,
    /// Deliveries of that record so far.
    attempts: u16,
    held: bool,
}

#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<KeyProgress>,
    attempts_max: u16,
    ended: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    OutOfOrder { came: KeySequence, due: u32 },
    TwoAtATime { came: KeySequence },
    Foreign { key: u32 },
}

impl Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Violation::OutOfOrder { came: KeySequence { key, sequence }, due } => {
                write!(f, "record {sequence} of key {key} came where record {due} was due")
            }
            Violation::TwoAtATime { came: KeySequence { key, sequence } } => {
                write!(f, "record {sequence} of key {key} came while one of the key was held")
            }
            Violation::Foreign { key } => write!(f, "a record of key {key}, which nobody sent"),
        }
    }
}

impl Lanes {
    pub(super) fn new(keys: usize, attempts_max: u16) -> Lanes {
        Lanes { lanes: vec![KeyProgress::default(); keys], attempts_max, ended: 0 }
    }

    /// Number of records that were accepted, or dead-lettered after their last attempt.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// The same for one key.
    pub(super) fn ended_of(&self, key: u32) -> u32 {
        self.lanes[key as usize].next
    }

    pub(super) fn deliver(&mut self, came: KeySequence) -> Result<(), Violation> {
        let lane = self.lanes.get_mut(came.key as usize);
        let lane = lane.ok_or(Violation::Foreign { key: came.key })?;
        if lane.held {
            return Err(Violation::TwoAtATime { came });
        }
        if lane.next != came.sequence {
            return Err(Violation::OutOfOrder { came, due: lane.next });
        }
        lane.held = true;
        lane.attempts += 1;
        Ok(())
    }

    /// Call before an accept: from now on the next record may be delivered.
    pub(super) fn accept(&mut self, place: KeySequence) {
        let lane = &mut self.lanes[place.key as usize];
        *lane = KeyProgress { next: lane.next + 1, ..KeyProgress::default() };
        self.ended += 1;
    }

    /// Call before a release: the record is redelivered, unless this was its last attempt.
    pub(super) fn release(&mut self, place: KeySequence) {
        let lane = &mut self.lanes[place.key as usize];
        lane.held = false;
        if lane.attempts == self.attempts_max {
            self.accept(place);
        }
    }

    /// The key's dead letters were sent back to the queue: they are delivered again in order.
    pub(super) fn redrive(&mut self, key: u32) {
        self.lanes[key as usize] = KeyProgress::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: KeySequence = KeySequence { key: 1, sequence: 0 };
    const SECOND: KeySequence = KeySequence { key: 1, sequence: 1 };

    #[test]
    fn next_record_of_a_key_may_come_once_the_previous_one_has_ended() {
        let mut lanes = Lanes::new(2, 2);
        assert_eq!(lanes.deliver(SECOND), Err(Violation::OutOfOrder { came: SECOND, due: 0 }));
        lanes.deliver(FIRST).unwrap();
        assert_eq!(lanes.deliver(SECOND), Err(Violation::TwoAtATime { came: SECOND }));
        lanes.release(FIRST);
        assert!(lanes.deliver(SECOND).is_err());
        lanes.deliver(FIRST).unwrap();
        lanes.accept(FIRST);
        assert!(lanes.deliver(FIRST).is_err());
        lanes.deliver(SECOND).unwrap();
    }

    #[test]
    fn record_frees_its_key_after_the_last_attempt() {
        let mut lanes = Lanes::new(2, 2);
        for _ in 0..2 {
            lanes.deliver(FIRST).unwrap();
            lanes.release(FIRST);
        }
        assert_eq!((lanes.ended(), lanes.ended_of(1)), (1, 1));
        lanes.deliver(SECOND).unwrap();
        lanes.redrive(1);
        lanes.deliver(FIRST).unwrap();
    }
}
