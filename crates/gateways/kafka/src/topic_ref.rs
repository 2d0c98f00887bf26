//! How a request names a topic: by name, or since Kafka 3.1 (fetch) and 4.1 (produce) by id.

use std::sync::Arc;

use uuid::Uuid;

use crate::errors::Fault;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TopicRef {
    /// Shared, since a fetch session has it once for each partition.
    Name(Arc<str>),
    Id(Uuid),
}

impl TopicRef {
    /// What to answer about a topic that is not there.
    pub(crate) fn unknown(&self) -> Fault {
        match self {
            Self::Name(_) => Fault::unknown_partition(),
            Self::Id(_) => Fault::unknown_topic_id(),
        }
    }
}
