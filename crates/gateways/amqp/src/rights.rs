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
//!
//! To look (passive declarations) and to answer deliveries takes nothing.

use std::sync::Arc;

use access::{Grant, Permission, Principal};
use topology::Destination;

use crate::errors::{Exception, ReplyCode, Resource};
use crate::failure::Failure;
use crate::session::Session;

/// What the default exchange is called where permissions are checked.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// What the user may do in the vhost that is open, and how it is refused.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    user: Arc<str>,
    grant: Grant,
}

impl Rights {
    /// `None`: the user may not even open the vhost.
    pub(crate) fn of(principal: &Principal, vhost: &str) -> Option<Self> {
        let grant = principal.grant(vhost)?;
        Some(Self { user: Arc::clone(principal.name()), grant })
    }

    /// Whether that may be done, or RabbitMQ's words where not (`rabbit_access_control`).
    pub(crate) fn check(
        &self,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), Exception> {
        let name = match resource.name {
            "" if resource.kind == "exchange" => DEFAULT_EXCHANGE,
            name => name,
        };
        if self.grant.allows(permission, name) {
            return Ok(());
        }
        let (permission, resource) = (permission.name(), Resource { name, ..resource });
        let text = format!("{permission} access to {resource} refused for user '{}'", self.user);
        Err(Exception::new(ReplyCode::AccessRefused, text))
    }
}

impl Session {
    /// What the user may do in the vhost that is open.
    pub(crate) fn rights(&self) -> Result<Rights, Exception> {
        let closed = || Exception::new(ReplyCode::InternalError, "no vhost is open");
        self.rights.clone().ok_or_else(closed)
    }

    pub(crate) fn check_queue(&self, permission: Permission, name: &str) -> Result<(), Exception> {
        let vhost = self.vhost.as_ref().map_or("", |vhost| vhost.name());
        self.rights()?.check(permission, Resource::queue(&without_line_ends(name), vhost))
    }

    /// The default exchange is refused later, whoever asks.
    pub(crate) fn check_exchange(
        &self,
        permission: Permission,
        name: &str,
    ) -> Result<(), Exception> {
        let name = without_line_ends(name);
        if name.is_empty() {
            return Ok(());
        }
        let vhost = self.vhost.as_ref().map_or("", |vhost| vhost.name());
        self.rights()?.check(permission, Resource::exchange(&name, vhost))
    }

    pub(crate) fn check_binding(
        &self,
        source: &str,
        destination: &Destination,
    ) -> Result<(), Exception> {
        if source.is_empty() {
            return Ok(());
        }
        match destination {
            Destination::Queue(name) => self.check_queue(Permission::Write, name)?,
            Destination::Exchange(name) => self.check_exchange(Permission::Write, name)?,
        }
        self.check_exchange(Permission::Read, source)
    }

    /// For each message: what was allowed for the last one is not asked again.
    pub(crate) fn check_publish(&mut self, exchange: &str) -> Result<(), Exception> {
        if self.writable.as_deref() == Some(exchange) {
            return Ok(());
        }
        let vhost = self.vhost.as_ref().map_or("", |vhost| vhost.name());
        self.rights()?.check(Permission::Write, Resource::exchange(exchange, vhost))?;
        self.writable = Some(exchange.into());
        Ok(())
    }

    /// Something changed about vhosts or users: what is open may be no more, or do less.
    pub(crate) fn look_again(&mut self) {
        let Some(vhost) = &self.vhost else { return };
        let Some(principal) = &self.principal else { return };
        let (topology, user) = (&self.gateway.topology, principal.name());
        let gone = if !principal.exists() {
            Some(format!("user '{user}' is deleted"))
        } else if !topology.vhost(vhost.name()).is_some_and(|known| known.is(vhost)) {
            Some(format!("vhost '{}' is deleted", vhost.name()))
        } else {
            None
        };
        self.writable = None;
        self.rights = Rights::of(principal, vhost.name());
        let refused = self.rights.is_none().then(|| refused_vhost(vhost.name(), user));
        let forced = gone.map(|reason| Exception::new(ReplyCode::ConnectionForced, reason));
        if let Some(exception) = forced.or(refused) {
            self.fail(Failure { channel: 0, method: Default::default(), exception });
        }
    }
}

pub(crate) fn refused_vhost(vhost: &str, user: &str) -> Exception {
    let text = format!("access to vhost '{vhost}' refused for user '{user}'");
    Exception::new(ReplyCode::NotAllowed, text)
}

/// Line ends do not belong to names.
fn without_line_ends(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(['\r', '\n']) { name.replace(['\r', '\n'], "").into() } else { name.into() }
}
