//! Rules of all users: one document, so that the changes of a request are one entry of the log.

use std::sync::Arc;

use access_rules::acl::{Rule, RuleFilter};
use broker::Broker;
use documents::store::{put, read};
use documents::{Change, WritePrecondition};
use serde::{Deserialize, Serialize};

use super::Users;
use crate::error::{OpenError, UserError};
use crate::limits::ACCESS_RULES_MAX;

/// Space of the document.
pub(crate) const SPACE: &str = "access.rules";
const DOCUMENT: &str = "kafka";

#[derive(Default, Serialize, Deserialize)]
struct RulesDocument {
    rules: Vec<Rule>,
}

/// The rules in the document, and its version.
pub(crate) fn current(broker: &Broker) -> Result<(u64, Vec<Rule>), OpenError> {
    let found = read::<RulesDocument>(broker, SPACE, DOCUMENT)?;
    Ok(found.map_or_else(Default::default, |found| (found.stored.version, found.body.rules)))
}

/// Adds the deletion of the rules about a user to a change. It fails if the rules change meanwhile.
pub(crate) fn forget_user(
    change: &mut Change,
    broker: &Broker,
    user: &str,
) -> Result<(), UserError> {
    let (version, mut rules) = current(broker)?;
    let before = rules.len();
    rules.retain(|rule| !rule.is_about_only(user));
    let name = DOCUMENT.to_owned();
    match rules.len() == before {
        true => change.check_version(SPACE, name, version),
        false => {
            let expect = WritePrecondition::Version(version);
            change.put(SPACE, name, &RulesDocument { rules }, expect)?;
        }
    }
    Ok(())
}

impl Users {
    /// Sorted.
    pub fn rules(&self) -> Arc<Vec<Rule>> {
        Arc::clone(&self.0.rules.read())
    }

    /// Adds rules; existing ones are not duplicated. Callers validate them by [`Rule::check`].
    pub async fn add_rules(&self, rules: Vec<Rule>) -> Result<(), UserError> {
        self.change_rules(|known| {
            known.extend(rules.iter().cloned());
            known.sort();
            known.dedup();
            match known.len() > ACCESS_RULES_MAX {
                true => Err(UserError::TooManyRules),
                false => Ok(()),
            }
        })
        .await
    }

    /// Removes rules that match any of the filters. Returns the removed rules of each filter.
    pub async fn remove_rules(&self, filters: &[RuleFilter]) -> Result<Vec<Vec<Rule>>, UserError> {
        self.change_rules(|known| {
            let fits = |filter: &RuleFilter| {
                known.iter().filter(|rule| filter.fits(rule)).cloned().collect::<Vec<_>>()
            };
            let removed: Vec<Vec<Rule>> = filters.iter().map(fits).collect();
            known.retain(|rule| !filters.iter().any(|filter| filter.fits(rule)));
            Ok(removed)
        })
        .await
    }

    async fn change_rules<A>(
        &self,
        change: impl Fn(&mut Vec<Rule>) -> Result<A, UserError>,
    ) -> Result<A, UserError> {
        self.catch_up().await?;
        loop {
            let (version, mut rules) = current(self.broker())?;
            let before = rules.len();
            let known = rules.clone();
            let answer = change(&mut rules)?;
            if before == rules.len() && known == rules {
                return Ok(answer);
            }
            let (name, body) = (DOCUMENT.to_owned(), RulesDocument { rules });
            let expect = WritePrecondition::Version(version);
            match put(self.broker(), SPACE, name, &body, expect).await {
                Err(error) if error.is_conflict() => {}
                written => {
                    written?;
                    self.read_rules()?;
                    self.notify_changed();
                    return Ok(answer);
                }
            }
        }
    }

    /// Reads the document into memory.
    pub(crate) fn read_rules(&self) -> Result<(), OpenError> {
        // Under the lock, so that older state never replaces newer.
        let mut rules = self.0.rules.write();
        *rules = Arc::new(current(self.broker())?.1);
        Ok(())
    }
}
