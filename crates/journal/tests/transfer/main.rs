//! A lagging replica receives another one's snapshot, while both are used, lose power and restart.

#[allow(unreachable_pub)]
#[path = "../common/mod.rs"]
mod common;

mod hostile;
mod repair;
mod replica;
mod scrub;
mod stories;
