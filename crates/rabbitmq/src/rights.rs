//! Permission checks of a user. They run where a method begins, on names without line ends, and refuse in RabbitMQ's
//! words (`rabbit_channel:check_*_permitted`).
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
//! RabbitMQ checks nothing for a passive declaration. Here a rule about one topic opens vhost `/`, and must not
//! reveal the others. Acknowledging deliveries needs no permission.
//!
//! The decision is made by [`access::Rights`], which includes Kafka's rules. A rule that denies a topic denies its
//! queue, and publishing to it through any exchange. A rule that allows a topic allows its queue, and publishing to
//! it through the default exchange.

use std::net::IpAddr;
use std::sync::Arc;

use access::{AccessTarget, Operation, Principal, Users};
use access_rules::acl::Verdict;
use topology::names::topic_name;
use topology::{Destination, RoutedQueue};

use crate::errors::{Exception, NamedEntity, ReplyCode, Resource};

/// The protocol's name in the audit.
const PROTOCOL: &str = "amqp";
/// Name of the default exchange in permission checks.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// A user's rights in the open vhost.
#[derive(Clone, Debug)]
pub struct Rights {
    user: Arc<str>,
    rights: Arc<access::Rights>,
}

/// The right to publish to an exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishRight {
    exchange: Box<str>,
    by: Right,
    /// Each target queue must be checked too.
    each_queue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Right {
    /// The permission to write to the exchange.
    Exchange,
    /// Rules that allow appends to topics: for the default exchange, whose key is the queue's name.
    Rules,
}

impl Rights {
    /// The rights of a user at this address. `None`: the user may not even open the vhost.
    pub fn of(users: &Users, principal: &Principal, peer: IpAddr, vhost: &str) -> Option<Self> {
        let user = Arc::clone(principal.name());
        let caller = users.audit().caller(Some(&user), peer, PROTOCOL);
        let rights = users.rights(principal, peer).audited_as(caller);
        rights.opens(vhost).then(|| Self { user, rights: Arc::new(rights) })
    }

    /// Checks an operation, and refuses it in RabbitMQ's words (`rabbit_access_control`).
    pub fn check(&self, operation: Operation, resource: Resource<'_>) -> Result<(), Exception> {
        let resource = match resource.name {
            "" if resource.kind == "exchange" => Resource { name: DEFAULT_EXCHANGE, ..resource },
            _ => resource,
        };
        let Resource { kind, name, vhost } = resource;
        let may = match kind {
            "exchange" => {
                self.rights.may(operation, AccessTarget::Exchange { virtual_host: vhost, name })
            }
            // A queue that does not exist yet would be this topic.
            _ => self.may_queue(operation, resource, &topic_name(vhost, name)),
        };
        if may { Ok(()) } else { Err(self.refused(operation, resource)) }
    }

    fn may_queue(&self, operation: Operation, queue: Resource<'_>, topic: &str) -> bool {
        let Resource { name, vhost, .. } = queue;
        self.rights.may(operation, AccessTarget::Queue { virtual_host: vhost, name, topic })
    }

    fn check_append_by_rules(&self, topic: &str, vhost: &str) -> Result<(), Exception> {
        match self.rights.append_by_rules(topic) {
            Some(Verdict::Allow) => Ok(()),
            // The same refusal as without any rule.
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

    /// Checks that the user may publish to the exchange to which its new entity forwards messages.
    pub fn check_forwarding(&self, own: Resource<'_>, exchange: &str) -> Result<(), Exception> {
        let read = if own.kind == "queue" { Operation::Browse } else { Operation::BindFrom };
        self.check(read, own)?;
        self.check(Operation::Publish, Resource::exchange(exchange, own.vhost))
    }

    /// The default exchange is refused later, for every user.
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

    /// Returns the right to publish to an exchange.
    pub fn writable(&self, exchange: &str, vhost: &str) -> Result<PublishRight, Exception> {
        let checked = self.check(Operation::Publish, Resource::exchange(exchange, vhost));
        let has_rules = |verdict| self.rights.has_rules_on_appends(verdict);
        let (by, each_queue) = match checked {
            // No client may write to internal topics such as the audit, through any exchange.
            Ok(()) => (Right::Exchange, !self.rights.is_everything()),
            Err(_) if exchange.is_empty() && has_rules(Verdict::Allow) => (Right::Rules, true),
            Err(refused) => return Err(refused),
        };
        Ok(PublishRight { exchange: exchange.into(), by, each_queue })
    }

    /// Checks that a message with this key may be published. Returns whether each of its target queues must be
    /// checked ([`Rights::check_targets`]).
    pub fn check_key(
        &self,
        writable: &PublishRight,
        key: &str,
        vhost: &str,
    ) -> Result<bool, Exception> {
        if writable.by == Right::Rules {
            // The check precedes the lookup, so that the refusal does not reveal which queues exist.
            self.check_append_by_rules(&topic_name(vhost, key), vhost)?;
        }
        Ok(writable.each_queue)
    }

    /// Checks that a message may go to all of its target queues.
    pub fn check_targets(
        &self,
        writable: Option<&PublishRight>,
        targets: &[RoutedQueue],
    ) -> Result<(), Exception> {
        let by = writable.map_or(Right::Rules, |writable| writable.by);
        for RoutedQueue { queue, .. } in targets {
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

    /// Builds the rights of a user that are known already.
    pub fn from_known(user: Arc<str>, rights: Arc<access::Rights>) -> Self {
        Self { user, rights }
    }

    /// Returns whether the user may know that this resource exists.
    pub fn sees(&self, resource: Resource<'_>) -> bool {
        self.check(Operation::Describe, resource).is_ok()
    }
}

impl PublishRight {
    pub fn is_of(&self, exchange: &str) -> bool {
        *self.exchange == *exchange
    }
}

pub fn refused_vhost(vhost: &str, user: &str) -> Exception {
    let text = format!("access to vhost '{vhost}' refused for user '{user}'");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// Removes line ends, which are not part of a name.
fn without_line_ends(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(['\r', '\n']) { name.replace(['\r', '\n'], "").into() } else { name.into() }
}
