//! A replica that lacks more than the log of another one has is brought up to it, while both are used, lose
//! power and are started again.

#[allow(unreachable_pub)]
#[path = "../common/mod.rs"]
mod common;

mod hostile;
mod repair;
mod replica;
mod scrub;
mod stories;
