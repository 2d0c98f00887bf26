//! Requests about a lease group that the shard's leader may not know yet.
//!
//! The leader of a shard and the requesting node each know groups by their own copy of the catalog. Either may
//! be behind, so neither alone proves that a group does not exist.

use std::future::Future;
use std::time::Duration;

use base::LeaseGroupId;
use shard::error::Unavailable;
use tokio::time::{Instant, sleep};

use crate::broker::Broker;
use crate::limits::ADOPTED_WITHIN;

/// Pause before the next request to a leader that did not know the group.
const RETRY_DELAY: Duration = Duration::from_millis(20);

impl Broker {
    /// Repeats a request while the leader replies that the group is unknown but the newest catalog has it: the
    /// leader is behind. An unknown group in the outcome is not in the newest catalog.
    pub(super) async fn with_group<T, E: From<Unavailable>, Attempt>(
        &self,
        group: LeaseGroupId,
        is_unknown: impl Fn(&E) -> bool,
        mut request: impl FnMut() -> Attempt,
    ) -> Result<T, E>
    where
        Attempt: Future<Output = Result<T, E>>,
    {
        let deadline = Instant::now() + ADOPTED_WITHIN;
        loop {
            let outcome = request().await;
            if !outcome.as_ref().is_err_and(&is_unknown) {
                return outcome;
            }
            self.catalog_is_current().await?;
            if self.drivers().route(group).is_none() {
                return outcome;
            }
            if Instant::now() >= deadline {
                return Err(Unavailable::NotLeader.into());
            }
            sleep(RETRY_DELAY).await;
        }
    }
}
