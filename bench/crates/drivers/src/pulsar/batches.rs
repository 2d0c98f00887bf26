//! Counts open messages of batches. A batch is one entry of its ledger: acknowledging one of its
//! messages would acknowledge all. So a batch is acknowledged when its last message is settled.

use std::collections::HashMap;

/// Ledger and entry; ledgers of all topics are numbered together.
pub(super) type Entry = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Batches {
    /// Partially received batches by entry, with their numbers: an entry may be redelivered.
    arriving: HashMap<Entry, u64>,
    /// By number: count of unsettled messages.
    open: HashMap<u64, u32>,
    next: u64,
}

impl Batches {
    /// Registers a message with this index in a batch of this size. Returns the number of its
    /// batch.
    pub(super) fn came(&mut self, entry: Entry, index: u32, size: u32) -> u64 {
        let number = match self.arriving.get(&entry) {
            Some(&number) if index > 0 => number,
            _ => {
                self.next += 1;
                self.arriving.insert(entry, self.next);
                self.open.insert(self.next, size);
                self.next
            }
        };
        if index + 1 >= size {
            self.arriving.remove(&entry);
        }
        number
    }

    /// Settles one message. Returns whether it was the last of its batch.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let Some(open) = self.open.get_mut(&number) else { return false };
        *open -= 1;
        let last = *open == 0;
        if last {
            self.open.remove(&number);
        }
        last
    }

    /// Releases the whole batch. Returns whether it was not released before.
    pub(super) fn release(&mut self, number: u64) -> bool {
        self.open.remove(&number).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Entry = (7, 1);

    #[test]
    fn last_message_settles_the_batch() {
        let mut batches = Batches::default();
        let numbers: Vec<u64> = (0..3).map(|index| batches.came(HERE, index, 3)).collect();
        let settled: Vec<bool> =
            [2, 0, 1].into_iter().map(|index: usize| batches.accept(numbers[index])).collect();
        assert_eq!(settled, [false, false, true]);
        assert!(batches.open.is_empty() && batches.arriving.is_empty());
    }

    #[test]
    fn released_batch_is_counted_from_the_start() {
        let mut batches = Batches::default();
        let first: Vec<u64> = (0..2).map(|index| batches.came(HERE, index, 2)).collect();
        assert!(batches.release(first[0]));
        assert!(!batches.release(first[1]));
        let again: Vec<u64> = (0..2).map(|index| batches.came(HERE, index, 2)).collect();
        assert!(!batches.accept(first[1]), "is of the one that was given back");
        assert!(!batches.accept(again[0]));
        assert!(batches.accept(again[1]));
    }

    #[test]
    fn batches_of_two_topics_may_interleave() {
        let mut batches = Batches::default();
        let other = (8, 1);
        let one = [batches.came(HERE, 0, 2)];
        let two = [batches.came(other, 0, 2), batches.came(other, 1, 2)];
        let one = [one[0], batches.came(HERE, 1, 2)];
        assert_eq!((one[0], two[0]), (one[1], two[1]));
        assert_ne!(one[0], two[0]);
    }
}
