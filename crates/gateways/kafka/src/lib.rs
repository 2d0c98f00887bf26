//! The Kafka protocol over the broker, as Kafka 4 speaks it.
//!
//! From the socket inwards:
//!
//! * `listener`: accepts connections, bounds their number, drains them
//! * `session`, `frames`: one connection: requests in, responses out in order
//! * `authorization`: rights of a session; `acls`: lists and changes access rules
//! * `login`: authentication; `scram_credentials`: lists and changes credentials
//! * `request`, `response`, `wire`: frames as messages, and back
//! * `dispatch`, `versions`: handlers of requests, and their versions
//! * `produce`, `produce_effort`, `produce_request`, `produce_replicas`, `produce_response`: the hot path
//!   in
//! * `fetch`, `fetch_context`, `fetch_sessions`, `fetch_collector`, `fetch_response`: the hot path out;
//!   `fetch_near`: follower fetching by rack
//! * `metadata`, `topics`, `configs`, `config_describe`, `static_configs`, `kafka_settings`, `offsets`,
//!   `producers`, `log_dirs`: the catalog and its parts
//! * `leaders`: leaders of partitions as clients see them; `leader_fields`: their encoding; `leader_watch`:
//!   wakes waiting requests when leaders change
//! * `groups`: group membership and committed offsets
//! * `share`: share groups' records, fetched by lease and acknowledged one by one
//! * `quorum`: the controllers of a cluster and its features
//! * `no_transactions`: refuses clients that use transactions
//! * `quotas`: charges clients; `quota_requests`: lists and changes quotas
//! * `elections`, `reassignments`: preferred leaders and placement of replicas
//! * `unsupported_requests`, `refused_share_state`: requests that a broker without transactions does not serve
//! * `operations`: operations that Kafka has no request for, in a request of our own
//! * `topic_ref`: topics by name or id
//! * `errors`: maps errors to Kafka's error codes

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
pub mod limits;
mod list_response;
mod listener;
mod log_dirs;
mod login;
mod metadata;
mod metadata_response;
mod no_transactions;
mod offsets;
mod operations;
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
mod refused_share_state;
mod request;
mod response;
mod scram_credentials;
mod session;
mod share;
mod static_configs;
mod topic_ref;
mod topics;
mod unsupported_requests;
mod versions;
mod wire;

pub use listener::serve;
pub use options::{GatewayOptions, LoginOptions};
