//! The rules of all users: one document, so that what a request makes or takes away is one entry of the log.

use std::sync::Arc;

use base::limits::ACCESS_RULES_MAX;
use broker::Broker;
use documents::Expect;
use documents::store::{put, read};
use serde::{Deserialize, Serialize};

use crate::acl::{Rule, RuleFilter};
use crate::store::OpenError;
use crate::users::{UserError, Users};

/// Where they are.
pub(crate) const SPACE: &str = "access.rules";
const DOCUMENT: &str = "kafka";

#[derive(Default, Serialize, Deserialize)]
struct RulesDocument {
    rules: Vec<Rule>,
}

/// As the document has them, and its version.
pub(crate) fn current(broker: &Broker) -> Result<(u64, Vec<Rule>), OpenError> {
    let found = read::<RulesDocument>(broker, SPACE, DOCUMENT)?;
    Ok(found.map_or_else(Default::default, |found| (found.stored.version, found.body.rules)))
}

impl Users {
    /// Sorted.
    pub fn rules(&self) -> Arc<Vec<Rule>> {
        Arc::clone(&self.0.rules.read())
    }

    /// Adds rules; one that is there already is none the more for it. They are checked by [`Rule::check`].
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

    /// Takes away what any of the filters fits. Answers what that was, by filter.
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
            let expect = Expect::Version(version);
            match put(self.broker(), SPACE, name, &body, expect).await {
                Err(error) if error.is_conflict() => {}
                written => {
                    written?;
                    self.read_rules()?;
                    self.told_of_change();
                    return Ok(answer);
                }
            }
        }
    }

    /// Takes into memory what the document has.
    pub(crate) fn read_rules(&self) -> Result<(), OpenError> {
        // Under the lock, so that what is older never takes the place of what is newer.
        let mut rules = self.0.rules.write();
        *rules = Arc::new(current(self.broker())?.1);
        Ok(())
    }
}
