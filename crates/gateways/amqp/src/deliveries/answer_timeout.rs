//! The acknowledgement timeout (`x-consumer-timeout`): deadline of each delivery, and the close of a channel that
//! misses one.

use std::time::Duration;

use tokio::time::Instant;

use crate::channel::UnackedDelivery;
use crate::codec::methods::MethodId;
use crate::errors::Exception;
use crate::failure::Failure;
use crate::session::Session;

/// Acknowledgement deadline of a delivery that is sent now. Lowers `first`, the earliest of all deadlines.
pub(crate) fn due(
    within: Option<Duration>,
    first: &mut Option<Instant>,
) -> Option<(Instant, Duration)> {
    let within = within?;
    let at = Instant::now() + within;
    *first = Some(first.map_or(at, |first| first.min(at)));
    Some((at, within))
}

impl Session {
    /// Closes the channels with deliveries that were not acknowledged in time.
    pub(crate) fn time_out_deliveries(&mut self, now: Instant) {
        let mut overdue = Vec::new();
        self.answers_due = None;
        for (number, channel) in &self.channels {
            for held in channel.unacked.iter() {
                let UnackedDelivery::Lease { due: Some((at, within)), .. } = held else { continue };
                if *at <= now {
                    overdue.push((*number, *within));
                    break;
                }
                self.answers_due = Some(self.answers_due.map_or(*at, |first| first.min(*at)));
            }
        }
        for (channel, within) in overdue {
            let text = format!(
                "delivery acknowledgement on channel {channel} timed out. Timeout value used: {} \
                 ms. This timeout value can be configured, see consumers doc guide to learn more",
                within.as_millis()
            );
            let exception = Exception::precondition_failed(text);
            self.fail(Failure { channel, method: MethodId::default(), exception });
        }
    }
}
