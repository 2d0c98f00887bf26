//! The index beside a model: every batch in a map, nothing else.

mod crashes;
mod model;
mod world;
