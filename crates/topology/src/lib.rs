//! Virtual hosts and their entities: exchanges, queues, bindings and policies.
//!
//! Every gateway whose protocol routes messages by exchanges declares and routes here. Reads are served from memory.
//! Durable state is documents in the replicated state ([`store`]), which memory follows (`projection`), whichever
//! node changed them. A change is planned from memory and committed by one command of the log, on the condition that
//! its inputs have not changed; otherwise it is planned again (`changes`). The reply is sent once this node's memory
//! contains the change. Any number of changes share a sync; locks by name (`stripes`) only keep concurrent changes of
//! one node from conflicting. Routing takes one read lock for all messages of a session's read.
//!
//! An entity in memory exists. Before an entity is reported as missing, the node applies all changes of other nodes
//! ([`VirtualHost::refresh`]).
//!
//! # Split between the topology and a gateway
//!
//! A declaration is a name, a few flags and a table of *arguments*. Documents hold the arguments as they were
//! declared and nothing derived from them. So their names and meaning belong to the topology, like those of policies,
//! which have the same names without `x-`:
//!
//! * [`arguments`], [`settings`]: the meaning of an argument, in the broker's terms
//! * [`exchange`], [`queue`], [`policy`]: the entities, and how a type of exchange reads a binding
//! * [`error`]: reasons of rejected changes, as data
//!
//! A gateway decides all that a client sees: the arguments it may give, the order of their checks, when a second
//! declaration equals the first, and the texts and codes of a refusal. It passes these rules as a *judge*
//! ([`VirtualHost::declare_queue`], [`VirtualHost::declare_exchange`]), which is called again after a concurrent
//! change.
//!
//! A queue may have an owner with a limited life ([`OwnerId`]): a connection, a session. The gateway reports its
//! begin and end, and its queues are deleted with it.
//!
//! # Automatic deletion
//!
//! A transient entity is deleted when the run of its node ends, an exclusive queue with its connection
//! (`cleanup::sweep`). An auto-delete queue is deleted with its last consumer, one with `x-expires` after it was unused
//! on all nodes for that time (`changes::uses`).
//!
//! Only entities recorded in the topology's own document spaces are deleted, and a topic only if its UUID is the one
//! in the queue's document: `cleanup::recovery` has the table.
//!
//! # Modules, each above the modules that it uses
//!
//! * [`topology`]: the handle of all virtual hosts, and their creation and deletion
//! * `cleanup`: the start, and automatic deletion; [`routes`]: the routing of a message
//! * `changes`: declare, bind, delete; policies and metadata
//! * `projection`: memory follows the documents
//! * [`virtual_host`]: memory of one virtual host, and the registry of all
//! * `entities`: its exchanges, queues and bindings, and the network that routes between them
//! * [`store`]: the documents; `topics`: the topics and lease groups behind queues
//! * [`queue`], [`exchange`], [`policy`]: the entities; [`names`]: the topic of a queue
//! * [`dead_letter`]: the route of a queue's dead letters

pub mod arguments;
mod changes;
mod cleanup;
pub mod dead_letter;
mod entities;
pub mod error;
pub mod exchange;
mod limits;
pub mod matched;
pub mod names;
pub mod policy;
mod projection;
pub mod queue;
pub mod routes;
pub mod store;
mod stripes;
mod topics;
pub mod topology;
pub mod virtual_host;

#[cfg(test)]
mod tests;

pub use changes::BindingRequest;
pub use cleanup::OpenError;
pub use entities::Binding;
pub use error::{BindingError, ChangeError, Entity, EntityKind, RouteError};
pub use exchange::{Destination, Exchange, ExchangeKind, NewExchange};
pub use names::DEFAULT_VHOST;
pub use policy::{Policy, PolicyError, PolicyScope};
pub use projection::DocumentError;
pub use queue::{NewQueue, Overflow, Owner, OwnerId, Queue, QueueKind, QueueSettings, settings};
pub use routes::{RoutedQueue, Routes};
pub use topology::{Topology, WeakTopology};
pub use virtual_host::{Metadata, MetadataError, TopologyOptions, VirtualHost};
