//! Settles of a channel that are not stored yet. AMQP confirms no settle, but two methods depend on them:
//!
//! * A channel that rejects a message and then gets from the dead-letter queue, counts it or purges it must find the
//!   dead letter. So these methods wait for the replies to the channel's rejects, which come after their dead letters
//!   are stored.
//! * A client that acknowledges, closes and receives the reply expects its acknowledgements to hold. The end of the
//!   lease session would end their repetition at the next leader, so it waits for their replies.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::BARRIER_WITHIN;
use broker::delivery::{ConsumerId, LeaseSession, SettleReply};
use futures_util::FutureExt;
use futures_util::future::join_all;
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

/// The lease session of a channel that is closed, until the channel's settles are stored.
#[derive(Debug, Default)]
pub(crate) struct EndingLeases {
    leases: Option<Arc<LeaseSession>>,
    consumers: Vec<ConsumerId>,
    settles: [SettlesInFlight; 2],
}

impl EndingLeases {
    /// Without settles in flight the session ends at once.
    pub(crate) fn new(
        leases: Option<Arc<LeaseSession>>,
        consumers: Vec<ConsumerId>,
        mut settles: [SettlesInFlight; 2],
    ) -> Self {
        settles.iter_mut().for_each(SettlesInFlight::forget_stored);
        match settles.iter().all(|it| it.replies.is_empty()) {
            true => Self::default(),
            false => Self { leases, consumers, settles },
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.settles.iter().all(|it| it.replies.is_empty())
    }

    /// Waits for the settles, without further deliveries, and ends the session.
    pub(crate) async fn settled(self) {
        if let Some(leases) = &self.leases {
            join_all(self.consumers.iter().map(|consumer| leases.cancel(*consumer))).await;
        }
        join_all(self.settles.map(SettlesInFlight::stored)).await;
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
        let (mut rejects, mut acknowledgements) = <(SettlesInFlight, SettlesInFlight)>::default();
        rejects.add(SettleReply::one(1, rejected.1));
        acknowledgements.add(SettleReply::one(1, acknowledged.1));
        let ending = EndingLeases::new(None, Vec::new(), [rejects, acknowledgements]);
        assert!(!ending.is_over());
        let mut settled = std::pin::pin!(ending.settled());
        rejected.0.send(vec![Ok(())]).expect("awaited");
        assert!(timeout(Duration::from_secs(1), settled.as_mut()).await.is_err());
        acknowledged.0.send(vec![Ok(())]).expect("awaited");
        timeout(Duration::ZERO, settled).await.expect("stored");
    }

    #[test]
    fn lease_session_without_settles_in_flight_ends_at_once() {
        let (reply, answer) = oneshot::channel();
        let mut settles = SettlesInFlight::default();
        settles.add(SettleReply::one(1, answer));
        reply.send(vec![Ok(())]).expect("kept");
        assert!(
            EndingLeases::new(None, Vec::new(), [settles, SettlesInFlight::default()]).is_over()
        );
    }
}
