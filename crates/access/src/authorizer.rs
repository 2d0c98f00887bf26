//! Authorization: the one place that decides whether an action is allowed, for every protocol.
//!
//! Rules that deny come first, whichever protocol set them; then rules that allow; then RabbitMQ's permissions.
//! Without a match an action is denied. A queue of a virtual host and its topic are one thing under two names, and
//! both are checked. In virtual host `/` the names are equal, so that a permission there opens the topic to Kafka,
//! and a rule opens the queue to AMQP. With `authorize-cross-protocol` off, each protocol uses only its own kind.
//!
//! Kafka's actions and the RabbitMQ permissions that allow them:
//!
//! | RabbitMQ's permission | of a topic | of a group |
//! |---|---|---|
//! | configure | create, delete, alter, alter and describe configurations | |
//! | write | write | |
//! | read | read | read, delete |
//! | any | describe | describe (read) |
//!
//! The other direction, and our own operations, are in the table of [`crate::operation`].
//!
//! # Virtual hosts
//!
//! A topic below `amqp.<vhost>.` belongs to that virtual host ([`base::queue_topics`]), and so does a group with such
//! a name. For both, only the permissions of that virtual host count, matched with the queue's name. A rule that
//! allows counts if its own name begins with `amqp.`; a rule for all names does not. A rule that denies always
//! counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use access_rules::acl::{Action, CLUSTER, Resource, Rule, Verdict};
use base::MAIN_LEASE_GROUP;
use base::queue_topics::{self, DEFAULT_VHOST, TopicOwner};
use base::topics::is_written_by_nodes;

use crate::audit::AuditedClient;
use crate::operation::Operation;
use crate::permissions::{Grant, Permission};
use crate::principal::Principal;
use crate::tags::Tags;
use crate::users::Users;

/// Target of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessTarget<'a> {
    /// A topic by its name, which is also a queue of its virtual host.
    Topic(&'a str),
    /// A queue and its topic.
    Queue {
        virtual_host: &'a str,
        name: &'a str,
        topic: &'a str,
    },
    /// A group that consumes a topic.
    Group {
        topic: &'a str,
        group: &'a str,
    },
    Exchange {
        virtual_host: &'a str,
        name: &'a str,
    },
    Cluster,
}

/// A snapshot of what a principal may do.
#[derive(Clone, Debug)]
pub struct Rights {
    stamp: u64,
    everything: bool,
    /// Whether rules and permissions of one protocol count for the others, too.
    across: bool,
    /// Rules about this user at this address.
    rules: Vec<Rule>,
    /// Keyed by virtual host.
    grants: BTreeMap<Arc<str>, Grant>,
    tags: Tags,
    /// The client, for the audit; `None`: it is not audited.
    caller: Option<Arc<AuditedClient>>,
}

/// Reason why an action is allowed or denied.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'a> {
    /// A user of the node's settings, the operator, or a port without log-in.
    Everything,
    Rule(&'a Rule),
    /// A RabbitMQ permission in a virtual host.
    Permission(Permission, &'a str),
    /// A tag of RabbitMQ's management.
    Tag,
    /// Nothing allows it.
    Nothing,
}

impl Decision<'_> {
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Everything | Self::Permission(..) | Self::Tag => true,
            Self::Rule(rule) => rule.verdict == Verdict::Allow,
            Self::Nothing => false,
        }
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("it may do everything"),
            Self::Permission(permission, virtual_host) => {
                write!(f, "the permission {} in vhost {virtual_host}", permission.name())
            }
            Self::Tag => f.write_str("a tag of the user"),
            Self::Nothing => f.write_str("nothing allows it"),
            Self::Rule(rule) => write!(f, "the rule: {rule}"),
        }
    }
}

