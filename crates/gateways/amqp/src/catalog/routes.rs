//! Where a message goes. Taken once for all that a session has read; every change of the vhost's
//! entities waits meanwhile, so it is not kept over anything that waits itself.

use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use routing::{Headers, Message, Route};

use super::Vhost;
use super::queue::Queue;
use super::topology::Topology;
use crate::errors::{Exception, ReplyCode, Resource};

/// A queue that a message goes to.
#[derive(Clone, Debug)]
pub struct Routed {
    pub queue: Arc<Queue>,
    /// It came through an exchange that holds messages back which ask for it, as this one does.
    pub deferred: bool,
}

#[derive(Debug)]
pub struct Routes<'a> {
    vhost: &'a Vhost,
    /// None only while a queue is being made known.
    topology: Option<RwLockReadGuard<'a, Topology>>,
    route: Route,
}

impl<'a> Routes<'a> {
    pub(super) fn new(vhost: &'a Vhost) -> Self {
        Self { vhost, topology: Some(vhost.topology().read()), route: Route::default() }
    }

    /// Finds the queues of a message that is published to `exchange`; `found` is cleared first.
    /// None of them is there twice, unless once held back and once not.
    pub fn route<H: Headers + ?Sized>(
        &mut self,
        exchange: &str,
        message: &Message<'_, H>,
        found: &mut Vec<Routed>,
    ) -> Result<(), Exception> {
        let resource = Resource::exchange(exchange, self.vhost.name());
        let Some(entity) = self.topology().exchange(exchange) else {
            return Err(Exception::not_found(resource));
        };
        if entity.internal {
            return Err(Exception::new(
                ReplyCode::AccessRefused,
                format!("cannot publish to internal {resource}"),
            ));
        }
        self.route_unchecked(exchange, message, found);
        Ok(())
    }

    /// As [`Routes::route`] for what the broker publishes itself. An exchange that is not there
    /// leads nowhere.
    pub(crate) fn route_unchecked<H: Headers + ?Sized>(
        &mut self,
        exchange: &str,
        message: &Message<'_, H>,
        found: &mut Vec<Routed>,
    ) {
        found.clear();
        if exchange.is_empty() {
            message.keys.iter().for_each(|key| self.make_known(key));
        }
        let mut route = std::mem::take(&mut self.route);
        let topology = self.topology();
        if let Some(exchange) = topology.exchange(exchange) {
            topology.network.route(exchange.node, message, &mut route);
        }
        found.extend(route.sinks.drain(..).filter_map(|(sink, deferred)| {
            let queue = Arc::clone(&topology.network.sink(sink)?.queue);
            Some(Routed { queue, deferred })
        }));
        self.route = route;
    }

    fn topology(&self) -> &Topology {
        self.topology.as_deref().expect("it is given back before anything else is done")
    }

    /// A topic that another protocol made is a queue once somebody asks for it.
    fn make_known(&mut self, name: &str) {
        if self.topology().queue(name).is_some() || self.vhost.foreign_topic(name).is_none() {
            return;
        }
        self.topology = None;
        self.vhost.adopt(name);
        self.topology = Some(self.vhost.topology().read());
    }
}
