//! Description, tags and settings of a virtual host.
//!
//! They have a document of their own: a vhost is identified by the version of its document, which therefore never
//! changes.

use serde::{Deserialize, Serialize};

use crate::queue::QueueKind;

const VHOST_DESCRIPTION_BYTES_MAX: usize = 1 << 10;
const VHOST_TAGS_MAX: usize = 32;
const VHOST_TAG_BYTES_MAX: usize = 255;

/// Second part of the document's name, under the vhost's prefix.
pub(crate) const METADATA_NAME: &str = "metadata";

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub description: String,
    pub tags: Vec<String>,
    /// Type of queues declared without one, where they can be of that type. It is stored by name, so that a document
    /// of a version with more types can be read; an unknown name is ignored.
    pub default_queue_type: Option<String>,
    /// The vhost cannot be deleted while this is set.
    pub protected_from_deletion: bool,
}

/// Invalid metadata.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("a description has at most {VHOST_DESCRIPTION_BYTES_MAX} bytes")]
    Description,
    #[error("a virtual host has at most {VHOST_TAGS_MAX} tags")]
    Tags,
    #[error("a tag of a virtual host has 1 to {VHOST_TAG_BYTES_MAX} bytes")]
    Tag,
    #[error("default_queue_type {0:?} is none of classic, quorum and stream")]
    QueueType(String),
}

impl Metadata {
    pub fn check(&self) -> Result<(), MetadataError> {
        if self.description.len() > VHOST_DESCRIPTION_BYTES_MAX {
            return Err(MetadataError::Description);
        }
        if self.tags.len() > VHOST_TAGS_MAX {
            return Err(MetadataError::Tags);
        }
        if !self.tags.iter().all(|tag| (1..=VHOST_TAG_BYTES_MAX).contains(&tag.len())) {
            return Err(MetadataError::Tag);
        }
        match &self.default_queue_type {
            Some(kind) if QueueKind::named(kind).is_none() => {
                Err(MetadataError::QueueType(kind.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The type of a queue declared without one. Queues that must not outlive their owner are always classic.
    pub fn queue_kind(&self, outlives_everything: bool) -> QueueKind {
        let named = self.default_queue_type.as_deref().and_then(QueueKind::named);
        named.filter(|_| outlives_everything).unwrap_or(QueueKind::Classic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_or_unknown_metadata_is_rejected() {
        let ok = Metadata {
            description: "x".repeat(VHOST_DESCRIPTION_BYTES_MAX),
            tags: vec!["t".repeat(VHOST_TAG_BYTES_MAX); VHOST_TAGS_MAX],
            default_queue_type: Some("quorum".to_owned()),
            protected_from_deletion: true,
        };
        assert_eq!(ok.check(), Ok(()));
        let long = Metadata { description: format!("{}x", ok.description), ..ok.clone() };
        assert_eq!(long.check(), Err(MetadataError::Description));
        let many = Metadata { tags: vec!["t".to_owned(); VHOST_TAGS_MAX + 1], ..ok.clone() };
        assert_eq!(many.check(), Err(MetadataError::Tags));
        for tag in [String::new(), "t".repeat(VHOST_TAG_BYTES_MAX + 1)] {
            let wrong = Metadata { tags: vec![tag], ..ok.clone() };
            assert_eq!(wrong.check(), Err(MetadataError::Tag));
        }
        let kind = Some("mirrored".to_owned());
        let wrong = Metadata { default_queue_type: kind, ..ok.clone() };
        assert_eq!(wrong.check(), Err(MetadataError::QueueType("mirrored".to_owned())));
        assert_eq!(wrong.queue_kind(true), QueueKind::Classic);
        assert_eq!(
            (ok.queue_kind(true), ok.queue_kind(false)),
            (QueueKind::Quorum, QueueKind::Classic)
        );
    }
}
