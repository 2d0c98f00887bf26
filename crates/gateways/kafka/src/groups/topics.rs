//! The catalog as groups need it.

use base::queue_topics::is_of_other_vhost;
use broker::Broker;
use coordinator::subscription::{Catalog, CatalogStamp, Topic};
use coordinator::text;

/// The broker's catalog, seen by groups.
#[derive(Debug)]
pub(crate) struct Topics<'a>(pub(crate) &'a Broker);

impl Catalog for Topics<'_> {
    fn stamp(&self) -> CatalogStamp {
        self.0.catalog().stamp()
    }

    fn topic(&self, name: &str) -> Option<Topic> {
        self.0.catalog().topic_named(name).map(known_topic)
    }

    /// Queues of other virtual hosts are left out: a pattern is matched for the whole group, and some members
    /// may not see them.
    fn topics(&self) -> Vec<Topic> {
        let catalog = self.0.catalog();
        let topics = catalog.topics().filter(|topic| !is_of_other_vhost(topic.name()));
        topics.map(known_topic).collect()
    }
}

fn known_topic(topic: broker::catalog::Topic<'_>) -> Topic {
    Topic { id: topic.uuid(), name: text(topic.name()), partitions: topic.partition_count() }
}
