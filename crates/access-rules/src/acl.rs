//! Kafka's access lists: rules and filters of rules. Pure.
//!
//! A rule is kept exactly as it was sent. Its codes are Kafka's (`AclBinding`, KIP-11, KIP-290).

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Name of the only resource of kind `Cluster`.
pub const CLUSTER: &str = "kafka-cluster";
/// As the name of a literal rule it matches every name.
const WILDCARD: &str = "*";
const PRINCIPAL_KIND: &str = "User:";

/// Enums with Kafka's codes and human-readable words.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn code(self) -> i8 {
                match self { $(Self::$variant => $code,)* }
            }

            pub fn from_code(code: i8) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.code() == code)
            }

            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.word() == word)
            }
        }
    };
}

codes! {
    /// Kind of resource that a rule applies to.
    Resource {
        Topic = 2, "topic";
        Group = 3, "group";
        Cluster = 4, "cluster";
        TransactionalId = 5, "transactional-id";
        DelegationToken = 6, "delegation-token";
        User = 7, "user";
    }
}

codes! {
    /// Action on a resource.
    Action {
        Any = 2, "all";
        Read = 3, "read";
        Write = 4, "write";
        Create = 5, "create";
        Delete = 6, "delete";
        Alter = 7, "alter";
        Describe = 8, "describe";
        ClusterAction = 9, "cluster-action";
        DescribeConfigs = 10, "describe-configs";
        AlterConfigs = 11, "alter-configs";
        IdempotentWrite = 12, "idempotent-write";
        CreateTokens = 13, "create-tokens";
        DescribeTokens = 14, "describe-tokens";
        TwoPhaseCommit = 15, "two-phase-commit";
    }
}

codes! {
    /// How a rule's name is matched.
    Pattern {
        Literal = 3, "literal";
        Prefixed = 4, "prefixed";
    }
}

codes! {
    Verdict {
        Deny = 2, "deny";
        Allow = 3, "allow";
    }
}

impl Action {
    /// Whether permission for this action includes the other.
    fn implies(self, other: Self) -> bool {
        match other {
            Self::Describe => {
                matches!(self, Self::Read | Self::Write | Self::Delete | Self::Alter)
            }
            Self::DescribeConfigs => self == Self::AlterConfigs,
            _ => false,
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub resource: Resource,
    pub pattern: Pattern,
    pub name: String,
    /// `User:NAME`, or `User:*` for every user.
    pub principal: String,
    /// An address, or `*`.
    pub host: String,
    pub action: Action,
    pub verdict: Verdict,
}

/// Reason why a rule is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    #[error("a principal is User:NAME, or User:* for everybody")]
    Principal,
    #[error("a host is an address, or * for all")]
    Host,
    #[error("a rule has a name of 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    #[error("the one cluster is called {CLUSTER}")]
    Cluster,
}

const NAME_BYTES_MAX: usize = 255;

impl Rule {
    pub fn check(&self) -> Result<(), RuleError> {
        let user = self.principal.strip_prefix(PRINCIPAL_KIND).unwrap_or_default();
        if !(1..=NAME_BYTES_MAX).contains(&user.len()) {
            return Err(RuleError::Principal);
        }
        if self.host != WILDCARD && self.host.parse::<IpAddr>().is_err() {
            return Err(RuleError::Host);
        }
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) {
            return Err(RuleError::Name);
        }
        if self.resource == Resource::Cluster && self.name != CLUSTER {
            return Err(RuleError::Cluster);
        }
        Ok(())
    }

    /// Whether the rule applies to this user at this address.
    pub fn is_about(&self, user: &str, host: IpAddr) -> bool {
        let named = self.principal.strip_prefix(PRINCIPAL_KIND);
        let is_named = named.is_some_and(|named| named == user || named == WILDCARD);
        let host = host.to_canonical();
        let is_host = |text: &str| text.parse::<IpAddr>().is_ok_and(|it| it.to_canonical() == host);
        is_named && (self.host == WILDCARD || is_host(&self.host))
    }

    /// Whether the rule names this user, alone.
    pub fn is_about_only(&self, user: &str) -> bool {
        user != WILDCARD && self.principal.strip_prefix(PRINCIPAL_KIND) == Some(user)
    }

    /// Whether the rule applies to a resource of this name.
    pub fn covers(&self, resource: Resource, name: &str) -> bool {
        self.resource == resource
            && match self.pattern {
                Pattern::Literal => self.name == name || self.name == WILDCARD,
                Pattern::Prefixed => name.starts_with(&*self.name),
            }
    }

    /// Whether the rule allows or denies this action.
    pub fn decides(&self, action: Action) -> bool {
        let is_it = self.action == action || self.action == Action::Any;
        is_it || self.verdict == Verdict::Allow && self.action.implies(action)
    }
}

/// How a filter selects rules by pattern and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatternFilter {
    Any,
    /// Rules that apply to a resource of the name.
    Match,
    Is(Pattern),
}

/// Selects the rules that match all given fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleFilter {
    pub resource: Option<Resource>,
    pub pattern: PatternFilter,
    pub name: Option<String>,
    pub principal: Option<String>,
    pub host: Option<String>,
    pub action: Option<Action>,
    pub verdict: Option<Verdict>,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, pattern, name, principal, host, action, verdict } = self;
        let (verdict, action) = (verdict.word(), action.word());
        let (pattern, resource) = (pattern.word(), resource.word());
        write!(f, "{verdict} {principal} {action} of {pattern} {resource} {name:?} from {host}")
    }
}

