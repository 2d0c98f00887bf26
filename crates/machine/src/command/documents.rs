//! A change of several documents and a topic, with its preconditions.

use std::collections::BTreeMap;

use base::{Level, Levelled, TopicId};
use serde::{Deserialize, Serialize};

use super::NewTopic;

/// Preconditions and changes. Its fields are persisted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DocumentsChange {
    pub checks: Vec<Check>,
    /// No document is listed twice.
    pub documents: Vec<DocumentChange>,
    pub topic: TopicChange,
}

/// A precondition of a change. A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Check {
    /// The document has this version; 0: it does not exist.
    Document { space: String, name: String, version: u64 },
    /// The topic exists.
    Topic(TopicId),
    /// The space has this many documents with the prefix.
    Under { space: String, prefix: String, count: u64 },
}

base::levels!(Check {
    Level::FIRST => Document | Topic | Under;
});

/// A document to create, replace or, without a body, delete; `expect` as in
/// [`crate::Command::PutDocument`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DocumentChange {
    pub space: String,
    pub name: String,
    pub body: Option<Vec<u8>>,
    pub expect: Option<u64>,
}

/// A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum TopicChange {
    #[default]
    None,
    /// Created, with this lease group.
    Create { topic: NewTopic, group: Option<NewGroup> },
    /// Deleted with its lease groups.
    Delete(TopicId),
}

base::levels!(TopicChange {
    Level::FIRST => None | Delete;
    @ Self::Create { topic, .. } => topic.level();
});

/// A lease group created with its topic: it starts at the topic's start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewGroup {
    pub name: String,
    /// Its own values.
    pub config: BTreeMap<String, String>,
}

impl Levelled for DocumentsChange {
    fn level(&self) -> Level {
        let Self { checks, documents: _, topic } = self;
        checks.iter().map(Levelled::level).fold(topic.level(), Ord::max)
    }
}

impl DocumentsChange {
    /// Approximate size in an entry.
    pub(crate) fn weight(&self) -> usize {
        const SMALL: usize = 16;
        let values = |values: &BTreeMap<String, String>| -> usize {
            values.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
        };
        let of_check = |check: &Check| match check {
            Check::Document { space, name, .. } => space.len() + name.len(),
            Check::Topic(_) => 0,
            Check::Under { space, prefix, .. } => space.len() + prefix.len(),
        };
        let of_document = |change: &DocumentChange| {
            change.space.len() + change.name.len() + change.body.as_ref().map_or(0, Vec::len)
        };
        let of_topic = match &self.topic {
            TopicChange::None | TopicChange::Delete(_) => 0,
            TopicChange::Create { topic, group } => {
                let group =
                    group.as_ref().map_or(0, |group| group.name.len() + values(&group.config));
                topic.name.len() + values(&topic.config) + group
            }
        };
        let checks = self.checks.iter().map(|check| SMALL + of_check(check));
        let documents = self.documents.iter().map(|change| SMALL + of_document(change));
        checks.chain(documents).sum::<usize>() + of_topic
    }
}
