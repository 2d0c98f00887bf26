//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Size limit of the name of a rack, which each node sends to other nodes and to clients.
pub(crate) const RACK_BYTES_MAX: usize = 255;
