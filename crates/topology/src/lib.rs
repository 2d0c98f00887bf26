//! Virtual hosts and what is declared in them: exchanges, queues, bindings and policies.
//!
//! Every gateway whose protocol routes messages by exchanges declares here and routes by it. Memory
//! is what is read; documents in the replicated state are what is kept ([`store`]). A change is
//! checked against memory, made durable, and then made in memory, under locks by name (`stripes`),
//! so that any number of changes share a sync. Routing takes one read lock for all messages that a
//! session has at hand.
//!
//! # What is here, and what is a gateway's
//!
//! A declaration is a name, a few flags and a table of *arguments*. The arguments are kept as they
//! were declared, and documents hold nothing else of them; so their names and what they come to are
//! the topology's, as those of policies are, which are the same without `x-`:
//!
//! * [`arguments`], [`settings`]: what an argument means, in the broker's words
//! * [`exchange`], [`queue`], [`policy`]: the entities, and how a type of exchange reads a binding
//! * [`error`]: why a change is refused, as data
//!
//! A gateway has what a client sees: which arguments it may give, in which order they are checked,
//! when a second declaration is the same as the first, and the words and codes of a refusal. It says
//! so by a *judge* ([`VirtualHost::declare_queue`], [`VirtualHost::declare_exchange`]), which is
//! asked while nothing about the name can change.
//!
//! A queue may have an owner, which is whatever ends ([`OwnerId`]): a connection, a session. The
//! gateway says when it begins and ends, and its queues go with it.
//!
//! # What the start takes away
//!
//! Only what documents of the topology's own spaces say is its own, and of a topic only the one
//! whose UUID the queue's document names: [`recovery`] has the table.
//!
//! * [`topology`]: all virtual hosts; [`virtual_host`]: one, and changes in it
//! * `entities`, [`routes`]: memory, and the way of a message through it
//! * `topics`: the topics and lease groups behind queues; [`store`]: the documents
//! * [`names`]: which topic a queue is; [`dead_letter`]: where a queue's dead letters go
//! * [`recovery`], [`lifecycle`]: the start, and queues that go by themselves

pub mod arguments;
mod bindings;
pub mod dead_letter;
mod entities;
pub mod error;
pub mod exchange;
pub mod lifecycle;
pub mod matched;
pub mod names;
pub mod policy;
pub mod queue;
pub mod recovery;
pub mod routes;
pub mod settings;
mod shared;
pub mod store;
mod stripes;
mod topics;
pub mod topology;
pub mod virtual_host;

#[cfg(test)]
mod tests;

pub use bindings::Binding;
pub use error::{BindingError, ChangeError, Entity, EntityKind, RouteError};
pub use exchange::{Exchange, ExchangeKind, NewExchange};
pub use lifecycle::OwnerId;
pub use names::DEFAULT_VHOST;
pub use policy::{ApplyTo, Definition, Policy, PolicyDefinition, PolicyError, PolicyScope};
pub use queue::{NewQueue, Queue, QueueKind};
pub use recovery::OpenError;
pub use routes::{Routed, Routes};
pub use settings::{Overflow, QueueSettings};
pub use topology::{Topology, WeakTopology};
pub use virtual_host::{BindingRequest, VirtualHost};

use std::sync::Arc;

/// What an exchange's binding leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    Queue(Arc<str>),
    Exchange(Arc<str>),
}
