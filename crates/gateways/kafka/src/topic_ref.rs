//! A topic in a request: by name, or since Kafka 3.1 (fetch) and 4.1 (produce) by id.

use std::sync::Arc;

use broker::CatalogView;
use broker::catalog::Topic;
use uuid::Uuid;

use crate::errors::Fault;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TopicRef {
    /// Shared, since a fetch session has it once for each partition.
    Name(Arc<str>),
    Id(Uuid),
}

impl TopicRef {
    pub(crate) fn find<'a>(&self, catalog: &'a CatalogView<'_>) -> Option<Topic<'a>> {
        match self {
            Self::Name(name) => catalog.topic_named(name),
            Self::Id(id) => catalog.topic_with_uuid(id),
        }
    }

    pub(crate) fn named(&self) -> RequestedTopic<'_> {
        match self {
            Self::Name(name) => RequestedTopic::Name(name),
            Self::Id(id) => RequestedTopic::Id(*id),
        }
    }

    /// The error for an unknown topic.
    pub(crate) fn unknown(&self) -> Fault {
        match self {
            Self::Name(_) => Fault::unknown_partition(),
            Self::Id(_) => Fault::unknown_topic_id(),
        }
    }
}

/// A topic as a request names it, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedTopic<'a> {
    Name(&'a str),
    Id(Uuid),
}
