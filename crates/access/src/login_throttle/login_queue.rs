//! Queues of log-ins by password: for a core to check them, and for replies to earlier ones.

use std::net::IpAddr;

use super::fair_queue::{FairQueue, FairQueueSlot, QueueFull};
use crate::limits::{
    AMQP_PASSWORD_CHECKS_AT_ONCE_MAX, LOGINS_AT_ONCE_PER_NAME_MAX, LOGINS_WAITING_PER_ADDRESS_MAX,
};
use tokio::sync::{Mutex, MutexGuard};
use world::Instant;

/// An address, and a name that is tried from it.
type AttemptKey = (IpAddr, Box<str>);

/// Concurrent checks of one address, so that one address never takes all turns.
const CHECKS_PER_ADDRESS_MAX: usize = 1;
/// Characters of a name: longer ones with the same beginning share their turns.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct LoginQueue {
    /// Each check of a password holds 19 MiB and a core.
    checks: FairQueue<IpAddr>,
    guesses: FairQueue<AttemptKey>,
    /// Start of the last barrier that a failed log-in passed.
    barrier: Mutex<Option<Instant>>,
}

impl Default for LoginQueue {
    fn default() -> Self {
        let waiting = LOGINS_WAITING_PER_ADDRESS_MAX;
        let each = CHECKS_PER_ADDRESS_MAX;
        Self {
            checks: FairQueue::new(AMQP_PASSWORD_CHECKS_AT_ONCE_MAX, each, waiting),
            guesses: FairQueue::new(usize::MAX, LOGINS_AT_ONCE_PER_NAME_MAX, waiting),
            barrier: Mutex::new(None),
        }
    }
}

impl LoginQueue {
    /// Takes a turn to check a password from this address.
    pub(crate) async fn check(&self, peer: IpAddr) -> Result<FairQueueSlot<IpAddr>, QueueFull> {
        self.checks.take(peer.to_canonical()).await
    }

    /// Takes a turn to try a password of this name, until the reply.
    pub(crate) async fn guess(
        &self,
        peer: IpAddr,
        name: &str,
    ) -> Result<FairQueueSlot<AttemptKey>, QueueFull> {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        self.guesses.take((peer.to_canonical(), name.into())).await
    }

    /// One barrier at a time; it covers all log-ins that failed before it began.
    pub(crate) async fn barrier(&self) -> MutexGuard<'_, Option<Instant>> {
        self.barrier.lock().await
    }
}
