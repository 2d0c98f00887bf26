//! A lease group as the catalog defines it.

use std::sync::Arc;

use base::{LeaseGroupId, TopicId};
use machine::config::{LeaseGroupConfig, Overrides};

/// The definition of a lease group, borrowed from a [`super::CatalogView`].
#[derive(Clone, Copy, Debug)]
pub struct LeaseGroup<'a>(pub(super) &'a machine::LeaseGroup);

impl<'a> LeaseGroup<'a> {
    /// Unique; never reused for another group.
    pub fn id(self) -> LeaseGroupId {
        self.0.id
    }

    pub fn topic(self) -> TopicId {
        self.0.topic
    }

    /// Unique in its topic.
    pub fn name(self) -> &'a Arc<str> {
        &self.0.name
    }

    /// Effective settings: the group's own values, then the defaults.
    pub fn config(self) -> &'a Arc<LeaseGroupConfig> {
        &self.0.config
    }

    /// The group's own settings, as they were set.
    pub fn overrides(self) -> &'a Arc<Overrides> {
        &self.0.overrides
    }

    /// Whether deliveries are paused.
    pub fn is_paused(self) -> bool {
        self.0.paused
    }

    pub fn created_ms(self) -> i64 {
        self.0.created_ms
    }
}