/// One authorization request, under both names of its target.
#[derive(Clone, Debug)]
struct AuthorizationRequest<'q> {
    /// In Kafka's terms, for rules.
    rule: Option<(Resource, Action, &'q str)>,
    /// In RabbitMQ's terms: a name in a virtual host, and permissions of which one is enough.
    permission: Option<(TopicOwner<'q>, &'q [Permission])>,
    /// Whether the request came by AMQP.
    of_rabbitmq: bool,
}

impl Rights {
    /// Rights of a client that need not log in.
    pub fn everything() -> Self {
        let (rules, grants) = (Vec::new(), BTreeMap::new());
        Self {
            stamp: 0,
            everything: true,
            across: true,
            rules,
            grants,
            tags: Tags::administrator(),
            caller: None,
        }
    }

    /// All rights, for an operation that a right of this client covers as a whole. Its decisions are audited as before.
    pub fn to_everything(&self) -> Self {
        Self { caller: self.caller.clone(), ..Self::everything() }
    }

    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Whether no user or rule has changed since the snapshot.
    pub fn is_current(&self, users: &Users) -> bool {
        self.stamp == users.stamp()
    }

    // ------------------------------------------------------------------------------ deciding

    /// Every request of every protocol is decided here.
    fn answer<'a>(&'a self, question: AuthorizationRequest<'a>) -> Decision<'a> {
        if self.everything {
            return Decision::Everything;
        }
        if let Some((Resource::Topic, action, name)) = question.rule
            && is_written_by_nodes(name)
        {
            return self.decide_on_node_topic(action);
        }
        let counts_rules = self.across || !question.of_rabbitmq;
        if let Some((resource, action, name)) = question.rule.filter(|_| counts_rules) {
            let deciding = |verdict| {
                let fits = |rule: &&Rule| {
                    rule.verdict == verdict
                        && rule.decides(action)
                        && rule.covers(resource, name)
                        && reaches(rule, name)
                };
                self.rules.iter().find(fits)
            };
            if let Some(rule) = deciding(Verdict::Deny).or_else(|| deciding(Verdict::Allow)) {
                return Decision::Rule(rule);
            }
        }
        let counts_permissions = self.across || question.of_rabbitmq;
        let asked = question.permission.filter(|_| counts_permissions);
        let Some((owner, permissions)) = asked else { return Decision::Nothing };
        let granted = owner.virtual_host.and_then(|it| self.grants.get_key_value(&*it));
        let Some((virtual_host, grant)) = granted else { return Decision::Nothing };
        let allows = |permission: &&Permission| match &owner.queue {
            Some(name) => grant.allows(**permission, name),
            None => grant.allows_every_name(**permission),
        };
        let allowing = permissions.iter().find(allows);
        allowing.map_or(Decision::Nothing, |it| Decision::Permission(*it, virtual_host))
    }

