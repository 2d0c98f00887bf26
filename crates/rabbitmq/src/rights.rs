//! What a user may do: asked where a method begins, of the names as they count, and told in
//! RabbitMQ's words (`rabbit_channel:check_*_permitted`).
//!
//! | method | permission |
//! | --- | --- |
//! | `queue.declare`, `.delete`, `exchange.declare`, `.delete` | configure |
//! | a new queue with a dead-letter exchange, a new exchange with an alternate | read of its own, and write of the other |
//! | `queue.bind`, `exchange.bind` and the reverse | write of the destination, read of the source |
//! | `basic.publish` | write of the exchange; the default one is `amq.default` |
//! | `basic.consume`, `basic.get`, `queue.purge` | read |
//! | the first of these on a topic that was never a queue | configure as well |
//! | a passive declaration | any |
//!
//! RabbitMQ asks nothing of a passive declaration. Here a rule about one topic opens vhost `/`, and must not tell of
//! the others. To answer deliveries takes nothing.
//!
//! What decides is [`access::Rights`], which knows Kafka's rules as well: one that denies keeps a user from the queue
//! that the topic is, and from publishing to it through whatever exchange leads there; one that allows does for the
//! queue, and for publishing to it through the default exchange.

use std::net::IpAddr;
use std::sync::Arc;

use access::acl::Verdict;
use access::{Operation, Principal, Target, Users};
use topology::names::topic_name;
use topology::{Destination, Routed};

use crate::errors::{Exception, Named, ReplyCode, Resource};

/// As the audit calls it.
const PROTOCOL: &str = "amqp";
/// What the default exchange is called where permissions are checked.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// What the user may do in the vhost that is open, and how it is refused.
#[derive(Clone, Debug)]
pub struct Rights {
    user: Arc<str>,
    rights: Arc<access::Rights>,
}

/// What messages may be published to an exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writable {
    exchange: Box<str>,
    by: Right,
    /// Each queue that a message leads to is to be asked about.
    each_queue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Right {
    /// The permission to write to the exchange.
    Exchange,
    /// To the default exchange, for which a queue's name is the key: rules that let the user append to its topic.
    Rules,
}

impl Rights {
    /// Of somebody who comes from there. `None`: the user may not even open the vhost.
    pub fn of(users: &Users, principal: &Principal, peer: IpAddr, vhost: &str) -> Option<Self> {
        let user = Arc::clone(principal.name());
        let asker = users.audit().asker(Some(&user), peer, PROTOCOL);
        let rights = users.rights(principal, peer).audited_as(asker);
        rights.opens(vhost).then(|| Self { user, rights: Arc::new(rights) })
    }

    /// Whether that may be done, or RabbitMQ's words where not (`rabbit_access_control`).
    pub fn check(&self, operation: Operation, resource: Resource<'_>) -> Result<(), Exception> {
        let resource = match resource.name {
            "" if resource.kind == "exchange" => Resource { name: DEFAULT_EXCHANGE, ..resource },
            _ => resource,
        };
        let Resource { kind, name, vhost } = resource;
        let may = match kind {
            "exchange" => {
                self.rights.may(operation, Target::Exchange { virtual_host: vhost, name })
            }
            // One that is not there yet would be this topic.
            _ => self.may_queue(operation, resource, &topic_name(vhost, name)),
        };
        if may { Ok(()) } else { Err(self.refused(operation, resource)) }
    }

    fn may_queue(&self, operation: Operation, queue: Resource<'_>, topic: &str) -> bool {
        let Resource { name, vhost, .. } = queue;
        self.rights.may(operation, Target::Queue { virtual_host: vhost, name, topic })
    }

    fn check_append_by_rules(&self, topic: &str, vhost: &str) -> Result<(), Exception> {
        match self.rights.append_by_rules(topic) {
            Some(Verdict::Allow) => Ok(()),
            // As without any rule.
            _ => {
                let exchange = Resource::exchange(DEFAULT_EXCHANGE, vhost);
                Err(self.refused(Operation::Publish, exchange))
            }
        }
    }

    fn refused(&self, operation: Operation, resource: Resource<'_>) -> Exception {
        let permission = operation.permission().map_or("", |permission| permission.name());
        let text = format!("{permission} access to {resource} refused for user '{}'", self.user);
        Exception::new(ReplyCode::AccessRefused, text)
    }

