//! Rows that another node brings: each is taken once, however often the node sends it.
//!
//! A node has one request under way at a time, and sends it again, as it was, where its answer is lost. All that is
//! taken of one is in one entry, so it is in the log as a whole, or not at all.

use machine::{Numbered, Unit};

use super::proposal::{Context, Proposal};
use crate::append::{AppendBatch, Appended, Appends};
use crate::error::{AppendError, Unavailable};
use crate::pending::Slot;

/// The answer to a request that came before: its rows are in the log, or on their way there.
pub(super) fn known(
    batches: &[AppendBatch],
    from: Numbered,
    context: &Context<'_>,
) -> Option<Appends> {
    let rows = &context.state.rows;
    if context.ahead.brings(from.node) {
        // The node asks again until that is applied.
        let count = batches.iter().map(AppendBatch::rows).sum();
        return Some(vec![Err(Unavailable::NotLeader.into()); count]);
    }
    let brought = rows.requests().brought(from).filter(|it| from.number < it.next())?;
    let partitions = batches.iter().flat_map(AppendBatch::partitions).enumerate();
    let answer = |(at, partition)| -> Result<Appended, AppendError> {
        let number = from.plus(at).number;
        let base_offset = brought.offset_of(number).ok_or_else(|| match brought.knows(number) {
            true => AppendError::RefusedBefore,
            false => Unavailable::Unanswered.into(),
        })?;
        let log_start = rows.partition(partition).map_or(0, |found| found.log_start());
        Ok(Appended { base_offset, log_start, duplicate: false })
    };
    Some(partitions.map(answer).collect())
}

impl Proposal {
    /// Writes into the entry which of its bodies are the rows of a request. `from` is the number of the first row.
    pub(super) fn bind_brought(
        &mut self,
        from: Numbered,
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
