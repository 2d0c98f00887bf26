//! Requests about a lease group that the leader it goes to may not know yet.
//!
//! The leader of a shard knows groups by its own copy of the catalog, and the node that asks knows them by another
//! copy. Either may be behind. So neither says alone that a group does not exist.

use std::future::Future;
use std::time::Duration;

use base::LeaseGroupId;
use base::limits::ADOPTED_WITHIN;
use tokio::time::{Instant, sleep};

use crate::broker::Broker;
use crate::error::Unavailable;

/// Pause before the next request to a leader that did not know the group.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

impl Broker {
    /// Repeats a request while its answer is that the group is unknown and the newest catalog has the group: the leader is
    /// behind. An unknown group in the outcome is one that the newest catalog does not have.
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
            sleep(AGAIN_AFTER).await;
        }
    }
}
