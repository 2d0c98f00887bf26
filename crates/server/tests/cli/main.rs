//! Tests of the real binary through its command line.

#![allow(clippy::disallowed_types, reason = "these tests run the real binary")]

mod administration;
mod audit;
mod backup;
mod connections;
mod demo;
mod doctor;
mod documentation;
mod failure;
mod full_disk;
mod groups;
mod harness;
mod http;
mod journal;
mod lifecycle;
mod mistakes;
mod operators;
mod queues;
mod quotas;
mod records;
mod security;
mod shards;
mod top;
mod topics;
mod traces;
mod upgrade;
