//! The catalog as requests use it: topics, the partitions that a request names, and the barrier that makes the
//! node's copy current. Depends on the gateway's state, the caller's rights and the leaders.

pub(crate) mod currency;
pub(crate) mod partitions;

use std::ops::Bound;
use std::sync::Arc;

use base::{PartitionId, TopicId};
use broker::catalog::Topic;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::state::Gateway;

/// A topic's data, copied so that the catalog is locked only briefly.
#[derive(Clone, Debug)]
pub(crate) struct TopicSummary {
    pub(crate) id: TopicId,
    pub(crate) name: Arc<str>,
    pub(crate) uuid: Uuid,
    pub(crate) partitions: u32,
}

impl TopicSummary {
    pub(crate) fn of(topic: Topic<'_>) -> Self {
        Self {
            id: topic.id(),
            name: Arc::clone(topic.name()),
            uuid: topic.uuid(),
            partitions: topic.partition_count(),
        }
    }

    pub(crate) fn message_name(&self) -> TopicName {
        message_name(&self.name)
    }

    pub(crate) fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let id = self.id;
        (0..self.partitions).map(move |index| PartitionId::new(id, index))
    }
}

pub(crate) fn message_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// Topics that are copied under one lock: it delays appends.
const TOPICS_PER_LOOK: usize = 500;

/// All topics, sorted by name.
pub(crate) async fn all_topics(gateway: &Gateway) -> Vec<TopicSummary> {
    let mut topics: Vec<TopicSummary> = Vec::new();
    loop {
        let before = topics.len();
        let last = topics.last().map(|topic| Arc::clone(&topic.name));
        {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let catalog = gateway.broker.catalog();
            topics.extend(catalog.topics_from(from).take(TOPICS_PER_LOOK).map(TopicSummary::of));
        }
        if topics.len() - before < TOPICS_PER_LOOK {
            return topics;
        }
        tokio::task::yield_now().await;
    }
}
