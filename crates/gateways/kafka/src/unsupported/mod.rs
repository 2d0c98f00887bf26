//! Requests that the broker does not serve. Each gets Kafka's response for that case, so that tools react sensibly.
//!
//! `share_state`: requests for share group state; `transactions`: the refusal for clients that use transactions before
//! the cluster's feature level permits them.

pub(crate) mod share_state;
pub(crate) mod transactions;
