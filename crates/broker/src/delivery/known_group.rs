//! Requests about a lease group that the leader it goes to may not know yet.
//!
//! The leader of a shard knows groups by its own copy of the catalog, and the node that asks knows them by another
//! copy. Either may be behind. So neither says alone that a group does not exist.

use std::time::Duration;

use base::LeaseGroupId;
use base::limits::ADOPTED_WITHIN;
use tokio::time::{Instant, sleep};

use crate::broker::Broker;
use crate::error::Unavailable;

/// Before the next request to a leader that did not know the group.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Attempts of one request about a group.
pub(super) struct Attempts<'a> {
    broker: &'a Broker,
    group: LeaseGroupId,
    deadline: Instant,
}

impl Broker {
    pub(super) fn attempts_at(&self, group: LeaseGroupId) -> Attempts<'_> {
        Attempts { broker: self, group, deadline: Instant::now() + ADOPTED_WITHIN }
    }
}

impl Attempts<'_> {
    /// Whether the request is to be repeated after the answer that there is no such group: the newest catalog has it, so
    /// the leader is behind. False for a group that the newest catalog does not have.
    pub(super) async fn is_group_there(&self) -> Result<bool, Unavailable> {
        self.broker.catalog_is_current().await?;
        if self.broker.drivers().route(self.group).is_none() {
            return Ok(false);
        }
        if Instant::now() >= self.deadline {
            return Err(Unavailable::NotLeader);
        }
        sleep(AGAIN_AFTER).await;
        Ok(true)
    }
}
