//! Collections of which a copy costs little: the copy shares all chunks with the original, and the
//! first change of a chunk afterwards copies that chunk alone.
//!
//! Snapshots are taken of such copies: the state goes on to change while another thread encodes the
//! copy. A change costs one check of a reference count per level beside the change itself.
//!
//! * [`map`]: an ordered map
//! * [`rows`]: a vector that is made once and seldom grows

pub mod map;
pub mod rows;

pub use map::SharedMap;
pub use rows::SharedRows;
