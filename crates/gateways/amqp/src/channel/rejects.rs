//! Rejects of a channel whose dead letters are pending.
//!
//! A channel that rejects a message and then gets from the dead-letter queue, counts it or purges it must find the
//! dead letter. So these methods wait for the replies to the channel's rejects, which come after their dead letters
//! are stored.

use std::collections::VecDeque;

use base::limits::BARRIER_WITHIN;
use broker::delivery::SettleReply;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::timeout;

/// Replies kept before those that have arrived are dropped.
const KEPT: usize = 64;
/// Most replies awaited. Of a client that rejects faster than dead letters are written, the newest are kept.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Rejects {
    replies: VecDeque<SettleReply>,
    /// Number of replies at which those that have arrived are dropped.
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

    /// Takes the rejects in flight, to wait for them.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Waits until the dead letters are stored, for [`BARRIER_WITHIN`] at most.
    pub(crate) async fn arrived(self) {
        if !self.replies.is_empty()
            && timeout(BARRIER_WITHIN, join_all(self.replies)).await.is_err()
        {
            tracing::debug!("dead letters have not arrived in time");
        }
    }
}
