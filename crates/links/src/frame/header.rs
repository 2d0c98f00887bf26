//! The header of a frame: 16 bytes.

use crate::limits::{LINK_GOSSIP_BYTES_MAX, LINK_HANDSHAKE_BYTES_MAX};
use base::Level;
use base::checksum::crc32c;
use bytes::{BufMut, BytesMut};

use crate::end::Violation;

pub(crate) const HEADER_BYTES: usize = 16;

/// Flag of an append: the first of its stream, which replaces an earlier stream of the shard.
pub(crate) const FIRST: u8 = 1;
/// Flag of the end of a stream: appends not yet carried out are to be discarded.
pub(crate) const ABANDONED: u8 = 2;

const FLAGS: u8 = FIRST | ABANDONED;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The identity of the connecting node.
    Hello = 1,
    /// The identity of the accepting node.
    Welcome = 2,
    /// The reason why either side rejects the connection.
    Refused = 3,
    /// A ping. It gets no reply: each side sends its own.
    Ping = 4,
    /// This side closes the connection in order, and sends nothing more.
    Close = 5,
    Gossip = 6,
    Request = 7,
    /// Reply to the request, or the append, with its number.
    Reply = 8,
    /// Rejection of the request, or the append, with its number.
    Declined = 9,
    Append = 10,
    /// The end of a stream, from either side; its number is that of its first append.
    AppendsEnd = 11,
}

base::levels!(Kind {
    Level::FIRST => Hello | Welcome | Refused | Ping | Close | Gossip | Request | Reply
        | Declined | Append | AppendsEnd;
});

impl Kind {
    const ALL: [Self; 11] = [
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Ping,
        Self::Close,
        Self::Gossip,
        Self::Request,
        Self::Reply,
        Self::Declined,
        Self::Append,
        Self::AppendsEnd,
    ];
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Bytes of the message behind it.
    pub(crate) length: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) shard: u16,
    pub(crate) number: u32,
}

impl Header {
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[6..8].copy_from_slice(&self.shard.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c(&bytes[..12]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        out.put_slice(&bytes);
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Violation> {
        let [l0, l1, l2, l3, kind, flags, s0, s1, n0, n1, n2, n3, c0, c1, c2, c3] = *bytes;
        if crc32c(&bytes[..12]) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(Violation::Header);
        }
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let known = known.ok_or(Violation::Kind { kind })?;
        if flags & !FLAGS != 0 {
            return Err(Violation::Flags { flags });
        }
        Ok(Self {
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            kind: known,
            flags,
            shard: u16::from_le_bytes([s0, s1]),
            number: u32::from_le_bytes([n0, n1, n2, n3]),
        })
    }

    /// Checks the length of the message against the lane's limit, `max`, and against the limit of its kind.
    pub(crate) fn check_length(&self, max: usize) -> Result<(), Violation> {
        let max = match self.kind {
            Kind::Request | Kind::Reply | Kind::Append => max,
            // The parts around it are a few bytes.
            Kind::Gossip => LINK_GOSSIP_BYTES_MAX + 64,
            // Kinds with short messages.
            _ => LINK_HANDSHAKE_BYTES_MAX,
        };
        let bytes = self.length as usize;
        if bytes > max { Err(Violation::TooLong { bytes, max }) } else { Ok(()) }
    }

    pub(crate) fn not_allowed(&self) -> Violation {
        Violation::Kind { kind: self.kind as u8 }
    }
}