    /// Topics that nodes write about all users: administrators of the cluster may read and describe them, no user may
    /// write them.
    fn decide_on_node_topic(&self, action: Action) -> Decision<'_> {
        let is_a_look = matches!(
            action,
            Action::Read | Action::Describe | Action::DescribeConfigs | Action::AlterConfigs
        );
        match is_a_look {
            true => self.decide_on(Operation::Administer, AccessTarget::Cluster),
            false => Decision::Nothing,
        }
    }

    /// Decides whether an operation may be done to a target.
    pub fn decide_on<'a>(&'a self, operation: Operation, target: AccessTarget<'a>) -> Decision<'a> {
        let needs = operation.needs();
        let of_topic = |topic: &'a str, permission, of_rabbitmq| {
            let rule = needs.topic.map(|action| (Resource::Topic, action, topic));
            self.answer(AuthorizationRequest { rule, permission, of_rabbitmq })
        };
        let same = |name: &'a str| Some((queue_topics::owner(name), needs.permissions));
        let known = |virtual_host: &'a str, name: &'a str| TopicOwner {
            virtual_host: Some(Cow::Borrowed(virtual_host)),
            queue: Some(Cow::Borrowed(name)),
        };
        match target {
            AccessTarget::Topic(name) => of_topic(name, same(name), false),
            AccessTarget::Queue { virtual_host, name, topic } => {
                of_topic(topic, Some((known(virtual_host, name), needs.permissions)), true)
            }
            AccessTarget::Group { topic, group } => {
                let decision = of_topic(topic, same(topic), false);
                match needs.group {
                    // The main lease group is the queue itself, and has no name of its own.
                    Some(action) if decision.is_allowed() && group != MAIN_LEASE_GROUP => {
                        self.decide_on_group_of(topic, action, group)
                    }
                    _ => decision,
                }
            }
            AccessTarget::Exchange { virtual_host, name } => {
                let permission = Some((known(virtual_host, name), needs.permissions));
                self.answer(AuthorizationRequest { rule: None, permission, of_rabbitmq: true })
            }
            AccessTarget::Cluster => match needs.cluster {
                Some(action) => match self.decide(action, Resource::Cluster, CLUSTER) {
                    Decision::Nothing if self.by_tag(operation) => Decision::Tag,
                    decision => decision,
                },
                None if self.everything => Decision::Everything,
                None => Decision::Nothing,
            },
        }
    }

    /// A group of a queue belongs to the queue's virtual host, unless its name is below another one.
    fn decide_on_group_of<'a>(
        &'a self,
        topic: &'a str,
        action: Action,
        group: &'a str,
    ) -> Decision<'a> {
        let mut owner = queue_topics::owner(group);
        if owner.is_default() {
            owner.virtual_host = queue_topics::owner(topic).virtual_host;
        }
        self.answer(AuthorizationRequest {
            rule: Some((Resource::Group, action, group)),
            permission: Some((owner, permissions(action, Resource::Group))),
            of_rabbitmq: false,
        })
    }

    fn by_tag(&self, operation: Operation) -> bool {
        match operation {
            Operation::Look => self.tags.looks(),
            Operation::Administer => self.tags.administers(),
            _ => false,
        }
    }

    /// Whether the user may use RabbitMQ's management API at all.
    pub fn manages(&self) -> bool {
        self.tags.manages() || self.would(Operation::Look, AccessTarget::Cluster)
    }

    /// Whether the user may set policies in the virtual hosts that it may open.
    pub fn sets_policies(&self) -> bool {
        self.tags.sets_policies() || self.would(Operation::Administer, AccessTarget::Cluster)
    }

    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Decides a request in Kafka's terms.
    pub fn decide<'a>(&'a self, action: Action, resource: Resource, name: &'a str) -> Decision<'a> {
        let permission = Some((queue_topics::owner(name), permissions(action, resource)));
        self.answer(AuthorizationRequest {
            rule: Some((resource, action, name)),
            permission,
            of_rabbitmq: false,
        })
    }

    /// Whether the action is allowed for at least one name. A rule that denies one name does not deny the others;
    /// only a rule for every name denies all.
    pub fn allows_some(&self, action: Action, resource: Resource) -> bool {
        let is_for_all = |rule: &Rule| rule.covers(resource, "*");
        let decides = |rule: &&Rule| rule.resource == resource && rule.decides(action);
        let mut deciding = self.rules.iter().filter(decides);
        if deciding.clone().any(|rule| rule.verdict == Verdict::Deny && is_for_all(rule)) {
            return self.everything;
        }
        let by_permission =
            self.across && !self.grants.is_empty() && !permissions(action, resource).is_empty();
        self.everything || by_permission || deciding.any(|rule| rule.verdict == Verdict::Allow)
    }

    /// Kafka's bit field of the allowed ones among these actions.
    pub fn bits(&self, actions: &[Action], resource: Resource, name: &str) -> i32 {
        let may = |action: &&Action| self.decide(**action, resource, name).is_allowed();
        let allowed = actions.iter().filter(may);
        allowed.fold(0, |bits, action| bits | 1 << action.code())
    }

    // ---------------------------------------------------------------------- virtual hosts

    /// Whether the user may open the virtual host at all: it has permissions there or, for `/`, rules that let it
    /// read or write its queues.
    pub fn opens(&self, virtual_host: &str) -> bool {
        let by_rules = || {
            let lets = |rule: &Rule| {
                rule.resource == Resource::Topic
                    && rule.verdict == Verdict::Allow
                    && matches!(rule.action, Action::Read | Action::Write | Action::Any)
                    && !queue_topics::is_of_other_vhost(&rule.name)
            };
            self.across && virtual_host == DEFAULT_VHOST && self.rules.iter().any(lets)
        };
        self.everything || self.grants.contains_key(virtual_host) || by_rules()
    }

    // ------------------------------------------------- publishing, which is a right to exchanges

    /// Whether rules allow, or deny, appends to some topic.
    pub fn has_rules_on_appends(&self, verdict: Verdict) -> bool {
        let decides = |rule: &Rule| {
            let is_of_topics = rule.resource == Resource::Topic && rule.verdict == verdict;
            is_of_topics && rule.decides(Action::Write)
        };
        self.across && !self.everything && self.rules.iter().any(decides)
    }

    /// The verdict of rules on appending to a topic, regardless of permissions; `None`: no rule decides.
    pub fn append_by_rules(&self, topic: &str) -> Option<Verdict> {
        if is_written_by_nodes(topic) && !self.everything {
            return Some(Verdict::Deny);
        }
        if self.rules.is_empty() {
            return None;
        }
        match self.decide(Action::Write, Resource::Topic, topic) {
            Decision::Rule(rule) if self.across => Some(rule.verdict),
            _ => None,
        }
    }
}

