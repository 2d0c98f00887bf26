//! Where a message goes. Taken once for all that a session has read; every change of the vhost's
//! entities waits meanwhile, so it is not kept over anything that waits itself.

use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use routing::{Headers, Message, Route};

use crate::entities::Entities;
use crate::error::{Entity, RouteError};
use crate::queue::Queue;
use crate::virtual_host::VirtualHost;

/// A queue that a message goes to.
#[derive(Clone, Debug)]
pub struct Routed {
    pub queue: Arc<Queue>,
    /// It came through an exchange that holds messages back which ask for it, as this one does.
    pub deferred: bool,
}

#[derive(Debug)]
pub struct Routes<'a> {
    vhost: &'a VirtualHost,
    /// None only while a queue is being made known.
    entities: Option<RwLockReadGuard<'a, Entities>>,
    route: Route,
}

impl<'a> Routes<'a> {
    pub(crate) fn new(vhost: &'a VirtualHost) -> Self {
        Self { vhost, entities: Some(vhost.entities().read()), route: Route::default() }
    }

    /// Finds the queues of a message that is published to `exchange`; `found` is cleared first.
    /// None of them is there twice, unless once held back and once not.
    pub fn route<H: Headers + ?Sized>(
        &mut self,
        exchange: &str,
        message: &Message<'_, H>,
        found: &mut Vec<Routed>,
    ) -> Result<(), RouteError> {
        let entity = || Entity::exchange(exchange, self.vhost.name());
        let Some(known) = self.entities().exchange(exchange) else {
            return Err(RouteError::NotFound(entity()));
        };
        if known.internal {
            return Err(RouteError::Internal(entity()));
        }
        self.route_unchecked(exchange, message, found);
        Ok(())
    }

    /// As [`Routes::route`] for what the broker publishes itself. An exchange that is not there
    /// leads nowhere.
    pub fn route_unchecked<H: Headers + ?Sized>(
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
        let entities = self.entities();
        if let Some(exchange) = entities.exchange(exchange) {
            entities.network.route(exchange.node, message, &mut route);
        }
        found.extend(route.sinks.drain(..).filter_map(|(sink, deferred)| {
            let queue = Arc::clone(&entities.network.sink(sink)?.queue);
            Some(Routed { queue, deferred })
        }));
        self.route = route;
    }

    fn entities(&self) -> &Entities {
        self.entities.as_deref().expect("it is given back before anything else is done")
    }

    /// A topic that another protocol made is a queue once somebody asks for it.
    fn make_known(&mut self, name: &str) {
        if self.entities().queue(name).is_some() || self.vhost.foreign_topic(name).is_none() {
            return;
        }
        self.entities = None;
        self.vhost.adopt(name);
        self.entities = Some(self.vhost.entities().read());
    }
}
