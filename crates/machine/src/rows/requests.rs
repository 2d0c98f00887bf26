//! Requests of other nodes: this shard's position in each node's numbering, and the offsets of
//! their latest rows.
//!
//! A node that brings appends to the shard's leader numbers their rows (of each batch, one for each
//! of its partitions), and has one request in flight at a time. If the reply is lost, the node
//! sends the same request again to the current leader. Rows that were accepted get the same reply
//! as before. Rows that were refused, while another row of the request was accepted, stay refused.
//! A request without accepted rows leaves no trace.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::limits::NUMBERED_NODES_MAX;
use base::Offset;
use base::limits::NUMBERED_ROWS_KEPT;

use crate::sequence::RowSequence;

/// Progress of all nodes that ever brought rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Requests {
    pub(crate) nodes: BTreeMap<u32, Arc<ForwardedRows>>,
}

/// Rows brought by one incarnation of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForwardedRows {
    pub(crate) incarnation: u64,
    /// The number after the last accepted row.
    pub(crate) next: u64,
    /// Accepted rows among the last [`NUMBERED_ROWS_KEPT`] numbers, ascending.
    pub(crate) taken: VecDeque<Run>,
    /// The shard's time at the last row.
    pub(crate) at_ms: i64,
}

/// Rows with consecutive numbers at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) number: u64,
    pub(crate) rows: u32,
    /// Offset of the first row.
    pub(crate) base_offset: Offset,
    /// Number of offsets of each row.
    pub(crate) span: u32,
}

impl Requests {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Rows brought by this incarnation of a node; `None` if there are none.
    pub fn brought(&self, from: RowSequence) -> Option<&ForwardedRows> {
        self.nodes.get(&from.node).map(Arc::as_ref).filter(|it| it.incarnation == from.incarnation)
    }

    /// Whether the row follows all accepted rows of the incarnation.
    pub(crate) fn is_next(&self, from: RowSequence) -> bool {
        self.brought(from).is_none_or(|brought| brought.next <= from.number)
    }

    /// Records the next rows, each with its offset and span if it was accepted.
    pub(crate) fn note(
        &mut self,
        from: RowSequence,
        rows: impl Iterator<Item = Option<(Offset, u32)>>,
        at_ms: i64,
    ) {
        if !self.nodes.contains_key(&from.node) && self.nodes.len() >= NUMBERED_NODES_MAX {
            let oldest = self.nodes.iter().min_by_key(|(node, it)| (it.at_ms, **node));
            let oldest = oldest.map(|(node, _)| *node);
            oldest.map(|node| self.nodes.remove(&node));
        }
        let brought = Arc::make_mut(self.nodes.entry(from.node).or_default());
        if brought.incarnation != from.incarnation {
            *brought = ForwardedRows { incarnation: from.incarnation, ..ForwardedRows::default() };
        }
        brought.at_ms = at_ms;
        for (at, row) in rows.enumerate() {
            let number = from.plus(at).number;
            if let Some((base_offset, span)) = row {
                brought.next = number.saturating_add(1);
                brought.take(Run { number, rows: 1, base_offset, span });
            }
        }
        brought.forget_old();
    }
}

impl ForwardedRows {
    /// The number after the last accepted row.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Offset of a row; `None` if it was not accepted, or is no longer remembered.
    pub fn offset_of(&self, number: u64) -> Option<Offset> {
        let after = self.taken.partition_point(|run| run.number <= number);
        let run = self.taken.get(after.checked_sub(1)?)?;
        let at = number - run.number;
        (at < u64::from(run.rows)).then(|| run.base_offset + at * u64::from(run.span))
    }

    /// Whether the row is recent enough for `offset_of` to be conclusive.
    pub fn knows(&self, number: u64) -> bool {
        number >= self.next.saturating_sub(NUMBERED_ROWS_KEPT)
    }

    fn take(&mut self, row: Run) {
        if let Some(last) = self.taken.back_mut()
            && last.is_before(&row)
        {
            last.rows += 1;
            return;
        }
        self.taken.push_back(row);
    }

    fn forget_old(&mut self) {
        let first = self.next.saturating_sub(NUMBERED_ROWS_KEPT);
        while self.taken.front().is_some_and(|run| run.end() <= first) {
            self.taken.pop_front();
        }
    }

    /// Whether the state of a snapshot is valid.
    pub(crate) fn is_sound(&self) -> bool {
        let ascend = self.taken.iter().zip(self.taken.iter().skip(1));
        let runs = self.taken.iter().all(Run::is_sound);
        let within = self.taken.back().is_none_or(|last| last.end() <= self.next);
        let some = self.taken.len() as u64 <= NUMBERED_ROWS_KEPT;
        runs && within && some && ascend.into_iter().all(|(run, next)| run.end() <= next.number)
    }
}

