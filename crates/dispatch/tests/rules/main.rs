//! The rules of delivery, one test each. The random histories are in `tests/model`.

mod attempts;
mod bench;
mod bounds;
mod consumers;
mod delays;
mod expiry;
mod operators;
mod order;
mod presented;
mod settling;
mod shares;
mod steps;
