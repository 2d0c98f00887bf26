//! Publisher confirms: one cumulative reply per channel, after rerouting of messages whose queue was deleted meanwhile
//! ([`rabbitmq::rerouting`]).

use std::task::{Context, Poll};

use broker::{AppendError, AppendedBatch};
use rabbitmq::publisher::Confirms;
use rabbitmq::rerouting::RerouteOutcome;

use crate::channel::ConfirmMode;
use crate::codec::methods::{BasicAck, BasicNack};
use crate::codec::properties::{Properties, WireProperties};
use crate::output::Output;
use crate::session::Session;
use crate::session::in_flight::RetainedMessage;

impl Session {
    /// Completes the oldest appends in flight that are answered.
    pub(crate) fn poll_appended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut any = false;
        while let Some(mut front) = self.in_flight.pop_front() {
            let Poll::Ready((answers, fates)) = self.poll_in_flight(&mut front, context) else {
                self.in_flight.push_front(front);
                break;
            };
            any = true;
            let refused = self.settle_rerouted(fates);
            self.confirm(&front.confirms, &answers, &refused);
        }
        if self.in_flight.is_empty() {
            self.awaits_appends = false;
        }
        if any { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns unroutable mandatory messages to their publishers. Returns channel and number of messages that were
    /// rejected.
    fn settle_rerouted(
        &mut self,
        fates: Vec<(RetainedMessage, RerouteOutcome)>,
    ) -> Vec<(u16, u64)> {
        let mut refused = Vec::new();
        for (kept, fate) in fates {
            let known = self.channels.get(&kept.channel);
            if known.is_none_or(|it| it.generation != kept.generation || it.is_closing) {
                continue;
            }
            match (fate, kept.number) {
                (RerouteOutcome::Taken, _) | (RerouteOutcome::Refused, None) => {}
                (RerouteOutcome::Refused, Some(number)) => refused.push((kept.channel, number)),
                (RerouteOutcome::Unroutable, _) => self.return_kept(&kept),
            }
        }
        refused
    }

    fn return_kept(&mut self, kept: &RetainedMessage) {
        let Some((publish, encoded)) = kept.content.read() else { return };
        let Ok(properties) = Properties::decode(encoded) else { return };
        if publish.mandatory {
            self.give_back(kept.channel, &publish, &properties, &kept.content.body);
        }
    }

    /// Confirms messages to their publishers: one cumulative ack per channel, and a nack for each rejected message.
    /// `rerouted`: channel and number of messages that were rejected after rerouting.
    pub(crate) fn confirm(
        &mut self,
        confirms: &Confirms,
        answers: &[Result<AppendedBatch, AppendError>],
        rerouted: &[(u16, u64)],
    ) {
        let refused_rows: Vec<bool> = answers.iter().map(is_refused).collect();
        let any_refused = refused_rows.contains(&true);
        let refused = |batch: u32| refused_rows[confirms.rows_of(batch)].contains(&true);
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.gateway.note_refused(error);
        }
        let mut refused_parts = [rerouted, &confirms.rejected].concat();
        if any_refused {
            let parts = confirms.parts.iter().filter(|part| refused(part.batch));
            refused_parts.extend(parts.map(|part| (part.channel, part.number)));
        }
        refused_parts.sort_unstable();
        refused_parts.dedup();
        for confirmed in &confirms.channels {
            let Some(channel) = self.channels.get_mut(&confirmed.channel) else { continue };
            if channel.generation != confirmed.generation || channel.is_closing {
                continue;
            }
            let Some(mode) = &mut channel.confirms else { continue };
            let nacked = channel_parts(confirmed.channel, &refused_parts);
            answer(confirmed.channel, mode, confirmed.last, nacked, &mut self.output);
        }
    }
}

/// A message for a deleted queue was rerouted, or the queue was deleted while the message was in flight; neither is a
/// rejection.
fn is_refused(answer: &Result<AppendedBatch, AppendError>) -> bool {
    !matches!(answer, Ok(_) | Err(AppendError::UnknownPartition(_)))
}

/// Confirms all messages up to `last`. Rejected messages, in ascending order, are nacked first, so that the
/// cumulative ack that follows does not cover them.
fn answer(
    number: u16,
    mode: &mut ConfirmMode,
    last: u64,
    nacked: &[(u16, u64)],
    output: &mut Output,
) {
    for &(_, delivery_tag) in nacked {
        let nack = BasicNack { delivery_tag, ..BasicNack::default() };
        output.method(number, nack);
    }
    let delivery_tag = last_taken(last, nacked);
    if delivery_tag > mode.answered {
        let multiple = delivery_tag > mode.answered + 1;
        output.method(number, BasicAck { delivery_tag, multiple, ..BasicAck::default() });
    }
    mode.answered = last;
}

/// The greatest number up to `last` that is not rejected. `nacked` is in ascending order.
fn last_taken(last: u64, nacked: &[(u16, u64)]) -> u64 {
    let numbers = nacked.iter().rev().map(|(_, number)| *number);
    let refused_at_the_end =
        numbers.zip((1..=last).rev()).take_while(|(nacked, tag)| nacked == tag);
    last - refused_at_the_end.count() as u64
}

/// The parts of one channel. `parts` is in ascending order.
fn channel_parts(channel: u16, parts: &[(u16, u64)]) -> &[(u16, u64)] {
    let from = parts.partition_point(|(of, _)| *of < channel);
    let count = parts[from..].partition_point(|(of, _)| *of == channel);
    &parts[from..from + count]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cumulative_ack_goes_up_to_the_last_number_that_was_not_refused(
            last in 0u64..40,
            mut numbers in proptest::collection::btree_set((0u16..3, 1u64..40), 0..60),
        ) {
            numbers.retain(|(_, number)| *number <= last);
            let parts: Vec<(u16, u64)> = numbers.iter().copied().collect();
            for channel in 0..4 {
                let refused = |tag: u64| numbers.contains(&(channel, tag));
                let expected = (1..=last).rev().find(|tag| !refused(*tag)).unwrap_or(0);
                prop_assert_eq!(last_taken(last, channel_parts(channel, &parts)), expected);
            }
        }
    }

    /// Quadratic time would take minutes.
    #[test]
    fn refusal_of_a_million_messages_is_answered_in_linear_time() {
        let parts: Vec<(u16, u64)> = (1..=1_000_000).map(|number| (1, number)).collect();
        assert_eq!(last_taken(1_000_000, channel_parts(1, &parts)), 0);
        assert_eq!(last_taken(1_000_001, channel_parts(1, &parts)), 1_000_001);
    }
}
