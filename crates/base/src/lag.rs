//! Lag of a group that commits offsets, the same for every interface that shows it.

use crate::Offset;

/// Offset of the oldest record that a group has not read. Records below the log's start are gone, so that no group can
/// read them.
pub fn next_unread(committed: Offset, log_start: Offset) -> Offset {
    committed.max(log_start)
}

/// Number of records that a group has not read.
pub fn lag(committed: Offset, log_start: Offset, end: Offset) -> u64 {
    end.saturating_sub(next_unread(committed, log_start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_records_that_exist_and_were_not_read() {
        assert_eq!(lag(2, 0, 10), 8);
        assert_eq!(lag(2, 10, 10), 0, "all records are gone");
        assert_eq!(lag(2, 10, 11), 1);
        assert_eq!(lag(12, 0, 10), 0, "committed beyond the end");
    }
}