impl Run {
    /// The number after its last row.
    fn end(&self) -> u64 {
        self.number.saturating_add(u64::from(self.rows))
    }

    /// The offset after its last row; `None` if it overflows.
    fn end_offset(&self) -> Option<Offset> {
        self.base_offset.checked_add(u64::from(self.rows) * u64::from(self.span))
    }

    /// Whether the row continues the run: next number, next offset, same span.
    fn is_before(&self, row: &Self) -> bool {
        self.end() == row.number
            && self.span == row.span
            && self.end_offset() == Some(row.base_offset)
            && self.rows < u32::MAX
    }

    fn is_sound(&self) -> bool {
        self.rows > 0 && self.span > 0 && self.end_offset().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(node: u32, incarnation: u64, number: u64) -> RowSequence {
        RowSequence { node, incarnation, number }
    }

    fn offsets(requests: &Requests, run: RowSequence, rows: usize) -> Vec<Option<Offset>> {
        let brought = requests.brought(run).expect("it brought something");
        (0..rows).map(|at| brought.offset_of(run.plus(at).number)).collect()
    }

    #[test]
    fn accepted_rows_are_found_at_their_offsets_and_refused_ones_are_not() {
        let mut requests = Requests::default();
        let first = from(2, 77, 0);
        assert!(requests.is_next(first) && requests.brought(first).is_none());
        let rows = [Some((5, 1)), Some((6, 1)), None, Some((7, 1)), Some((40, 3)), Some((43, 3))];
        requests.note(first, rows.into_iter(), 9);
        assert!(!requests.is_next(first.plus(5)) && requests.is_next(first.plus(6)));
        let found = offsets(&requests, first, 7);
        let expected = [Some(5), Some(6), None, Some(7), Some(40), Some(43), None];
        assert_eq!(found, expected);
        assert_eq!(requests.nodes[&2].taken.len(), 3, "successive rows are one run");
        // It was refused before it reached the log, so its number is skipped.
        requests.note(first.plus(8), [Some((8, 1))].into_iter(), 9);
        assert_eq!(offsets(&requests, first.plus(6), 3), [None, None, Some(8)]);
        assert!(requests.nodes[&2].is_sound());
    }

    #[test]
    fn each_node_and_each_incarnation_is_numbered_separately() {
        let mut requests = Requests::default();
        requests.note(from(2, 77, 0), [Some((5, 1))].into_iter(), 9);
        requests.note(from(3, 77, 0), [Some((6, 1))].into_iter(), 9);
        assert!(requests.is_next(from(2, 78, 0)));
        requests.note(from(2, 78, 0), [Some((7, 1))].into_iter(), 9);
        assert_eq!(offsets(&requests, from(2, 78, 0), 1), [Some(7)]);
        assert!(requests.brought(from(2, 77, 0)).is_none());
        assert_eq!(offsets(&requests, from(3, 77, 0), 1), [Some(6)]);
    }

    #[test]
    fn remembered_rows_are_bounded() {
        let mut requests = Requests::default();
        let many = NUMBERED_ROWS_KEPT as usize * 3;
        // None of them continues the previous one.
        let rows = (0..many as u64).map(|at| Some((at * 10, 1)));
        requests.note(from(2, 77, 0), rows, 9);
        let brought = &requests.nodes[&2];
        assert_eq!(brought.taken.len() as u64, NUMBERED_ROWS_KEPT);
        assert_eq!(brought.offset_of(0), None);
        assert_eq!(brought.offset_of(many as u64 - 1), Some((many as u64 - 1) * 10));
        for node in 0..NUMBERED_NODES_MAX as u32 + 5 {
            requests.note(from(100 + node, 1, 0), [None].into_iter(), i64::from(node) + 10);
        }
        assert_eq!(requests.nodes.len(), NUMBERED_NODES_MAX);
        assert!(requests.brought(from(2, 77, 0)).is_none(), "it is the oldest");
    }

    #[test]
    fn invalid_state_is_not_sound() {
        let run = |number, rows, span| Run { number, rows, base_offset: 0, span };
        let brought = |taken: &[Run]| ForwardedRows {
            incarnation: 1,
            next: 10,
            taken: taken.iter().copied().collect(),
            at_ms: 0,
        };
        assert!(brought(&[run(2, 3, 1), run(5, 5, 1)]).is_sound());
        let too_high = Run { base_offset: u64::MAX - 2, ..run(2, 3, 1) };
        for senseless in [
            &[too_high][..],
            &[run(2, 0, 1)],
            &[run(2, 1, 0)],
            &[run(2, 9, 1)],
            &[run(2, 3, 1), run(4, 1, 1)],
            &[run(u64::MAX, 3, 1)],
        ] {
            assert!(!brought(senseless).is_sound(), "{senseless:?}");
        }
    }
}
