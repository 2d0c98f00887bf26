//! Rows forwarded by another node: each is appended once, however often the node sends it.
//!
//! A node has one request in flight at a time, and repeats it unchanged if the reply is lost. All accepted rows of a
//! request are in one entry, so they are in the log as a whole, or not at all.

use machine::{RowSequence, Unit};

use super::proposal::{Context, Proposal};
use crate::append::{AppendBatch, AppendedBatch, Appends};
use crate::error::{AppendError, Unavailable};
use crate::pending::Slot;

/// Returns the results of a repeated request, whose rows are in the log or pending.
pub(super) fn known(
    batches: &[AppendBatch],
    from: RowSequence,
    context: &Context<'_>,
) -> Option<Appends> {
    let rows = &context.state.rows;
    if context.ahead.brings(from.node) {
        // The node repeats the request until that is applied.
        let count = batches.iter().map(AppendBatch::rows).sum();
        return Some(vec![Err(Unavailable::NotLeader.into()); count]);
    }
    let brought = rows.requests().brought(from).filter(|it| from.number < it.next())?;
    let partitions = batches.iter().flat_map(AppendBatch::partitions).enumerate();
    let answer = |(at, partition)| -> Result<AppendedBatch, AppendError> {
        let number = from.plus(at).number;
        let base_offset = brought.offset_of(number).ok_or_else(|| match brought.knows(number) {
            true => AppendError::RefusedBefore,
            false => Unavailable::Unanswered.into(),
        })?;
        let log_start = rows.partition(partition).map_or(0, |found| found.log_start());
        Ok(AppendedBatch { base_offset, log_start, duplicate: false })
    };
    Some(partitions.map(answer).collect())
}

impl Proposal {
    /// Records in the entry which of its bodies are the rows of a request. `from` is the number of the first row.
    pub(super) fn bind_brought(
        &mut self,
        from: RowSequence,
        slots: &[Slot],
        context: &mut Context<'_>,
    ) {
        let (before, mut is_open) = (self.units.len(), false);
        for (at, slot) in slots.iter().enumerate() {
            let Slot::Body { body, .. } = slot else {
                is_open = false;
                continue;
            };
            match self.units.last_mut().filter(|_| is_open) {
                Some(unit) => unit.appends += 1,
                None => self.units.push(Unit {
                    first_append: *body as u32,
                    appends: 1,
                    brought: Some(from.plus(at)),
                    ..Unit::default()
                }),
            }
            is_open = true;
        }
        if self.units.len() > before {
            context.ahead.record_brought(from, self.ticket, &mut self.touched);
        }
    }
}
