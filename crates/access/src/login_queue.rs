//! Log-ins by password that wait: for a core to check them on, and for the answers to those before them.

use std::net::IpAddr;

use base::limits::{
    AMQP_PASSWORD_CHECKS_AT_ONCE_MAX, LOGINS_AT_ONCE_PER_NAME_MAX, LOGINS_WAITING_PER_ADDRESS_MAX,
};
use tokio::sync::{Mutex, MutexGuard};
use world::Instant;

use crate::turns::{Crowded, Turn, Turns};

/// An address and a name that is tried from it.
type Guessed = (IpAddr, Box<str>);

/// Checks of one address at a time, so that one alone never takes all turns.
const CHECKS_PER_ADDRESS_MAX: usize = 1;
/// Of a name: longer ones that begin alike share their turns.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct LoginQueue {
    /// Each check of a password holds 19 MiB and a core for its time.
    checks: Turns<IpAddr>,
    guesses: Turns<Guessed>,
    /// Begin of the last barrier that was passed for a log-in that failed.
    barrier: Mutex<Option<Instant>>,
}

impl Default for LoginQueue {
    fn default() -> Self {
        let waiting = LOGINS_WAITING_PER_ADDRESS_MAX;
        let each = CHECKS_PER_ADDRESS_MAX;
        Self {
            checks: Turns::new(AMQP_PASSWORD_CHECKS_AT_ONCE_MAX, each, waiting),
            guesses: Turns::new(usize::MAX, LOGINS_AT_ONCE_PER_NAME_MAX, waiting),
            barrier: Mutex::new(None),
        }
    }
}

impl LoginQueue {
    /// The right to check a password that came from this address.
    pub(crate) async fn check(&self, peer: IpAddr) -> Result<Turn<IpAddr>, Crowded> {
        self.checks.take(peer.to_canonical()).await
    }

    /// The right to try a password of this name, until that is answered.
    pub(crate) async fn guess(&self, peer: IpAddr, name: &str) -> Result<Turn<Guessed>, Crowded> {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        self.guesses.take((peer.to_canonical(), name.into())).await
    }

    /// One barrier at a time; it holds for all that failed before it began.
    pub(crate) async fn barrier(&self) -> MutexGuard<'_, Option<Instant>> {
        self.barrier.lock().await
    }
}
