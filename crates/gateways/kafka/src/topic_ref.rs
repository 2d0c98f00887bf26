//! A topic in a request: by name, or since Kafka 3.1 (fetch) and 4.1 (produce) by id.

use std::sync::Arc;

use broker::CatalogView;
use broker::catalog::Topic;
use uuid::Uuid;

use crate::authorization::Caller;
use crate::currency::RequestedTopic;
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

    /// Finds the topic, if the caller may perform the request's action on it. Otherwise the error does not
    /// reveal whether it exists.
    pub(crate) fn find_for<'a>(
        &self,
        caller: &Caller,
        catalog: &'a CatalogView<'_>,
    ) -> Result<Topic<'a>, Fault> {
        if let Self::Name(name) = self {
            caller.topic(name)?;
        }
        let found = self.find(catalog).ok_or_else(|| caller.missing(self.unknown()))?;
        caller.topic(found.name())?;
        Ok(found)
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
