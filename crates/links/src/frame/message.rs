//! Messages, as a link sends and receives them.

use base::checksum::{crc32c, crc32c_append};
use bytes::{BufMut, Bytes};
use gateway::UnsentOutput;
use tokio::sync::OwnedSemaphorePermit;
use world::Instant;

use crate::end::Violation;
use crate::frame::header::{Header, Kind};

/// Bytes of a message without head and body.
const AROUND_BYTES: usize = 12;
/// A longer head is not copied, at the price of another slice in the write.
const HEAD_COPIED_BYTES_MAX: usize = 4 << 10;

/// A message that a link sends. The head is covered by the link's checksum. The body is neither covered nor
/// copied: it must have its own checksums, as entries of a journal do.
#[derive(Clone, Default, Debug)]
pub struct Message {
    pub head: Bytes,
    /// The pieces of the body, which arrive as one.
    pub body: Vec<Bytes>,
}

impl Message {
    /// A message without a body.
    pub fn from_head(head: impl Into<Bytes>) -> Self {
        Self { head: head.into(), body: Vec::new() }
    }

    /// Size on the wire without its frame's header, as windows and limits count it.
    pub fn bytes(&self) -> usize {
        AROUND_BYTES + self.head.len() + self.body.iter().map(Bytes::len).sum::<usize>()
    }
}

/// A message that a link received: slices of one buffer. Keeping one of them keeps the whole buffer.
#[derive(Clone, Default, Debug)]
pub struct ReceivedMessage {
    /// As it was sent.
    pub head: Bytes,
    /// Not checked by the link.
    pub body: Bytes,
}

/// A frame that waits to be written.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) shard: u16,
    pub(crate) number: u32,
    /// The frame is not sent after it. The remaining time is sent to the peer.
    pub(crate) deadline: Option<Instant>,
    pub(crate) message: Message,
    /// Room in a queue, in use until the frame is copied to the socket's buffer.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl QueuedFrame {
    pub(crate) fn new(kind: Kind, number: u32, message: Message) -> Self {
        Self { kind, flags: 0, shard: 0, number, deadline: None, message, room: None }
    }

    pub(crate) fn bare(kind: Kind) -> Self {
        Self::new(kind, 0, Message::default())
    }
}

/// Adds a frame to the bytes for a socket. `now` determines the remaining time.
pub(crate) fn write_frame(frame: QueuedFrame, now: Instant, unsent: &mut UnsentOutput) {
    let QueuedFrame { kind, flags, shard, number, deadline, message, room } = frame;
    // The sender has compared the message with its lane's limit, which fits 32 bits.
    let length = message.bytes() as u32;
    let left = deadline.map(|deadline| deadline.saturating_duration_since(now).as_millis());
    // Zero means no deadline.
    let left = left.map_or(0, |left| left.clamp(1, u128::from(u32::MAX)) as u32);
    let Message { head, body } = message;
    let mut around = [0; 8];
    around[..4].copy_from_slice(&(head.len() as u32).to_le_bytes());
    around[4..].copy_from_slice(&left.to_le_bytes());
    let checksum = crc32c_append(crc32c(&around), &head);
    let is_copied = head.len() <= HEAD_COPIED_BYTES_MAX;
    unsent.write(|out| {
        Header { length, kind, flags, shard, number }.encode(out);
        out.put_slice(&around);
        if is_copied {
            out.put_slice(&head);
        }
    });
    if !is_copied {
        unsent.push(head);
    }
    unsent.write(|out| out.put_u32_le(checksum));
    for piece in body {
        unsent.push(piece);
    }
    drop(room);
}

/// The parts of a complete message, and the time limit of its reply in milliseconds.
pub(crate) fn split(mut message: Bytes) -> Result<(ReceivedMessage, u32), Violation> {
    let Some((around, _)) = message.split_first_chunk::<8>() else {
        return Err(Violation::Layout);
    };
    let [h0, h1, h2, h3, w0, w1, w2, w3] = *around;
    let head = u32::from_le_bytes([h0, h1, h2, h3]) as usize;
    let within_ms = u32::from_le_bytes([w0, w1, w2, w3]);
    let covered = head.saturating_add(8);
    if message.len() < covered.saturating_add(4) {
        return Err(Violation::Layout);
    }
    let mut head = message.split_to(covered);
    let checksum = message.split_to(4);
    if crc32c(&head).to_le_bytes() != checksum[..] {
        return Err(Violation::Message);
    }
    let head = head.split_off(8);
    Ok((ReceivedMessage { head, body: message }, within_ms))
}
