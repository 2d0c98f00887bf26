//! The wire format of a link: frames of a header and a message. All numbers are little-endian.
//!
//! ```text
//! header   0 length of the message u32   4 kind u8   5 flags u8   6 shard u16   8 number u32
//!         12 checksum of bytes 0..12 u32
//! message  0 length of the head u32      4 milliseconds to answer within u32 (0: no deadline)
//!          8 head…   then checksum of all before it in the message u32   then body…
//! ```
//!
//! The header has a checksum of its own, so that none of it is trusted, and no memory allocated by its length,
//! before it is known to be intact. So has the head. **The body has none here**: it has its own, as entries of a
//! journal do, which the receiver checks anyway before it writes them. A second checksum over bodies would cost
//! both ends a pass over every byte. A wrong checksum closes the connection, because the begin of the next frame
//! is then a guess.

mod header;
mod incoming;
mod message;
#[cfg(test)]
mod tests;

pub(crate) use header::{ABANDONED, FIRST, HEADER_BYTES, Header, Kind};
pub(crate) use incoming::{Frame, Incoming};
pub use message::{Message, ReceivedMessage};
pub(crate) use message::{QueuedFrame, write_frame};
