//! Virtual hosts and what is declared in them: exchanges, queues, bindings and policies.
//!
//! Every gateway whose protocol routes messages by exchanges declares here and routes by it. Memory
//! is what is read; documents in the replicated state are what is kept ([`store`]), and memory follows
//! them (`projection`), whichever node changed them. A change is worked out by memory and made by one
//! command of the log, under the condition that nothing has changed by which it was worked out; if
//! something has, it is worked out anew (`changing`). It is answered once this node's memory has it. Any
//! number of changes share a sync; locks by name (`stripes`) only keep those of one node from getting in
//! each other's way. Routing takes one read lock for all messages that a session has at hand.
//!
//! What is in memory is there. Before something is said not to be there, the node makes sure that it
//! has what other nodes changed ([`VirtualHost::refresh`]).
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
//! asked again where somebody else was faster.
//!
//! A queue may have an owner, which is whatever ends ([`OwnerId`]): a connection, a session. The
//! gateway says when it begins and ends, and its queues go with it.
//!
//! # What goes by itself
//!
//! What does not survive a restart goes with the run of the node that declared it, an exclusive queue
//! with its connection (`sweep`). An auto-delete queue goes with its last consumer, one with `x-expires`
//! when nobody has used it for so long, on whichever node (`uses`).
//!
//! Only what documents of the topology's own spaces say is its own is taken away, and of a topic only the
//! one whose UUID the queue's document names: [`recovery`] has the table.
//!
//! * [`topology`]: all virtual hosts; [`virtual_host`]: one, and changes in it
//! * `projection`: memory follows the documents; `changing`: how documents change, `removal`: what goes together
//! * `entities`, [`routes`]: memory, and the way of a message through it
//! * `metadata`: what a virtual host says of itself
//! * `topics`: the topics and lease groups behind queues; [`store`]: the documents
//! * [`names`]: which topic a queue is; [`dead_letter`]: where a queue's dead letters go
//! * [`recovery`], [`lifecycle`]: the start, and queues that go by themselves

pub mod arguments;
mod bindings;
mod changing;
pub mod dead_letter;
mod entities;
pub mod error;
pub mod exchange;
pub mod lifecycle;
pub mod matched;
mod metadata;
pub mod names;
pub mod policy;
mod projection;
pub mod queue;
pub mod recovery;
mod removal;
pub mod routes;
pub mod settings;
mod shared;
pub mod store;
mod stripes;
mod sweep;
mod topics;
pub mod topology;
mod uses;
pub mod virtual_host;

#[cfg(test)]
mod tests;

pub use bindings::Binding;
pub use error::{BindingError, ChangeError, Entity, EntityKind, RouteError};
pub use exchange::{Exchange, ExchangeKind, NewExchange};
pub use lifecycle::OwnerId;
pub use metadata::{Metadata, MetadataError};
pub use names::DEFAULT_VHOST;
pub use policy::{ApplyTo, Definition, Policy, PolicyDefinition, PolicyError, PolicyScope};
pub use projection::DocumentError;
pub use queue::{NewQueue, Owner, Queue, QueueKind};
pub use recovery::OpenError;
pub use routes::{Routed, Routes};
pub use settings::{Overflow, QueueSettings};
pub use topology::{Topology, TopologyOptions, WeakTopology};
pub use virtual_host::{BindingRequest, VirtualHost};

use std::sync::Arc;

/// What an exchange's binding leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    Queue(Arc<str>),
    Exchange(Arc<str>),
}
