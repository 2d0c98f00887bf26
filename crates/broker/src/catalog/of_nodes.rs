//! Topics that only nodes write ([`base::topics`]), each made by the first node that has something to write.

use std::collections::BTreeMap;

use base::PartitionId;
use machine::{NewTopic, Refusal};

use crate::broker::Broker;
use crate::error::ExecuteError;

impl Broker {
    /// The one partition of such a topic. It is made if it is not there, and keeps records for so many milliseconds, of so many
    /// bytes at most.
    pub async fn topic_of_nodes(
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
            match self.create_topic(NewTopic { name, uuid, partitions: 1, config }).await {
                Ok(_) => {}
                // Another node made it, of which this one is about to hear.
                Err(ExecuteError::Refused(Refusal::TopicExists { .. })) => {
                    self.catalog_is_current().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
