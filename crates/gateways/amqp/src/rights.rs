//! What a connection's user may do, asked where a method begins. What decides is [`rabbitmq::rights`].

use access::Operation;
use rabbitmq::rights::{Rights, refused_vhost};
use topology::{Destination, Routed};

use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::session::Session;

impl Session {
    /// What the user may do in the vhost that is open.
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

    /// For each message: what was allowed for the last one is not asked again. Answers whether each queue that it
    /// leads to is to be asked about ([`Session::check_targets`]).
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

    /// Whether a message may go to all the queues that it leads to.
    pub(crate) fn check_targets(&self, targets: &[Routed]) -> Result<(), Exception> {
        self.rights()?.check_targets(self.writable.as_ref(), targets)
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
        self.rights = Rights::of(&self.gateway.users, principal, self.peer.ip(), vhost.name());
        let refused = self.rights.is_none().then(|| refused_vhost(vhost.name(), user));
        let forced = gone.map(|reason| Exception::new(ReplyCode::ConnectionForced, reason));
        if let Some(exception) = forced.or(refused) {
            self.fail(Failure { channel: 0, method: Default::default(), exception });
        }
    }
}
