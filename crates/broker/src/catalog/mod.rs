//! The catalog: topics, lease groups, configurations and documents.
//!
//! Every node has a copy of it, so this node answers queries at once and without a request to others. A
//! [`CatalogView`] shows definitions only, nothing that records change: the contents of a partition and the progress
//! of a group belong to a shard, which another node may lead ([`crate::ShardClient`]).
//!
//! * [`topic`], [`lease_group`]: the definitions
//! * `changes`: changing the catalog, through the log
//! * `current`: changes of documents, and the freshness of this node's copy

mod changes;
mod current;
mod internal_topics;
pub mod lease_group;
pub mod topic;

use std::fmt;
use std::ops::Bound;

use base::{LeaseGroupId, TopicId};
use machine::config::{GroupConfig, NodeConfig, TopicConfig};
use machine::{Catalog, CatalogStamp, Document, NewTopic, Refusal, TopicDefinition};
use shard::state_machine::state_lock::StateReadGuard;
use uuid::Uuid;

use crate::broker::Broker;

pub use changes::ProducerIdentity;
pub use lease_group::LeaseGroup;
pub use topic::Topic;

/// The catalog as it is now, read under the lock that an apply waits for.
///
/// Copy the values that are needed and drop the view. Bind its results to a variable before matching on them: the
/// view would otherwise live as long as the `match`, and a second one taken meanwhile on the same thread could
/// deadlock behind an apply that waits for the first (builds with assertions panic). The view cannot be sent to
/// another thread, and clippy rejects one that is held across an await.
#[clippy::has_significant_drop]
pub struct CatalogView<'a>(StateReadGuard<'a, Catalog>);

impl Broker {
    /// Opens a view of the catalog.
    pub fn catalog(&self) -> CatalogView<'_> {
        CatalogView(self.catalog_shard().shard.state().map(|state| &state.catalog))
    }
}

impl fmt::Debug for CatalogView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CatalogView").field(&self.stamp()).finish()
    }
}

// ---------------------------------------------------------------------------------------- topics

impl CatalogView<'_> {
    pub fn topic(&self, topic: TopicId) -> Option<Topic<'_>> {
        self.0.topic(topic).map(Topic)
    }

    pub fn topic_named(&self, name: &str) -> Option<Topic<'_>> {
        self.0.topic_named(name).map(Topic)
    }

    pub fn topic_with_uuid(&self, uuid: &Uuid) -> Option<Topic<'_>> {
        self.0.topic_with_uuid(uuid).map(Topic)
    }

    /// Returns the number of the topic of this name.
    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.topic_named(name).map(Topic::id)
    }

    /// Sorted by name.
    pub fn topics(&self) -> impl Iterator<Item = Topic<'_>> {
        self.0.topics().map(Topic)
    }

    /// Topics from this name on, sorted: for reading all of them in pages.
    pub fn topics_from(&self, name: Bound<&str>) -> impl Iterator<Item = Topic<'_>> {
        self.0.topics_from(name).map(Topic)
    }

    pub fn topic_count(&self) -> usize {
        self.0.topic_count()
    }

    /// Total over all topics.
    pub fn partition_count(&self) -> u64 {
        self.0.partition_count()
    }

    /// Differs between two times if a topic was created, grown or deleted in between.
    pub fn stamp(&self) -> CatalogStamp {
        self.0.stamp()
    }

    /// Checks whether [`Broker::create_topics`] would create this topic now, and returns its configuration.
    pub fn check_new_topic(&self, new: &NewTopic) -> Result<TopicConfig, Refusal> {
        Broker::check_new_topic_name(&new.name)?;
        self.0.check_new_topic(new)
    }

    /// Checks whether [`Broker::change_topic`] would change the topic to `wanted` now.
    pub fn check_definition(
        &self,
        topic: TopicId,
        seen: &TopicDefinition,
        wanted: &TopicDefinition,
    ) -> Result<(), Refusal> {
        self.0.check_definition(topic, seen, wanted)
    }

    /// Checks whether [`Broker::create_partitions`] would grow this topic now.
    pub fn check_create_partitions(&self, topic: TopicId, total: u32) -> Result<(), Refusal> {
        self.0.check_create_partitions(topic, total)
    }
}

// --------------------------------------------------------------------------------- configurations

impl CatalogView<'_> {
    pub fn node_config(&self) -> &NodeConfig {
        self.0.node_config()
    }

    /// Returns a group's configuration; the default if none was set, whether or not the group exists.
    pub fn group_config(&self, name: &str) -> &GroupConfig {
        self.0.group_config(name)
    }

    /// Groups with settings of their own. Sorted by name.
    pub fn configured_groups(&self) -> impl Iterator<Item = &str> {
        self.0.configured_groups()
    }

    pub fn configured_group_count(&self) -> usize {
        self.0.configured_group_count()
    }
}

// ----------------------------------------------------------------------------------- lease groups

impl CatalogView<'_> {
    pub fn lease_group(&self, group: LeaseGroupId) -> Option<LeaseGroup<'_>> {
        self.0.lease_group(group).map(LeaseGroup)
    }

    pub fn lease_group_named(&self, topic: TopicId, name: &str) -> Option<LeaseGroup<'_>> {
        self.0.lease_group_named(topic, name).map(LeaseGroup)
    }

    /// Groups of this name, at most one per topic, sorted by number.
    pub fn lease_groups_with_name(&self, name: &str) -> impl Iterator<Item = LeaseGroup<'_>> {
        self.0.lease_groups_with_name(name).map(LeaseGroup)
    }

    /// Names of lease groups after this one, sorted: for reading all of them in pages.
    pub fn lease_group_names_after(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.lease_group_names_after(name)
    }

    /// Sorted by name.
    pub fn lease_groups_of(&self, topic: TopicId) -> impl Iterator<Item = LeaseGroup<'_>> {
        self.0.lease_groups_of(topic).map(LeaseGroup)
    }

    /// Sorted by number.
    pub fn lease_groups(&self) -> impl Iterator<Item = LeaseGroup<'_>> {
        self.0.lease_groups().map(LeaseGroup)
    }

    pub fn lease_group_count(&self) -> usize {
        self.0.lease_group_count()
    }
}

// -------------------------------------------------------------------------------------- documents

impl CatalogView<'_> {
    pub fn document(&self, space: &str, name: &str) -> Option<&Document> {
        self.0.document(space, name)
    }

    /// Sorted by name.
    pub fn documents(&self, space: &str) -> impl Iterator<Item = (&str, &Document)> {
        self.0.documents(space)
    }

    /// Documents whose names have this prefix. Sorted by name.
    pub fn documents_under(
        &self,
        space: &str,
        prefix: &str,
    ) -> impl Iterator<Item = (&str, &Document)> {
        self.0.documents_under(space, prefix)
    }

    /// Differs between two times if a document was created, replaced or deleted in between: documents read before are
    /// then out of date.
    pub fn documents_stamp(&self) -> u64 {
        self.0.documents_stamp()
    }
}
