//! Topics that come and go.

use std::collections::BTreeMap;

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Topics(BTreeMap<String, Topic>);

/// Whether a topic is there, as far as clients know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    There,
    Gone,
    /// It was asked for, or to be deleted, and there was no answer.
    Unknown,
}

impl Topics {
    pub fn set(&mut self, name: &str, topic: Topic) {
        self.0.insert(name.to_owned(), topic);
    }

    pub fn get(&self, name: &str) -> Topic {
        self.0.get(name).copied().unwrap_or(Topic::Gone)
    }

    pub fn check(&self, is_there: impl Fn(&str) -> bool, verdict: &Verdict) {
        for (name, topic) in &self.0 {
            let there = is_there(name);
            let wrong = match topic {
                Topic::There => !there,
                Topic::Gone => there,
                Topic::Unknown => false,
            };
            if wrong {
                let found = if there { "there" } else { "not there" };
                verdict.violated(Invariant::Catalog, format!("{name} is {found}; it is {topic:?}"));
            }
        }
    }
}
