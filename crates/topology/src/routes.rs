//! Routing of messages. The read lock is taken once for all messages of a read. It blocks every change of the vhost's
//! entities, so it must not be held across a wait.

use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use routing::{Headers, Message, Route};

use crate::entities::Entities;
use crate::error::{Entity, RouteError};
use crate::queue::Queue;
use crate::virtual_host::VirtualHost;

/// A queue that a message is routed to.
#[derive(Clone, Debug)]
pub struct RoutedQueue {
    pub queue: Arc<Queue>,
    /// The message was routed through a delaying exchange, and asks for a delay.
    pub deferred: bool,
}

#[derive(Debug)]
pub struct Routes<'a> {
    vhost: &'a VirtualHost,
    /// `None` only while a topic is added as a queue.
    entities: Option<RwLockReadGuard<'a, Entities>>,
    route: Route,
}

impl VirtualHost {
    /// Locks the routes for reading. Take the lock once for all messages at hand, and drop it before any wait.
    pub fn routes(&self) -> Routes<'_> {
        Routes::new(self)
    }
}

impl<'a> Routes<'a> {
    pub(crate) fn new(vhost: &'a VirtualHost) -> Self {
        Self { vhost, entities: Some(vhost.entities().read()), route: Route::default() }
    }

    /// Finds the queues of a message published to `exchange`; `found` is cleared first. A queue occurs at most once
    /// delayed and once not.
    pub fn route<H: Headers + ?Sized>(
        &mut self,
        exchange: &str,
        message: &Message<'_, H>,
        found: &mut Vec<RoutedQueue>,
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

    /// Like [`Routes::route`], for messages of the broker itself. A missing exchange routes nowhere.
    pub fn route_unchecked<H: Headers + ?Sized>(
        &mut self,
        exchange: &str,
        message: &Message<'_, H>,
        found: &mut Vec<RoutedQueue>,
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
            Some(RoutedQueue { queue, deferred })
        }));
        self.route = route;
    }

    fn entities(&self) -> &Entities {
        self.entities.as_deref().expect("it is given back before anything else is done")
    }

    /// Adds a topic of another protocol as a queue at its first use.
    fn make_known(&mut self, name: &str) {
        if self.entities().queue(name).is_some() || self.vhost.foreign_topic(name).is_none() {
            return;
        }
        self.entities = None;
        self.vhost.adopt(name);
        self.entities = Some(self.vhost.entities().read());
    }
}
