//! Whether somebody may do something: the one place where that is decided for clients of Kafka.
//!
//! A rule that denies wins, wherever it comes from; then one that allows; then RabbitMQ's permissions of the same user
//! in the virtual host `/`, whose queues are topics of the same name. What nothing allows is not allowed.
//!
//! | RabbitMQ's permission | of a topic | of a group |
//! |---|---|---|
//! | configure | create, delete, alter, alter and describe configurations | |
//! | write | write | |
//! | read | read | read, delete |
//! | any | describe | describe (read) |

use std::fmt;
use std::net::IpAddr;

use crate::acl::{Action, Resource, Rule, Verdict};
use crate::permissions::{Grant, Permission};
use crate::principal::Principal;
use crate::users::Users;

/// The virtual host whose queues are topics of the same name.
const VIRTUAL_HOST: &str = "/";

/// What somebody may do, as it was when this was asked for.
#[derive(Debug)]
pub struct Rights {
    stamp: u64,
    everything: bool,
    /// Those about this user from this address.
    rules: Vec<Rule>,
    grant: Option<Grant>,
}

/// Why somebody may do something, or not.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// The node's settings name the user, or it is the operator, or nobody logs in.
    Everything,
    Rule(&'a Rule),
    /// RabbitMQ's.
    Permission(Permission),
    /// Nothing allows it.
    Nothing,
}

impl Decision<'_> {
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Everything | Self::Permission(_) => true,
            Self::Rule(rule) => rule.verdict == Verdict::Allow,
            Self::Nothing => false,
        }
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("it may do everything"),
            Self::Permission(permission) => {
                write!(f, "the permission {} in vhost {VIRTUAL_HOST}", permission.name())
            }
            Self::Nothing => f.write_str("nothing allows it"),
            Self::Rule(rule) => write!(
                f,
                "the rule: {} {} {} of {} {} {:?} from {}",
                rule.verdict.word(),
                rule.principal,
                rule.action.word(),
                rule.pattern.word(),
                rule.resource.word(),
                rule.name,
                rule.host,
            ),
        }
    }
}

impl Rights {
    /// Of somebody who need not log in.
    pub fn everything() -> Self {
        Self { stamp: 0, everything: true, rules: Vec::new(), grant: None }
    }

    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether nothing has changed since about any user or rule.
    pub fn is_current(&self, users: &Users) -> bool {
        self.stamp == users.stamp()
    }

    pub fn allows(&self, action: Action, resource: Resource, name: &str) -> bool {
        self.everything || self.decide(action, resource, name).is_allowed()
    }

    pub fn decide(&self, action: Action, resource: Resource, name: &str) -> Decision<'_> {
        if self.everything {
            return Decision::Everything;
        }
        let deciding = |verdict| {
            let fits = |rule: &&Rule| {
                rule.verdict == verdict && rule.decides(action) && rule.covers(resource, name)
            };
            self.rules.iter().find(fits)
        };
        if let Some(rule) = deciding(Verdict::Deny).or_else(|| deciding(Verdict::Allow)) {
            return Decision::Rule(rule);
        }
        let Some(grant) = &self.grant else { return Decision::Nothing };
        let permissions = permissions(action, resource);
        let allowing = permissions.iter().find(|permission| grant.allows(**permission, name));
        allowing.map_or(Decision::Nothing, |permission| Decision::Permission(*permission))
    }

    /// Whether it is allowed for some name. What is denied for a name may be allowed for others; for all of them it
    /// is denied only by a rule for every name.
    pub fn allows_some(&self, action: Action, resource: Resource) -> bool {
        let is_for_all = |rule: &Rule| rule.covers(resource, "*");
        let decides = |rule: &&Rule| rule.resource == resource && rule.decides(action);
        let mut deciding = self.rules.iter().filter(decides);
        if deciding.clone().any(|rule| rule.verdict == Verdict::Deny && is_for_all(rule)) {
            return self.everything;
        }
        let by_permission = self.grant.is_some() && !permissions(action, resource).is_empty();
        self.everything || by_permission || deciding.any(|rule| rule.verdict == Verdict::Allow)
    }

    /// Kafka's bits of what is allowed, of these actions.
    pub fn bits(&self, actions: &[Action], resource: Resource, name: &str) -> i32 {
        let allowed = actions.iter().filter(|action| self.allows(**action, resource, name));
        allowed.fold(0, |bits, action| bits | 1 << action.code())
    }
}

/// RabbitMQ's permissions any of which is enough.
fn permissions(action: Action, resource: Resource) -> &'static [Permission] {
    use Permission::{Configure, Read, Write};
    match (resource, action) {
        (Resource::Topic, Action::Read) => &[Read],
        (Resource::Topic, Action::Write) => &[Write],
        (
            Resource::Topic,
            Action::Create | Action::Delete | Action::Alter | Action::AlterConfigs,
        ) => &[Configure],
        (Resource::Topic, Action::DescribeConfigs) => &[Configure],
        (Resource::Topic, Action::Describe) => &[Read, Write, Configure],
        (Resource::Group, Action::Read | Action::Describe | Action::Delete) => &[Read],
        _ => &[],
    }
}

