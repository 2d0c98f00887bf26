//! The gateway over real sockets, with hyper's client, which shares only the protocol with it.

#![expect(clippy::disallowed_types, reason = "clients of a node in the kernel's network")]

mod answers;
mod any_record;
mod certificates;
mod channels;
mod console;
mod groups;
mod harness;
mod health;
mod history;
mod hosts;
mod http2;
mod http2_floods;
mod leases;
mod limits;
mod login;
mod management;
mod metrics;
mod offset_groups;
mod openapi;
mod operate;
mod quotas;
mod records;
mod rights;
mod search;
mod sessions;
mod tenants;
mod tokens;
mod topic_changes;
mod trace;
mod traced;
mod transactions;
