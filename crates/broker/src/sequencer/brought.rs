//! Rows that another node brings: each is taken once, however often the node sends it.
//!
//! A node has one request under way at a time, and sends it again, as it was, where its answer is lost. All that is
//! taken of one is in one entry, so it is in the log as a whole, or not at all.

use machine::{Numbered, Unit};
use tokio::sync::oneshot;

use super::proposal::{Context, Proposal};
use crate::append::{AppendBatch, Appended, Appends};
use crate::error::{AppendError, Unavailable};
use crate::pending::Slot;

/// Answers a request that is known: its rows are in the log, or on their way there. Else it gives the reply back.
pub(super) fn answer_known(
    batches: &[AppendBatch],
    from: Option<Numbered>,
    reply: oneshot::Sender<Appends>,
    context: &Context<'_>,
) -> Option<oneshot::Sender<Appends>> {
    let Some(from) = from else { return Some(reply) };
    let rows = &context.state.rows;
    if context.ahead.brings(from.node) {
        // It is asked for again until that is applied.
        let count = batches.iter().map(AppendBatch::rows).sum();
        let _ = reply.send(vec![Err(Unavailable::NotLeader.into()); count]);
        return None;
    }
    let Some(brought) = rows.requests().brought(from).filter(|it| from.number < it.next()) else {
        return Some(reply);
    };
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
    let _ = reply.send(partitions.map(answer).collect());
    None
}

impl Proposal {
    /// Says in the entry which of its bodies the rows are, the first of which has this number.
    pub(super) fn bind_brought(
        &mut self,
        from: Numbered,
        slots: &[Slot],
        context: &mut Context<'_>,
    ) {
        let mut is_open = false;
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
        if slots.iter().any(|slot| matches!(slot, Slot::Body { .. })) {
            context.ahead.record_brought(from, self.ticket, &mut self.touched);
        }
    }
}
