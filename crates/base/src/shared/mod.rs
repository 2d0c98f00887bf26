//! Collections with cheap copies: a copy shares all chunks with the original, and the first change of a chunk
//! afterwards copies that chunk alone.
//!
//! Snapshots use such copies: the state continues to change while another thread encodes the copy. A change costs
//! one check of a reference count per level in addition to the change itself.
//!
//! * [`map`]: an ordered map
//! * [`rows`]: a vector that is built once and seldom grows

pub mod map;
pub mod rows;

pub use map::SharedMap;
pub use rows::SharedRows;
