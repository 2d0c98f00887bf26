//! A register whose value only rises: linearizable reads never return less than an acknowledged write, or than an
//! earlier read.

use crate::described;

/// Times are in milliseconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `done`: time of the acknowledgement; `None`: rejected or without a reply, so it may count.
    Write { value: i64, begun: u64, done: Option<u64> },
    /// -1: the node replied that the register is empty.
    Read { value: i64, begun: u64, done: u64, node: usize },
}

/// Violations in a history of one register, in any order.
pub fn check(name: &str, history: &[Op]) -> Vec<String> {
    // Lower bounds, by time: a later read must reach each of them.
    let mut reached: Vec<(u64, i64)> = history
        .iter()
        .filter_map(|op| match *op {
            Op::Write { value, done: Some(done), .. } | Op::Read { value, done, .. } => {
                Some((done, value))
            }
            Op::Write { done: None, .. } => None,
        })
        .collect();
    reached.sort_unstable();
    let mut highest = -1;
    for (_, value) in &mut reached {
        highest = highest.max(*value);
        *value = highest;
    }
    let written = |value: i64, before: u64| {
        value == -1
            || history.iter().any(|op| {
                matches!(*op, Op::Write { value: wrote, begun, .. } if wrote == value && begun <= before)
            })
    };
    let (mut stale, mut invented) = (Vec::new(), Vec::new());
    for op in history {
        let Op::Read { value, begun, done, node } = *op else { continue };
        let before = reached.partition_point(|(at, _)| *at < begun);
        let due = before.checked_sub(1).map_or(-1, |at| reached[at].1);
        if value < due {
            stale.push(format!("node {} said {value} at {done} ms, after {due}", node + 1));
        } else if !written(value, done) {
            invented.push(format!("node {} said {value} at {done} ms, never written", node + 1));
        }
    }
    let mut all = described(&format!("{name}, stale read"), stale);
    all.extend(described(&format!("{name}, read of no write"), invented));
    all
}

#[cfg(test)]
mod tests {
    use super::Op::{Read, Write};
    use super::*;

    fn write(value: i64, begun: u64, done: u64) -> Op {
        Write { value, begun, done: Some(done) }
    }

    fn read(value: i64, begun: u64, done: u64) -> Op {
        Read { value, begun, done, node: 0 }
    }

    #[test]
    fn read_below_an_acknowledged_write_is_found() {
        let history = [write(1, 0, 5), write(2, 6, 9), read(2, 10, 11), read(1, 12, 13)];
        let found = check("g", &history);
        assert_eq!(found, ["g, stale read: node 1 said 1 at 13 ms, after 2"]);
        assert_eq!(check("g", &[write(7, 0, 5), read(-1, 6, 7)]).len(), 1, "nothing committed");
    }

    #[test]
    fn read_below_an_earlier_read_is_found_though_the_write_was_unanswered() {
        let unanswered = Write { value: 3, begun: 0, done: None };
        assert!(check("g", &[unanswered, read(-1, 1, 2), read(3, 3, 4)]).is_empty());
        assert_eq!(check("g", &[unanswered, read(3, 3, 4), read(-1, 5, 6)]).len(), 1);
    }

    #[test]
    fn concurrent_reads_and_writes_may_be_ordered_either_way() {
        assert!(check("g", &[write(1, 0, 5), read(-1, 4, 6), read(1, 4, 6)]).is_empty());
    }

    #[test]
    fn value_of_no_write_is_found() {
        assert_eq!(check("g", &[write(1, 0, 1), read(9, 2, 3)]).len(), 1);
        assert_eq!(check("g", &[read(1, 0, 1), write(1, 2, 3)]).len(), 1, "from the future");
    }
}