impl Users {
    /// Why a user may do something from there, or not, in words; `None`: there is no such user.
    pub fn explain(
        &self,
        user: &str,
        host: IpAddr,
        action: Action,
        resource: Resource,
        name: &str,
    ) -> Option<(bool, String)> {
        let principal = self.exists(user).then(|| Principal::new(user, self))?;
        let rights = self.rights(&principal, host);
        let decision = rights.decide(action, resource, name);
        Some((decision.is_allowed(), decision.to_string()))
    }

    /// What somebody may do who comes from there.
    pub fn rights(&self, principal: &Principal, host: IpAddr) -> Rights {
        // Before anything is read: what changes meanwhile makes it look again.
        let stamp = self.stamp();
        let name = principal.name();
        if !principal.exists() {
            return Rights { stamp, everything: false, rules: Vec::new(), grant: None };
        }
        let rules = self.rules();
        Rights {
            stamp,
            everything: principal.is_super(),
            rules: rules.iter().filter(|rule| rule.is_about(name, host)).cloned().collect(),
            grant: self.grant(name, VIRTUAL_HOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::{CLUSTER, Pattern};
    use crate::permissions::Permissions;

    fn rule(verdict: Verdict, action: Action, pattern: Pattern, name: &str) -> Rule {
        let (principal, host) = ("User:app".to_owned(), "*".to_owned());
        let name = name.to_owned();
        Rule { resource: Resource::Topic, pattern, name, principal, host, action, verdict }
    }

    fn rights(rules: Vec<Rule>, grant: Option<[&str; 3]>) -> Rights {
        let grant = grant.map(|set| {
            let [configure, write, read] = set.map(str::to_owned);
            let patterns = Permissions { configure, write, read }.compile().expect("patterns");
            Grant::of(std::sync::Arc::new(patterns))
        });
        Rights { stamp: 1, everything: false, rules, grant }
    }

    #[test]
    fn what_nothing_allows_is_not_allowed_and_a_denial_wins() {
        use Verdict::{Allow, Deny};
        let none = rights(Vec::new(), None);
        assert!(!none.allows(Action::Describe, Resource::Topic, "a"));
        assert!(!none.allows_some(Action::Write, Resource::Topic));
        let rights = rights(
            vec![
                rule(Allow, Action::Any, Pattern::Prefixed, "a"),
                rule(Deny, Action::Write, Pattern::Literal, "a.secret"),
            ],
            None,
        );
        assert!(rights.allows(Action::Write, Resource::Topic, "a.public"));
        assert!(!rights.allows(Action::Write, Resource::Topic, "a.secret"));
        assert!(rights.allows(Action::Read, Resource::Topic, "a.secret"));
        assert!(!rights.allows(Action::Read, Resource::Topic, "b"));
        assert!(!rights.allows(Action::Read, Resource::Group, "a"));
        assert!(rights.allows_some(Action::Write, Resource::Topic));
        assert_eq!(
            rights.bits(&[Action::Read, Action::Write], Resource::Topic, "a.secret"),
            1 << 3
        );
        let told = rights.decide(Action::Write, Resource::Topic, "a.secret").to_string();
        assert!(told.contains("deny User:app write of literal topic"), "{told}");
    }

    #[test]
    fn who_is_denied_all_may_do_none_of_it() {
        let all = rule(Verdict::Deny, Action::Write, Pattern::Literal, "*");
        let one = rule(Verdict::Allow, Action::Write, Pattern::Literal, "a");
        assert!(!rights(vec![all, one], None).allows_some(Action::Write, Resource::Topic));
    }

    #[test]
    fn permissions_of_rabbitmq_are_of_topics_and_groups_and_of_nothing_else() {
        let rights = rights(Vec::new(), Some(["^c", "^w", "^r"]));
        for (action, resource, name, is_allowed) in [
            (Action::Read, Resource::Topic, "r", true),
            (Action::Read, Resource::Topic, "w", false),
            (Action::Write, Resource::Topic, "w", true),
            (Action::Create, Resource::Topic, "c", true),
            (Action::Delete, Resource::Topic, "r", false),
            (Action::Describe, Resource::Topic, "w", true),
            (Action::Describe, Resource::Topic, "x", false),
            (Action::Read, Resource::Group, "r", true),
            (Action::Read, Resource::Group, "c", false),
            (Action::Alter, Resource::Cluster, CLUSTER, false),
            (Action::Create, Resource::Cluster, CLUSTER, false),
        ] {
            assert_eq!(rights.allows(action, resource, name), is_allowed, "{action:?} {name}");
        }
        let denied = rule(Verdict::Deny, Action::Any, Pattern::Literal, "r");
        let rights = Rights { rules: vec![denied], ..rights };
        assert!(!rights.allows(Action::Read, Resource::Topic, "r"), "a denial wins here, too");
    }
}
