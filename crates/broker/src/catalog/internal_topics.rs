//! Topics that only nodes write ([`base::topics`]). The first node with a record for such a topic creates it.

use std::collections::BTreeMap;

use base::PartitionId;
use machine::{NewTopic, Refusal};
use shard::error::ExecuteError;

use crate::broker::Broker;

impl Broker {
    /// Returns the one partition of such a topic, which is created if missing. It retains records for `kept_ms`
    /// milliseconds, and at most `kept_bytes` bytes.
    pub async fn internal_topic_partition(
        &self,
        name: &str,
        kept_ms: i64,
        kept_bytes: i64,
    ) -> Result<PartitionId, ExecuteError> {
        loop {
            if let Some(found) = self.catalog().topic_named(name) {
                return Ok(PartitionId::new(found.id(), 0));
            }
            let config = BTreeMap::from([
                ("retention.ms".to_owned(), kept_ms.to_string()),
                ("retention.bytes".to_owned(), kept_bytes.to_string()),
            ]);
            let (name, uuid) = (name.to_owned(), self.entropy().uuid());
            let new = NewTopic { name, uuid, partitions: 1, config };
            match self.create_checked(vec![new]).await?.into_iter().next() {
                // Another node created it; this node's copy of the catalog is about to have it.
                Some(Err(Refusal::TopicExists { .. })) => self.catalog_is_current().await?,
                Some(Err(refusal)) => return Err(ExecuteError::Refused(refusal)),
                Some(Ok(_)) | None => {}
            }
        }
    }
}
