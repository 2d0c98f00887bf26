//! Every task and thread of a node is started here, under a name of one [table](Task::ALL) that says
//! what its end means. `docs/internals/failure.md` has the table in words.
//!
//! * [`task`]: the table
//! * [`spawn`]: starting tasks and threads
//! * [`worker`]: blocking work in steps, which a simulation can order
//! * [`failure`]: how a node learns that a part of it is gone
//! * [`exit`]: how the process ends then: at once, with a message, whatever else hangs
//! * [`inject`]: panics on purpose, for tests on the real binary
//!
//! A panic ends the process from inside the panic hook, that is before the stack is unwound: locks
//! that the panicking thread holds stay held, so nobody reads what it left half changed. Only a
//! task that the table calls a session's or a request's is unwound. Code that is in no task of the
//! table counts as vital.

pub mod exit;
pub mod failure;
pub mod inject;
pub mod spawn;
pub mod task;
pub mod worker;

pub use failure::Failure;
pub use spawn::{Set, named, spawn, thread, vital, watched};
pub use task::{End, Entered, Task, enter};
pub use worker::{Running, Signal, Step, Worker, Workers};
