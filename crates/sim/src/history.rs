//! Sent and acknowledged records, and the state that a reader must find:
//!
//! * every acknowledged record, at its offset, as it was sent;
//! * offsets without a gap, from 0;
//! * no record that was never sent, and none twice;
//! * of one producer in one partition, the records in the order in which it sent them. Exceptions are those that
//!   it gave up without a reply, which a node may still have appended later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Sender of a record, and its number among the sender's records. It is the record's value, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SentRecord {
    pub producer: u32,
    pub number: u32,
}

/// The value of a record, padded so that torn or mixed bytes are detected.
pub fn sent_value(sent: SentRecord, padding: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(8 + padding);
    value.extend_from_slice(&sent.producer.to_be_bytes());
    value.extend_from_slice(&sent.number.to_be_bytes());
    value.resize(8 + padding, sent.number as u8);
    value
}

/// The sender of this value; `None` if it was never sent, or was changed.
pub fn sent_of(value: &[u8]) -> Option<SentRecord> {
    let (producer, rest) = value.split_first_chunk()?;
    let (number, padding) = rest.split_first_chunk()?;
    let number = u32::from_be_bytes(*number);
    let intact = padding.iter().all(|byte| *byte == number as u8);
    intact.then_some(SentRecord { producer: u32::from_be_bytes(*producer), number })
}

#[derive(Debug, Default)]
pub struct History {
    /// Partition of each record that was ever sent.
    sent: BTreeMap<SentRecord, u32>,
    acknowledged: BTreeMap<(u32, u64), SentRecord>,
    given_up: BTreeSet<SentRecord>,
}

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    Lost { partition: u32, offset: u64, sent: SentRecord },
    Changed { partition: u32, offset: u64, sent: SentRecord, found: Option<SentRecord> },
    Gap { partition: u32, expected: u64, found: u64 },
    NeverSent { partition: u32, offset: u64 },
    Twice { partition: u32, offset: u64, sent: SentRecord },
    OutOfOrder { partition: u32, offset: u64, sent: SentRecord, after: u32 },
}

impl History {
    pub fn send(&mut self, sent: SentRecord, partition: u32) {
        self.sent.insert(sent, partition);
    }

    pub fn acknowledge(&mut self, sent: SentRecord, offset: u64) {
        let partition = self.sent[&sent];
        self.acknowledged.insert((partition, offset), sent);
    }

