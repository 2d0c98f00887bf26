//! The Kafka protocol over the broker, as Kafka 4 speaks it.
//!
//! From the socket inwards; a module depends only on those below it:
//!
//! * `listener`: accepts connections, bounds their number, drains them
//! * `session`: one connection: requests in, responses out in order
//! * `dispatch`: routes requests to their handlers; `versions`: ApiVersions
//! * `produce`: the hot path in; `fetch`: the hot path out
//! * `share`: share groups' records, fetched by lease and acknowledged one by one
//! * `groups`: group membership and committed offsets
//! * `topics`, `configs`, `metadata`, `offsets`, `producers`, `cluster`: the catalog and its parts
//! * `security`: authentication, access rules and credentials; `quotas`: charges clients, lists and changes quotas
//! * `operations`: operations that Kafka has no request for, in a request of our own
//! * `unsupported`: requests that a broker without transactions does not serve
//! * `catalog`: topics and partitions that requests name; `leaders`: leaders of partitions as clients see them
//! * `request`: one request with its session and its caller; `authorization`: rights of the caller
//! * `state`: the gateway, its connections, and what clients keep between requests
//! * `messages`: frames, headers and responses; `wire`: the format below them
//! * `api_keys`: the handled requests and their versions; `topic_ref`: topics by name or id
//! * `errors`: maps errors to Kafka's error codes

mod api_keys;
mod authorization;
mod catalog;
mod cluster;
mod configs;
mod dispatch;
mod errors;
mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod groups;
mod leaders;
pub mod limits;
mod listener;
mod messages;
mod metadata;
mod offsets;
mod operations;
mod options;
mod produce;
mod producers;
mod quotas;
mod request;
mod security;
mod session;
mod share;
mod state;
mod topic_ref;
mod topics;
mod transactions;
mod unsupported;
mod versions;
mod wire;

pub use listener::serve;
pub use options::{GatewayOptions, LoginOptions};
