//! The index compared with a model: a map of every batch.

mod bytes;
mod concurrent;
mod crashes;
mod measure;
mod model;
mod world;
