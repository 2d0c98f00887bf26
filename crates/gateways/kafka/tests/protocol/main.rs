//! The gateway as a client sees it: a real socket, a real broker, a disk in memory.

// A test's future awaits a node, which awaits a broker: deeply nested types.
#![recursion_limit = "256"]
#![expect(clippy::disallowed_types, reason = "clients of a node in the kernel's network")]

mod acls;
mod audit;
mod authorization;
mod bad_input;
mod certificates;
mod cluster;
mod configs;
mod fetch;
mod groups;
mod harness;
mod large_answers;
mod log_offsets;
mod login;
mod operation_rights;
mod operations;
mod packed;
mod produce;
mod quotas;
mod sessions;
mod several_nodes;
mod share;
mod streams;
mod tenants;
mod tokens;
mod topics;
mod transactions;
mod waiting;
