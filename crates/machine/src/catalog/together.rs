//! Documents that change together, and a topic with them: all of it, or nothing.
//!
//! Whoever keeps several documents that say one thing changes them by one command, under the condition that
//! nothing which it was decided by has changed since.

use std::collections::BTreeMap;

use base::{Level, Levelled, TopicId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use crate::command::NewTopic;
use crate::config::LeaseGroupConfig;
use crate::outcome::Refusal;
use crate::rows::group::validate_group_name;

/// What is to be so, and what is to change then. Its fields are persisted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DocumentsChange {
    pub checks: Vec<Check>,
    /// None is named twice.
    pub documents: Vec<DocumentChange>,
    pub topic: TopicChange,
}

/// Something that must be so before anything changes. A variant is only ever added at the end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Check {
    /// The document has this version; 0: it is not there.
    Document { space: String, name: String, version: u64 },
    /// The topic is there.
    Topic(TopicId),
    /// So many documents of the space have names that begin so.
    Under { space: String, prefix: String, count: u64 },
}

base::levels!(Check {
    Level::FIRST => Document | Topic | Under;
});

/// A document that is made, replaced or, without a body, deleted; with `expect` as in
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
    /// Made, with this lease group.
    Create { topic: NewTopic, group: Option<NewGroup> },
    /// Deleted with its lease groups.
    Delete(TopicId),
}

base::levels!(TopicChange {
    Level::FIRST => None | Delete;
    @ Self::Create { topic, .. } => topic.level();
});

/// A lease group of a topic that is made with it: it begins at the topic's start.
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
    /// About how many bytes it takes of an entry.
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

impl Catalog {
    /// Does all of it, or says why nothing was done. The topic's part follows in [`crate::State`], which also has
    /// rows to tell; what is judged of it here holds there.
    pub(crate) fn change_documents(&mut self, change: &DocumentsChange) -> Result<(), Refusal> {
        change.checks.iter().try_for_each(|check| self.check(check))?;
        self.check_topic_change(&change.topic)?;
        // They share what does not change.
        let mut documents = self.documents.clone();
        for DocumentChange { space, name, body, expect } in &change.documents {
            match body {
                Some(body) => documents.put(space, name, body, *expect).map(drop)?,
                None => documents.delete(space, name, *expect)?,
            }
        }
        self.documents = documents;
        Ok(())
    }

    fn check(&self, check: &Check) -> Result<(), Refusal> {
        let conflict = |space: &String, name: &String, version, expected| {
            let (space, name) = (space.clone(), name.clone());
            Err(Refusal::DocumentConflict { space, name, version, expected })
        };
        match check {
            Check::Document { space, name, version: expected } => {
                let version = self.document(space, name).map_or(0, |found| found.version);
                if version == *expected {
                    Ok(())
                } else {
                    conflict(space, name, version, *expected)
                }
            }
            Check::Topic(topic) => match self.topic(*topic) {
                Some(_) => Ok(()),
                None => Err(Refusal::UnknownTopic { topic: *topic }),
            },
            Check::Under { space, prefix, count } => {
                // One more than there may be is enough to know.
                let at_most = usize::try_from(*count).unwrap_or(usize::MAX).saturating_add(1);
                let found = self.documents.under(space, prefix).take(at_most).count() as u64;
                if found == *count { Ok(()) } else { conflict(space, prefix, found, *count) }
            }
        }
    }

    fn check_topic_change(&self, change: &TopicChange) -> Result<(), Refusal> {
        match change {
            TopicChange::None => Ok(()),
            TopicChange::Delete(topic) => self.check(&Check::Topic(*topic)),
            TopicChange::Create { topic, group } => {
                self.check_new_topic(topic)?;
                let Some(group) = group else { return Ok(()) };
                validate_group_name(&group.name)?;
                LeaseGroupConfig::parse(&group.config)?;
                self.lease_groups.check_room(topic.partitions)
            }
        }
    }
}
