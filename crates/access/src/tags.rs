//! User tags of RabbitMQ's management API: rights beyond permissions.
//!
//! | tag | |
//! |---|---|
//! | `management` | use the management API at all, as every tag below does |
//! | `policymaker` | set policies in virtual hosts that it may open |
//! | `monitoring` | look at the cluster, at all virtual hosts and connections |
//! | `administrator` | all of that, and change users, virtual hosts and permissions |
//!
//! Other tags are stored, and have no meaning.

use serde::{Deserialize, Serialize};

use crate::error::UserError;

const TAGS_MAX: usize = 32;
const TAG_BYTES_MAX: usize = 255;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tags(Vec<String>);

impl Tags {
    pub const NONE: Self = Self(Vec::new());

    pub fn new(tags: Vec<String>) -> Result<Self, UserError> {
        let is_one = |tag: &String| (1..=TAG_BYTES_MAX).contains(&tag.len());
        if tags.len() > TAGS_MAX || !tags.iter().all(is_one) {
            return Err(UserError::Tags);
        }
        let mut kept: Vec<String> = Vec::with_capacity(tags.len());
        for tag in tags {
            if !kept.contains(&tag) {
                kept.push(tag);
            }
        }
        Ok(Self(kept))
    }

    pub fn administrator() -> Self {
        Self(vec!["administrator".to_owned()])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }

    fn has(&self, tag: &str) -> bool {
        self.0.iter().any(|known| known == tag)
    }

    pub(crate) fn administers(&self) -> bool {
        self.has("administrator")
    }

    pub(crate) fn looks(&self) -> bool {
        self.has("monitoring") || self.administers()
    }

    pub(crate) fn sets_policies(&self) -> bool {
        self.has("policymaker") || self.administers()
    }

    pub(crate) fn manages(&self) -> bool {
        self.has("management") || self.looks() || self.sets_policies()
    }
}