/// Whether a matching rule counts for this name. Outside of `/`, a rule that allows must name the virtual host.
fn reaches(rule: &Rule, name: &str) -> bool {
    rule.verdict == Verdict::Deny
        || rule.name.starts_with(queue_topics::ESCAPED_PREFIX)
        || !queue_topics::is_of_other_vhost(name)
}

/// RabbitMQ permissions that allow an action of Kafka; one is enough.
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
    /// Explains in words why a user may or may not do something from this address; `None`: there is no such user.
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
        let is_named = matches!(resource, Resource::Topic | Resource::Group);
        let mut words = decision.to_string();
        if is_named && !decision.is_allowed() && queue_topics::is_of_other_vhost(name) {
            let vhost = queue_topics::owner(name).virtual_host;
            let vhost = vhost.unwrap_or(Cow::Borrowed("another one than /"));
            words.push_str(&format!(
                ": {} {name} belongs to vhost {vhost}, where permissions of / and rules for all names do not count",
                resource.word()
            ));
        }
        Some((decision.is_allowed(), words))
    }

    fn tags(&self, principal: &Principal) -> Tags {
        match principal.is_super() {
            true => Tags::administrator(),
            false => self.account(principal.name()).map_or(Tags::NONE, |known| known.tags.clone()),
        }
    }

    /// The rights of a principal that connects from this address.
    pub fn rights(&self, principal: &Principal, host: IpAddr) -> Rights {
        // Read the stamp first: a concurrent change then invalidates the result.
        let stamp = self.stamp();
        let (name, across) = (principal.name(), self.counts_across_protocols());
        if !principal.exists() {
            let (rules, grants) = (Vec::new(), BTreeMap::new());
            let tags = Tags::NONE;
            return Rights { stamp, everything: false, across, rules, grants, tags, caller: None };
        }
        let rules = self.rules();
        Rights {
            stamp,
            everything: principal.is_super(),
            across,
            rules: rules.iter().filter(|rule| rule.is_about(name, host)).cloned().collect(),
            grants: self.grants(name),
            tags: self.tags(principal),
            caller: None,
        }
    }
}

mod audited;
#[cfg(test)]
mod tests;