    /// Its producer continues without a reply. A node may append the record much later: behind records sent after
    /// it.
    pub fn abandon(&mut self, sent: SentRecord) {
        self.given_up.insert(sent);
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Offset after the last acknowledged record of a partition.
    pub fn acknowledged_end(&self, partition: u32) -> u64 {
        let mut of = self.acknowledged.range((partition, 0)..(partition + 1, 0));
        of.next_back().map_or(0, |(&(_, offset), _)| offset + 1)
    }

    /// Checks the records that a reader found somewhere in a partition: each record was sent, and is the
    /// acknowledged one at its offset.
    pub fn check_some(
        &self,
        partition: u32,
        found: &[(u64, Option<SentRecord>)],
    ) -> Result<(), Violation> {
        for &(offset, found) in found {
            if let Some(&sent) = self.acknowledged.get(&(partition, offset))
                && found != Some(sent)
            {
                return Err(Violation::Changed { partition, offset, sent, found });
            }
            if found.is_none_or(|sent| self.sent.get(&sent) != Some(&partition)) {
                return Err(Violation::NeverSent { partition, offset });
            }
        }
        Ok(())
    }

    /// Checks all records that a reader found in a partition, in the order in which they were found. A value that
    /// was never sent is `None`.
    pub fn check(
        &self,
        partition: u32,
        found: &[(u64, Option<SentRecord>)],
    ) -> Result<(), Violation> {
        let mut last_of: BTreeMap<u32, u32> = BTreeMap::new();
        let mut late: BTreeSet<SentRecord> = BTreeSet::new();
        for (expected, &(offset, sent)) in (0_u64..).zip(found) {
            if offset != expected {
                return Err(Violation::Gap { partition, expected, found: offset });
            }
            let known = sent.filter(|sent| self.sent.get(sent) == Some(&partition));
            let Some(sent) = known else { return Err(Violation::NeverSent { partition, offset }) };
            if self.given_up.contains(&sent) {
                if !late.insert(sent) {
                    return Err(Violation::Twice { partition, offset, sent });
                }
                continue;
            }
            match last_of.insert(sent.producer, sent.number) {
                Some(last) if last == sent.number => {
                    return Err(Violation::Twice { partition, offset, sent });
                }
                Some(last) if last > sent.number => {
                    return Err(Violation::OutOfOrder { partition, offset, sent, after: last });
                }
                _ => {}
            }
        }
        for (&(_, offset), &sent) in self.acknowledged.range((partition, 0)..(partition + 1, 0)) {
            match found.get(offset as usize) {
                None => return Err(Violation::Lost { partition, offset, sent }),
                Some((_, found)) if *found != Some(sent) => {
                    return Err(Violation::Changed { partition, offset, sent, found: *found });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant violated: {self:?}")
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sent(producer: u32, number: u32) -> SentRecord {
        SentRecord { producer, number }
    }

    fn history() -> History {
        let mut history = History::default();
        for number in 0..3 {
            history.send(sent(1, number), 0);
        }
        history.acknowledge(sent(1, 0), 0);
        history.acknowledge(sent(1, 1), 1);
        history
    }

    /// Checks the checker itself: it must detect each kind of violation.
    #[test]
    fn every_kind_of_violation_is_detected() {
        let history = history();
        let (a, b, c) = (Some(sent(1, 0)), Some(sent(1, 1)), Some(sent(1, 2)));
        assert_eq!(history.check(0, &[(0, a), (1, b)]), Ok(()));
        assert_eq!(history.check(0, &[(0, a), (1, b), (2, c)]), Ok(()));
        let kind =
            |found: &[(u64, Option<SentRecord>)]| history.check(0, found).expect_err("a fault");
        assert!(matches!(kind(&[(0, a)]), Violation::Lost { offset: 1, .. }));
        assert!(matches!(kind(&[(0, a), (2, b)]), Violation::Gap { expected: 1, found: 2, .. }));
        assert!(matches!(kind(&[(0, a), (1, c)]), Violation::Changed { offset: 1, .. }));
        assert!(matches!(kind(&[(0, a), (1, a)]), Violation::Twice { .. }));
        assert!(matches!(kind(&[(0, b), (1, a)]), Violation::OutOfOrder { .. }));
        assert!(matches!(kind(&[(0, a), (1, None)]), Violation::NeverSent { .. }));
        assert!(matches!(kind(&[(0, Some(sent(9, 9)))]), Violation::NeverSent { .. }));
    }

    #[test]
    fn abandoned_record_may_appear_late_but_only_once() {
        let mut history = history();
        history.send(sent(1, 3), 0);
        history.abandon(sent(1, 2));
        let (a, b, c) = (Some(sent(1, 0)), Some(sent(1, 1)), Some(sent(1, 2)));
        let d = Some(sent(1, 3));
        assert_eq!(history.check(0, &[(0, a), (1, b), (2, c), (3, d)]), Ok(()));
        assert_eq!(history.check(0, &[(0, a), (1, b), (2, d), (3, c)]), Ok(()));
        let twice = history.check(0, &[(0, a), (1, b), (2, c), (3, d), (4, c)]);
        assert!(matches!(twice, Err(Violation::Twice { offset: 4, .. })));
    }

    #[test]
    fn partial_read_is_checked_by_itself() {
        let history = history();
        let (b, c) = (Some(sent(1, 1)), Some(sent(1, 2)));
        assert_eq!(history.check_some(0, &[(1, b), (2, c)]), Ok(()));
        let kind = |found| history.check_some(0, &[found]).expect_err("a fault");
        assert!(matches!(kind((1, c)), Violation::Changed { offset: 1, .. }));
        assert!(matches!(kind((1, None)), Violation::Changed { found: None, .. }));
        assert!(matches!(kind((2, None)), Violation::NeverSent { .. }));
        assert!(matches!(kind((2, Some(sent(9, 9)))), Violation::NeverSent { .. }));
    }
}
