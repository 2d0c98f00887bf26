//! Content of the file `epochs`, and its bytes.
//!
//! ```text
//!  0  magic "PRepochs"         8  version u32
//! 12  number of the write u64  20  epoch of this directory u64
//! 28  count of peers u16, and each of them:
//!     node u64   directory 16 bytes   run 16 bytes   epoch u64   bits u8: 1 if it lost acknowledged entries
//!     CRC32C of all before it u32
//! ```
//!
//! Numbers are little-endian. The file has two slots of [`SLOT_BYTES`]; a write goes to the slot of its number modulo
//! two, so that a torn write leaves the one before.

use std::collections::BTreeMap;

use base::checksum::crc32c;
use base::limits::NODES_MAX;
use base::{Format, Levels};
use bytes::{Buf, BufMut};
use links::NodeId;
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"PRepochs";
const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::EpochFile.newest(Levels::OURS.max));
pub(super) const SLOT_BYTES: usize = 4096;
const HEAD_BYTES: usize = 8 + 4 + 8 + 8 + 2;
const PEER_BYTES: usize = 8 + 16 + 16 + 8 + 1;
/// Limit of stored peers: those of a cluster, and some that joined since.
pub(crate) const PEERS_MAX: usize = NODES_MAX + 16;
const _: () = assert!(HEAD_BYTES + PEERS_MAX * PEER_BYTES + 4 <= SLOT_BYTES);

/// Latest epoch of a peer's directory that this node received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerEpoch {
    pub(crate) directory: Uuid,
    /// Run of the peer's process that sent it.
    pub(crate) run: Uuid,
    pub(crate) epoch: u64,
    /// The leader of a shard missed entries that the peer had acknowledged.
    pub(crate) lost: bool,
}

pub(crate) type PeerEpochs = BTreeMap<NodeId, PeerEpoch>;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Content {
    /// Number of the write.
    pub(super) write: u64,
    /// Epoch of this node's directory; 0: none yet.
    pub(crate) own: u64,
    pub(crate) peers: PeerEpochs,
}

impl Content {
    /// Content that was not written yet.
    pub(crate) fn new(own: u64, peers: PeerEpochs) -> Self {
        Self { write: 0, own, peers }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u64_le(self.write);
        out.put_u64_le(self.own);
        let peers = self.peers.iter().take(PEERS_MAX);
        out.put_u16_le(peers.len() as u16);
        for (node, PeerEpoch { directory, run, epoch, lost }) in peers {
            out.put_u64_le(node.0);
            out.put_slice(directory.as_bytes());
            out.put_slice(run.as_bytes());
            out.put_u64_le(*epoch);
            out.put_u8(u8::from(*lost));
        }
        out.put_u32_le(crc32c(&out));
        out
    }

    /// `None`: the slot was never written, or only in part.
    pub(super) fn decode(slot: &[u8]) -> Option<Self> {
        let mut bytes = slot.strip_prefix(MAGIC)?;
        if bytes.len() < HEAD_BYTES - MAGIC.len() || bytes.get_u32_le() != VERSION {
            return None;
        }
        let (write, own) = (bytes.get_u64_le(), bytes.get_u64_le());
        let count = usize::from(bytes.get_u16_le());
        let length = HEAD_BYTES + count * PEER_BYTES;
        let checksum = slot.get(length..)?.first_chunk::<4>()?;
        if count > PEERS_MAX || crc32c(slot.get(..length)?) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let peers = (0..count).map(|_| peer(&mut bytes)).collect();
        Some(Self { write, own, peers })
    }
}

/// The caller has checked the length.
fn peer(bytes: &mut &[u8]) -> (NodeId, PeerEpoch) {
    let node = NodeId(bytes.get_u64_le());
    let directory = Uuid::from_u128(bytes.get_u128());
    let run = Uuid::from_u128(bytes.get_u128());
    let (epoch, lost) = (bytes.get_u64_le(), bytes.get_u8() & 1 != 0);
    (node, PeerEpoch { directory, run, epoch, lost })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> Content {
        let peer = PeerEpoch {
            directory: Uuid::from_u128(0x33),
            run: Uuid::from_u128(0x44),
            epoch: 0x0506,
            lost: true,
        };
        Content { write: 3, own: 0x0102, peers: [(NodeId(2), peer)].into() }
    }

    #[test]
    fn bytes_of_the_file_do_not_change() {
        let uuid = |last| [[0; 15].as_slice(), &[last]].concat();
        let expected = [
            b"PRepochs\x01\0\0\0".to_vec(),
            vec![3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0],
            vec![2, 0, 0, 0, 0, 0, 0, 0],
            uuid(0x33),
            uuid(0x44),
            vec![6, 5, 0, 0, 0, 0, 0, 0, 1],
        ]
        .concat();
        let bytes = content().encode();
        assert_eq!(bytes[..bytes.len() - 4], expected);
        let mut slot = bytes;
        slot.resize(SLOT_BYTES, 0);
        assert_eq!(Content::decode(&slot), Some(content()));
        assert_eq!(Content::decode(&[0; SLOT_BYTES]), None);
    }

    proptest! {
        #[test]
        fn changed_or_cut_slot_is_rejected(
            position in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            length in any::<prop::sample::Index>(),
        ) {
            let bytes = content().encode();
            let mut changed = bytes.clone();
            changed[position.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(Content::decode(&changed), None);
            prop_assert_eq!(Content::decode(&bytes[..length.index(bytes.len())]), None);
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(mut slot in prop::collection::vec(any::<u8>(), 0..300)) {
            for (place, byte) in b"PRepochs\x01\0\0\0".iter().enumerate().take(slot.len()) {
                slot[place] = *byte;
            }
            let _ = Content::decode(&slot);
        }
    }
}