    /// What is made sends messages on to an exchange: who may not do that may not have it done.
    pub fn check_forwarding(&self, own: Resource<'_>, exchange: &str) -> Result<(), Exception> {
        let read = if own.kind == "queue" { Operation::Browse } else { Operation::BindFrom };
        self.check(read, own)?;
        self.check(Operation::Publish, Resource::exchange(exchange, own.vhost))
    }

    /// The default exchange is refused later, whoever asks.
    pub fn check_exchange(
        &self,
        operation: Operation,
        name: &str,
        vhost: &str,
    ) -> Result<(), Exception> {
        let name = without_line_ends(name);
        if name.is_empty() {
            return Ok(());
        }
        self.check(operation, Resource::exchange(&name, vhost))
    }

    pub fn check_queue(
        &self,
        operation: Operation,
        name: &str,
        vhost: &str,
    ) -> Result<(), Exception> {
        self.check(operation, Resource::queue(&without_line_ends(name), vhost))
    }

    pub fn check_binding(
        &self,
        source: &str,
        destination: &Destination,
        vhost: &str,
    ) -> Result<(), Exception> {
        if source.is_empty() {
            return Ok(());
        }
        match destination {
            Destination::Queue(name) => self.check_queue(Operation::Append, name, vhost)?,
            Destination::Exchange(name) => self.check_exchange(Operation::BindTo, name, vhost)?,
        }
        self.check_exchange(Operation::BindFrom, source, vhost)
    }

    /// What may be published to an exchange.
    pub fn writable(&self, exchange: &str, vhost: &str) -> Result<Writable, Exception> {
        let checked = self.check(Operation::Publish, Resource::exchange(exchange, vhost));
        let has_rules = |verdict| self.rights.has_rules_on_appends(verdict);
        let (by, each_queue) = match checked {
            // Nobody writes what the audit has, through whatever exchange.
            Ok(()) => (Right::Exchange, !self.rights.is_everything()),
            Err(_) if exchange.is_empty() && has_rules(Verdict::Allow) => (Right::Rules, true),
            Err(refused) => return Err(refused),
        };
        Ok(Writable { exchange: exchange.into(), by, each_queue })
    }

    /// Whether a message with this key may be published at all. Answers whether each queue that it leads to is to be
    /// asked about ([`Rights::check_targets`]).
    pub fn check_key(
        &self,
        writable: &Writable,
        key: &str,
        vhost: &str,
    ) -> Result<bool, Exception> {
        if writable.by == Right::Rules {
            // Also where there is no such queue, so that nobody learns which there are.
            self.check_append_by_rules(&topic_name(vhost, key), vhost)?;
        }
        Ok(writable.each_queue)
    }

    /// Whether a message may go to all the queues that it leads to.
    pub fn check_targets(
        &self,
        writable: Option<&Writable>,
        targets: &[Routed],
    ) -> Result<(), Exception> {
        let by = writable.map_or(Right::Rules, |writable| writable.by);
        for Routed { queue, .. } in targets {
            match by {
                Right::Rules => self.check_append_by_rules(&queue.topic_name, &queue.vhost)?,
                Right::Exchange => {
                    let said = self.rights.append_by_rules(&queue.topic_name);
                    if said == Some(Verdict::Deny) {
                        return Err(self.refused(Operation::Append, queue.resource()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Of somebody whose rights are known already.
    pub fn of_known(user: Arc<str>, rights: Arc<access::Rights>) -> Self {
        Self { user, rights }
    }

    /// Whether somebody is to know that this is there.
    pub fn sees(&self, resource: Resource<'_>) -> bool {
        self.check(Operation::Describe, resource).is_ok()
    }
}

impl Writable {
    pub fn is_of(&self, exchange: &str) -> bool {
        *self.exchange == *exchange
    }
}

pub fn refused_vhost(vhost: &str, user: &str) -> Exception {
    let text = format!("access to vhost '{vhost}' refused for user '{user}'");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// Line ends do not belong to names.
fn without_line_ends(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(['\r', '\n']) { name.replace(['\r', '\n'], "").into() } else { name.into() }
}
