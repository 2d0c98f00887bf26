//! Acknowledgements of deliveries: ack, nack, reject, recover. They are collected while frames are handled, and each
//! channel passes them to the broker in one message.

use broker::delivery::{Settle, Settlement};

use crate::channel::Channel;
use crate::channel::unacked::UnknownTag;
use crate::codec::methods::BasicRecoverOk;
use crate::errors::{Exception, ReplyCode};
use crate::session::Session;

impl Session {
    /// Settles `tag`, or with `multiple` all deliveries up to it.
    pub(crate) fn settle(
        &mut self,
        number: u16,
        tag: u64,
        multiple: bool,
        settlement: Settlement,
    ) -> Result<(), Exception> {
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        let Channel { unacked, transaction, settles, .. } = channel;
        if let Some(transaction) = transaction {
            let answered = |tag, held| transaction.answer(tag, held, settlement);
            unacked.answer(tag, multiple, answered).map_err(unknown_tag)?;
            return transaction.check_settles();
        }
        let nothing_yet = settles.is_empty();
        let answered = |_, held| settles.extend(Channel::settle_of(held, settlement));
        unacked.answer(tag, multiple, answered).map_err(unknown_tag)?;
        if nothing_yet && !channel.settles.is_empty() {
            self.settling.push(number);
        }
        Ok(())
    }

    /// Requeues all unacknowledged deliveries, possibly to other consumers.
    pub(crate) fn recover(
        &mut self,
        number: u16,
        requeue: bool,
        wants_answer: bool,
    ) -> Result<(), Exception> {
        if !requeue {
            return Err(Exception::new(ReplyCode::NotImplemented, "requeue=false"));
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            let settles: Vec<Settle> = channel
                .unacked
                .take_all()
                .filter_map(|(_, held)| Channel::settle_of(held, requeued()))
                .collect();
            channel.settles.extend(settles);
            channel.hand_over_settles();
        }
        if wants_answer {
            self.output.method(number, BasicRecoverOk::default());
        }
        Ok(())
    }
}

fn unknown_tag(unknown: UnknownTag) -> Exception {
    Exception::precondition_failed(format!("unknown delivery tag {}", unknown.0))
}

/// Settlement of a nack or reject.
pub(crate) fn refusal(requeue: bool) -> Settlement {
    if requeue { requeued() } else { Settlement::Reject }
}

/// Requeued at its position, after the back-off of the queue's group, if any; the attempt counts.
fn requeued() -> Settlement {
    Settlement::Release { delay_ms: None, count: true }
}
