//! Stored forms of passwords, one for each way to log in: hashes (argon2id, RabbitMQ's) and verifiers (SCRAM).
//!
//! A client that sets a password derives them and sends them, so that no node sees the password; a node checks log-ins
//! with them. Both ends use this crate, which knows no users and stores nothing.
//!
//! * `hash`: hashes by argon2id; [`rabbitmq_hash`]: those of imported users of RabbitMQ
//! * `secret`: all stored forms of one password, and the check of a password against them

mod hash;
mod limits;
pub mod rabbitmq_hash;
mod secret;

pub use hash::{GUEST_HASH, GUEST_PASSWORD, PasswordError, hash_password, same};
pub use secret::{Secret, Verifiers};
