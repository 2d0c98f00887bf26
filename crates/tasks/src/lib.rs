//! Starts every task and thread of a node, under a name of one [table](Task::ALL) that defines the meaning of its end.
//! `docs/internals/failure.md` explains the table.
//!
//! * [`task`]: the table
//! * [`spawn`]: starting tasks and threads
//! * [`worker`]: blocking work in steps, which a simulation can order
//! * [`failure`]: reports the failure of a part to its node
//! * [`exit`]: ends the process after a failure: at once, with a message, whatever else hangs
//! * [`inject`]: injected panics, for tests of the real binary
//!
//! A panic ends the process inside the panic hook, before the stack is unwound. Locks of the panicking thread stay
//! held, so no other thread reads half-changed state. Only tasks that the table assigns to a session or a request are
//! unwound. Code outside every task of the table counts as vital.

pub mod exit;
pub mod failure;
pub mod inject;
pub mod spawn;
pub mod task;
pub mod worker;

/// Boxes the future of an `async fn`. The compiler generates the code of a future in each crate that awaits it; that of a
/// boxed one only in the crate of its function. For large functions that other crates await, unless they run for each
/// record: see ADR 0029.
pub use async_recursion::async_recursion as boxed;
pub use failure::Failure;
pub use spawn::{Set, named, spawn, thread, vital, watched};
pub use task::{EndConsequence, Task, TaskGuard, enter};
pub use worker::{Signal, Step, Worker, WorkerHandle, Workers};
