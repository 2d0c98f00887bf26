//! Settles of a channel that are not stored yet. AMQP confirms no settle, but some methods depend on them:
//!
//! * `basic.get`, `queue.declare`, `queue.delete` and `queue.purge` must find the dead letters of the channel's earlier
//!   rejects. They wait for the replies to the rejects, which come after the dead letters are stored.
//! * `channel.close` and `connection.close` are confirmed after all settles are stored. The end of a lease session ends
//!   the repetition of its settles at the next leader, so the session lasts until then.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::BARRIER_WITHIN;
use broker::delivery::{ConsumerId, LeaseSession, SettleReply};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::time::timeout;

/// Replies kept before those that have arrived are dropped.
const KEPT: usize = 64;
/// Most replies awaited. Of a client that settles faster than its settles are stored, the newest are kept.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct SettlesInFlight {
    replies: VecDeque<SettleReply>,
    /// Number of replies at which those that have arrived are dropped.
    room: usize,
}

impl SettlesInFlight {
    pub(crate) fn add(&mut self, reply: SettleReply) {
        if self.replies.len() >= self.room.max(KEPT) {
            self.forget_stored();
            self.room = (2 * self.replies.len()).min(KEPT_MAX);
            while self.replies.len() >= KEPT_MAX {
                self.replies.pop_front();
            }
        }
        self.replies.push_back(reply);
    }

    fn forget_stored(&mut self) {
        self.replies.retain_mut(|reply| reply.now_or_never().is_none());
    }

    /// Adds the settles of `other`.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.replies.append(&mut other.replies);
    }

    /// Takes the settles in flight, to wait for them.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Waits until the settles and their dead letters are stored, for [`BARRIER_WITHIN`] at most.
    pub(crate) async fn stored(self) {
        if !self.replies.is_empty()
            && timeout(BARRIER_WITHIN, join_all(self.replies)).await.is_err()
        {
            tracing::debug!("settles were not stored in time");
        }
    }
}

/// The lease session of a closed channel, until the channel's settles are stored.
#[derive(Debug)]
pub(crate) struct EndingLeases {
    /// Dropping it ends the session.
    leases: Option<Arc<LeaseSession>>,
    consumers: Vec<ConsumerId>,
    settles: SettlesInFlight,
}

impl EndingLeases {
    /// `None`: no settle is in flight, so the session ends at once.
    pub(crate) fn new(
        leases: Option<Arc<LeaseSession>>,
        consumers: Vec<ConsumerId>,
        mut settles: SettlesInFlight,
    ) -> Option<Self> {
        settles.forget_stored();
        (!settles.replies.is_empty()).then_some(Self { leases, consumers, settles })
    }

    /// Cancels the consumers, and waits until the settles are stored, for [`BARRIER_WITHIN`] at most.
    pub(crate) async fn end(self) {
        let Self { leases, consumers, settles } = self;
        let cancelled =
            consumers.iter().filter_map(|consumer| Some(leases.as_ref()?.cancel(*consumer)));
        // A shard without a leader answers neither.
        let _ = timeout(BARRIER_WITHIN, join(join_all(cancelled), settles.stored())).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lease_session_ends_after_its_settles_are_stored() {
        let (rejected, acknowledged) = (oneshot::channel(), oneshot::channel());
        let (mut settles, mut acknowledgements) = <(SettlesInFlight, SettlesInFlight)>::default();
        settles.add(SettleReply::one(1, rejected.1));
        acknowledgements.add(SettleReply::one(1, acknowledged.1));
        settles.append(acknowledgements);
        let ending = EndingLeases::new(None, Vec::new(), settles).expect("settles are in flight");
        let mut ended = std::pin::pin!(ending.end());
        rejected.0.send(vec![Ok(())]).expect("awaited");
        assert!(timeout(Duration::from_secs(1), ended.as_mut()).await.is_err());
        acknowledged.0.send(vec![Ok(())]).expect("awaited");
        timeout(Duration::ZERO, ended).await.expect("stored");
    }

    #[test]
    fn lease_session_without_settles_in_flight_ends_at_once() {
        let (reply, answer) = oneshot::channel();
        let mut settles = SettlesInFlight::default();
        settles.add(SettleReply::one(1, answer));
        reply.send(vec![Ok(())]).expect("kept");
        assert!(EndingLeases::new(None, Vec::new(), settles).is_none());
    }
}
