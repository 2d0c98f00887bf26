//! Rejects of a channel whose dead letters are on their way.
//!
//! A channel that rejects a message and then gets from the dead-letter queue, counts it or purges it finds the letter. So
//! these methods wait until the channel's rejects are answered, which is when their letters are where they belong.

use std::collections::VecDeque;

use base::limits::BARRIER_WITHIN;
use broker::delivery::SettleReply;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;

/// Answers that are kept; those that have come are looked for when there are more.
const KEPT: usize = 64;
/// Answers that are waited for at most: of a client that rejects faster than letters are written, the newest.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Rejects {
    replies: VecDeque<SettleReply>,
    /// How many there may be before those that have come are forgotten.
    room: usize,
}

impl Rejects {
    pub(crate) fn add(&mut self, reply: SettleReply) {
        if self.replies.len() >= self.room.max(KEPT) {
            self.replies.retain_mut(|reply| reply.now_or_never().is_none());
            self.room = (2 * self.replies.len()).min(KEPT_MAX);
            while self.replies.len() >= KEPT_MAX {
                self.replies.pop_front();
            }
        }
        self.replies.push_back(reply);
    }

    /// Waits for the rejects in flight.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Waits until the dead letters are where they belong, for [`BARRIER_WITHIN`] at most.
    pub(crate) async fn arrived(self) {
        if !self.replies.is_empty()
            && timeout(BARRIER_WITHIN, join_all(self.replies)).await.is_err()
        {
            tracing::debug!("dead letters have not arrived in time");
        }
    }
}
