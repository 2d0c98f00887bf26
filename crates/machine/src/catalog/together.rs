//! Atomic changes of several documents and a topic.
//!
//! A gateway that stores one fact in several documents changes them by one command, on condition
//! that the documents of its decision have not changed since.

use super::Catalog;
use crate::command::{Check, DocumentChange, DocumentsChange, TopicChange};
use crate::config::LeaseGroupConfig;
use crate::group_name::validate_group_name;
use crate::outcome::Refusal;

impl Catalog {
    /// Applies all of it, or returns why nothing was changed. [`crate::State`] then applies the
    /// topic's part, which also concerns rows; the validation here covers it.
    pub(crate) fn change_documents(&mut self, change: &DocumentsChange) -> Result<(), Refusal> {
        change.checks.iter().try_for_each(|check| self.check(check))?;
        self.check_topic_change(&change.topic)?;
        // Clones share unchanged documents.
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
                // One more than the expected count decides.
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
