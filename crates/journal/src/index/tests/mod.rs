//! The index beside a model: every batch in a map, nothing else.

mod bytes;
mod concurrent;
mod crashes;
mod measure;
mod model;
mod world;