impl fmt::Display for RuleFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, pattern, name, principal, host, action, verdict } = self;
        let pattern = match pattern {
            PatternFilter::Any => "any",
            PatternFilter::Match => "matching",
            PatternFilter::Is(pattern) => pattern.word(),
        };
        let verdict = verdict.map_or("any verdict for", Verdict::word);
        let action = action.map_or("any action", Action::word);
        let resource = resource.map_or("resource", Resource::word);
        let (principal, host) =
            (principal.as_deref().unwrap_or("anybody"), host.as_deref().unwrap_or("anywhere"));
        write!(f, "{verdict} {principal} {action} of {pattern} {resource} ")?;
        match name {
            Some(name) => write!(f, "{name:?}")?,
            None => f.write_str("of any name")?,
        }
        write!(f, " from {host}")
    }
}

impl RuleFilter {
    pub fn fits(&self, rule: &Rule) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, found: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        }
        let name = match (&self.pattern, &self.name) {
            (PatternFilter::Is(pattern), _) if *pattern != rule.pattern => false,
            (_, None) => true,
            (PatternFilter::Match, Some(name)) => rule.covers(rule.resource, name),
            (_, Some(name)) => *name == rule.name,
        };
        name && is(&self.resource, &rule.resource)
            && is(&self.principal, &rule.principal)
            && is(&self.host, &rule.host)
            && is(&self.action, &rule.action)
            && is(&self.verdict, &rule.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, pattern: Pattern) -> Rule {
        Rule {
            resource: Resource::Topic,
            pattern,
            name: name.into(),
            principal: "User:app".into(),
            host: "*".into(),
            action: Action::Read,
            verdict: Verdict::Allow,
        }
    }

    #[test]
    fn rule_matches_a_literal_name_a_prefix_or_every_name() {
        let covers = |rule: &Rule, name| rule.covers(Resource::Topic, name);
        let literal = rule("orders", Pattern::Literal);
        assert!(covers(&literal, "orders") && !covers(&literal, "orders.eu"));
        let prefixed = rule("orders", Pattern::Prefixed);
        assert!(covers(&prefixed, "orders.eu") && !covers(&prefixed, "order"));
        assert!(covers(&rule("*", Pattern::Literal), "x"));
        assert!(!covers(&rule("*", Pattern::Prefixed), "x"));
        assert!(!literal.covers(Resource::Group, "orders"));
    }

    #[test]
    fn allow_rule_implies_describe_and_deny_rule_does_not() {
        let mut rule = rule("x", Pattern::Literal);
        assert!(rule.decides(Action::Describe) && !rule.decides(Action::Write));
        rule.action = Action::AlterConfigs;
        assert!(rule.decides(Action::DescribeConfigs) && !rule.decides(Action::Describe));
        rule.action = Action::Any;
        assert!(Action::ALL.iter().all(|action| rule.decides(*action)));
        (rule.action, rule.verdict) = (Action::Read, Verdict::Deny);
        assert!(rule.decides(Action::Read) && !rule.decides(Action::Describe));
    }

    #[test]
    fn rule_applies_to_one_or_all_users_from_one_or_all_addresses() {
        let (here, there) = ("10.0.0.1".parse().expect("ip"), "10.0.0.2".parse().expect("ip"));
        let mut rule = rule("x", Pattern::Literal);
        assert!(rule.is_about("app", here) && !rule.is_about("other", here));
        rule.host = "10.0.0.1".into();
        assert!(rule.is_about("app", here) && !rule.is_about("app", there));
        assert!(rule.is_about("app", "::ffff:10.0.0.1".parse().expect("ip")));
        rule.principal = "User:*".into();
        assert!(rule.is_about("other", here));
        for (principal, host) in
            [("app", "*"), ("Group:app", "*"), ("User:", "*"), ("User:a", "host")]
        {
            let wrong = Rule { principal: principal.into(), host: host.into(), ..rule.clone() };
            assert!(wrong.check().is_err(), "{principal} {host}");
        }
        let cluster = Rule { resource: Resource::Cluster, ..rule };
        assert_eq!(cluster.check(), Err(RuleError::Cluster));
    }

    #[test]
    fn filter_finds_rules_by_literal_name_or_by_match() {
        let filter = |pattern, name: Option<&str>| RuleFilter {
            resource: None,
            pattern,
            name: name.map(str::to_owned),
            principal: None,
            host: None,
            action: None,
            verdict: None,
        };
        let all = [
            rule("a", Pattern::Literal),
            rule("a", Pattern::Prefixed),
            rule("*", Pattern::Literal),
        ];
        let found = |pattern, name| {
            let filter = filter(pattern, name);
            all.iter().map(|rule| filter.fits(rule)).collect::<Vec<_>>()
        };
        assert_eq!(found(PatternFilter::Any, None), [true; 3]);
        assert_eq!(found(PatternFilter::Any, Some("a")), [true, true, false]);
        assert_eq!(found(PatternFilter::Match, Some("ab")), [false, true, true]);
        assert_eq!(found(PatternFilter::Is(Pattern::Literal), Some("a")), [true, false, false]);
        let other =
            RuleFilter { principal: Some("User:x".into()), ..filter(PatternFilter::Any, None) };
        assert!(!all.iter().any(|rule| other.fits(rule)));
    }
}
