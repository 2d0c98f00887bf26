//! The Kafka protocol over the broker, as Kafka 4 speaks it.
//!
//! From the socket inwards:
//!
//! * `listener`: accepts connections, bounds their number, sees them out
//! * `session`, `frames`: one connection: requests in, responses out in order
//! * `authorization`: what it may do; `acls`: the rules about that, listed and changed
//! * `login`: who a client is; `scram_credentials`: what is kept for that, listed and changed
//! * `request`, `response`, `wire`: frames as messages, and back
//! * `dispatch`, `versions`: who handles what, and in which versions
//! * `produce`, `produce_effort`, `produce_request`, `produce_replicas`, `produce_response`: the hot path in
//! * `fetch`, `fetch_context`, `fetch_sessions`, `fetch_collector`, `fetch_response`: the hot path out; `fetch_near`: who reads
//!   from which node
//! * `metadata`, `topics`, `configs`, `config_describe`, `static_configs`, `kafka_settings`, `offsets`, `producers`, `log_dirs`: the catalog and its parts
//! * `leaders`: who leads what, as clients are told, and `leader_fields`: in which bytes; `leader_watch`: who waits hears that it changed
//! * `groups`: group membership and committed offsets
//! * `share`: share groups' records, fetched by lease and acknowledged one by one
//! * `quorum`: the controllers of a cluster and its features
//! * `no_transactions`: how clients that want transactions are refused
//! * `quotas`: what clients are charged; `quota_requests`: how much that may be, listed and changed
//! * `elections`, `reassignments`: who is to lead what, and what is to be where
//! * `refused`, `refused_share_state`: what clients ask for and a broker without transactions does not have
//! * [`operations`]: what operators do that Kafka has no words for: our own request
//! * `topic_ref`: how requests name topics
//! * `errors`: from what went wrong to Kafka's error codes

mod acls;
mod authorization;
mod config_describe;
mod configs;
mod currency;
mod dispatch;
mod elections;
mod errors;
mod fetch;
mod fetch_collector;
mod fetch_context;
mod fetch_near;
mod fetch_response;
mod fetch_sessions;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod groups;
mod kafka_settings;
mod leader_fields;
mod leader_watch;
mod leaders;
mod list_response;
mod listener;
mod log_dirs;
mod login;
mod metadata;
mod metadata_response;
mod no_transactions;
mod offsets;
pub mod operations;
mod options;
mod partitions;
mod produce;
mod produce_effort;
mod produce_replicas;
mod produce_request;
mod produce_response;
mod producers;
mod quorum;
mod quota_requests;
mod quotas;
mod reassignments;
mod refused;
mod refused_share_state;
mod request;
mod response;
mod scram_credentials;
mod session;
mod share;
mod static_configs;
mod topic_ref;
mod topics;
mod versions;
mod wire;

pub use listener::{Kafka, serve};
pub use operations::service::Operations;
pub use options::{GatewayOptions, LoginOptions};
