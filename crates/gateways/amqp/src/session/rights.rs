//! Permission checks of a connection's user, made before a method is executed. [`rabbitmq::rights`] decides.

use access::Operation;
use rabbitmq::rights::{Rights, refused_vhost};
use topology::{Destination, RoutedQueue};

use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::session::Session;

impl Session {
    /// Returns the user's rights in the open vhost.
    pub(crate) fn rights(&self) -> Result<Rights, Exception> {
        let closed = || Exception::new(ReplyCode::InternalError, "no vhost is open");
        self.rights.clone().ok_or_else(closed)
    }

    fn vhost_name(&self) -> &str {
        self.vhost.as_ref().map_or("", |vhost| vhost.name())
    }

    pub(crate) fn check_queue(&self, operation: Operation, name: &str) -> Result<(), Exception> {
        self.rights()?.check_queue(operation, name, self.vhost_name())
    }

    pub(crate) fn check_exchange(&self, operation: Operation, name: &str) -> Result<(), Exception> {
        self.rights()?.check_exchange(operation, name, self.vhost_name())
    }

    pub(crate) fn check_binding(
        &self,
        source: &str,
        destination: &Destination,
    ) -> Result<(), Exception> {
        self.rights()?.check_binding(source, destination, self.vhost_name())
    }

    /// Runs for each message: an exchange that was allowed for the last message is not checked again. Returns whether
    /// each target queue must be checked too ([`Session::check_targets`]).
    pub(crate) fn check_publish(&mut self, exchange: &str, key: &str) -> Result<bool, Exception> {
        let known = self.writable.take().filter(|known| known.is_of(exchange));
        let Some(rights) = &self.rights else { return self.rights().map(|_| false) };
        let writable = match known {
            Some(known) => known,
            None => rights.writable(exchange, self.vhost_name())?,
        };
        let asked = rights.check_key(&writable, key, self.vhost_name());
        self.writable = Some(writable);
        asked
    }

    /// Checks that a message may go to all of its target queues.
    pub(crate) fn check_targets(&self, targets: &[RoutedQueue]) -> Result<(), Exception> {
        self.rights()?.check_targets(self.writable.as_ref(), targets)
    }

    /// Rechecks vhost and user after a change of either: they may be deleted, or the rights reduced.
    pub(crate) fn recheck_access(&mut self) {
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
        self.rights = Rights::of(&self.gateway.users, principal, self.peer.ip(), vhost.name());
        let refused = self.rights.is_none().then(|| refused_vhost(vhost.name(), user));
        let forced = gone.map(|reason| Exception::new(ReplyCode::ConnectionForced, reason));
        if let Some(exception) = forced.or(refused) {
            self.fail(Failure { channel: 0, method: Default::default(), exception });
        }
    }
}
