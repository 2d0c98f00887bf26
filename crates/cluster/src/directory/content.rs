//! Content of the file `node`, and its bytes.
//!
//! ```text
//!  0  magic "PRnodeid"         8  version u32
//! 12  cluster 16 bytes, zeros: none yet
//! 28  node u64                36  directory 16 bytes
//! 52  boot u64                60  bits: 1 once the cluster is founded, 2 in a node that joined it later,
//!                                 4 while it is being recovered, 8 while it is being restored
//! 61  count of nodes u16, and each of them:
//!     node u64   directory 16 bytes, zeros: not seen yet   boot u64   length of its address u32   address
//!     CRC32C of all before it u32
//! ```
//!
//! Numbers are little-endian.

use base::{Format, Levels};
use std::collections::BTreeMap;

use base::checksum::crc32c;
use base::limits::NODES_MAX;
use bytes::{Buf, BufMut};
use links::NodeId;
use uuid::Uuid;

const MAGIC: &[u8; 8] = b"PRnodeid";
pub(super) const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::NodeFile.newest(Levels::OURS.max));
/// Magic, version, and the fields before the nodes.
const HEAD_BYTES: usize = 8 + 4 + 16 + 8 + 16 + 8 + 1 + 2;
/// Size of a node without its address.
const NODE_BYTES: usize = 8 + 16 + 8 + 4;

/// A node of the cluster, as this one knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) address: String,
    /// `None`: the node has not been seen yet.
    pub(crate) directory: Option<Uuid>,
    /// The last boot that was seen.
    pub(crate) boot: u64,
}

pub(crate) type Records = BTreeMap<NodeId, Record>;

/// The node and cluster that a data directory belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    /// `None`: the founder has not sent it yet.
    pub(crate) cluster: Option<Uuid>,
    pub(crate) node: NodeId,
    /// Drawn when the directory was created.
    pub(crate) directory: Uuid,
    /// Number of starts on it, this one included.
    pub(crate) boot: u64,
    /// Every seed was seen, or the catalog was read: the nodes' records are binding.
    pub(crate) is_founded: bool,
    /// The node has joined, or wants to: it founds no cluster.
    pub(crate) joined: bool,
    /// It continues without the majority of its former cluster, and its recovery is not complete.
    pub(crate) is_recovering: bool,
    /// It is restored from a backup, and the restore is not complete.
    pub(crate) is_restoring: bool,
    /// All nodes, this one included.
    pub(crate) nodes: Records,
}

/// Reason why bytes cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unreadable {
    Damaged(&'static str),
    LaterVersion(u32),
}

impl Content {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.nodes.len() * 64);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_slice(self.cluster.unwrap_or_default().as_bytes());
        out.put_u64_le(self.node.0);
        out.put_slice(self.directory.as_bytes());
        out.put_u64_le(self.boot);
        let bits = [self.is_founded, self.joined, self.is_recovering, self.is_restoring];
        out.put_u8(bits.iter().rev().fold(0, |bits, bit| bits << 1 | u8::from(*bit)));
        out.put_u16_le(self.nodes.len() as u16);
        for (node, Record { address, directory, boot }) in &self.nodes {
            out.put_u64_le(node.0);
            out.put_slice(directory.unwrap_or_default().as_bytes());
            out.put_u64_le(*boot);
            out.put_u32_le(address.len() as u32);
            out.put_slice(address.as_bytes());
        }
        out.put_u32_le(crc32c(&out));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        use Unreadable::Damaged;
        let Some((mut content, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(Damaged("it is too short"));
        };
        if *checksum != crc32c(content).to_le_bytes() {
            return Err(Damaged("its checksum does not hold"));
        }
        if content.len() < MAGIC.len() + 4 || !content.starts_with(MAGIC) {
            return Err(Damaged("it is something else"));
        }
        content.advance(MAGIC.len());
        let version = content.get_u32_le();
        if version != VERSION {
            return Err(Unreadable::LaterVersion(version));
        }
        if content.remaining() < HEAD_BYTES - MAGIC.len() - 4 {
            return Err(Damaged("it is too short"));
        }
        let cluster = uuid(&mut content);
        let node = NodeId(content.get_u64_le());
        let directory = uuid(&mut content).ok_or(Damaged("it names no directory"))?;
        let boot = content.get_u64_le();
        let bits = content.get_u8();
        let (is_founded, joined) = (bits & 1 != 0, bits & 2 != 0);
        let (is_recovering, is_restoring) = (bits & 4 != 0, bits & 8 != 0);
        let count = content.get_u16_le();
        let nodes = (0..count).map(|_| record(&mut content)).collect::<Option<Records>>();
        let nodes = nodes.filter(|_| !content.has_remaining());
        let nodes = nodes.ok_or(Damaged("its nodes do not fit its length"))?;
        if nodes.len() > NODES_MAX {
            return Err(Damaged("it has more nodes than a cluster"));
        }
        Ok(Self {
            cluster,
            node,
            directory,
            boot,
            is_founded,
            joined,
            is_recovering,
            is_restoring,
            nodes,
        })
    }
}

/// The caller has checked the length.
fn uuid(bytes: &mut &[u8]) -> Option<Uuid> {
    let uuid = Uuid::from_u128(bytes.get_u128());
    (!uuid.is_nil()).then_some(uuid)
}

fn record(bytes: &mut &[u8]) -> Option<(NodeId, Record)> {
    if bytes.remaining() < NODE_BYTES {
        return None;
    }
    let node = NodeId(bytes.get_u64_le());
    let directory = uuid(bytes);
    let boot = bytes.get_u64_le();
    let length = bytes.get_u32_le() as usize;
    let address = std::str::from_utf8(bytes.get(..length)?).ok()?.to_owned();
    bytes.advance(length);
    Some((node, Record { address, directory, boot }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> Content {
        let seen = Record {
            address: "a:1".to_owned(),
            directory: Some(Uuid::from_u128(0x33)),
            boot: 0x44,
        };
        let unseen = Record { address: "b:22".to_owned(), directory: None, boot: 0 };
        Content {
            cluster: Some(Uuid::from_u128(0x11)),
            node: NodeId(2),
            directory: Uuid::from_u128(0x22),
            boot: 0x0102,
            is_founded: true,
            joined: false,
            is_recovering: false,
            is_restoring: false,
            nodes: [(NodeId(1), seen), (NodeId(2), unseen)].into(),
        }
    }

    /// Any change of the format fails here.
    #[test]
    fn bytes_of_the_node_file_do_not_change() {
        let uuid = |last| [[0; 15].as_slice(), &[last]].concat();
        let expected = [
            b"PRnodeid\x01\0\0\0".to_vec(),
            uuid(0x11),
            vec![2, 0, 0, 0, 0, 0, 0, 0],
            uuid(0x22),
            vec![2, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0],
            vec![1, 0, 0, 0, 0, 0, 0, 0],
            uuid(0x33),
            vec![0x44, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            b"a:1".to_vec(),
            vec![2, 0, 0, 0, 0, 0, 0, 0],
            uuid(0),
            vec![0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0],
            b"b:22".to_vec(),
        ]
        .concat();
        let bytes = content().encode();
        let (body, checksum) = bytes.split_last_chunk::<4>().expect("long enough");
        assert_eq!(body, expected);
        assert_eq!(*checksum, crc32c(&expected).to_le_bytes());
        assert_eq!(Content::decode(&bytes), Ok(content()));
        let young = Content { cluster: None, is_founded: false, ..content() };
        assert_eq!(Content::decode(&young.encode()), Ok(young.clone()));
        let asks = Content { joined: true, ..young };
        assert_eq!(asks.encode()[60], 2);
        assert_eq!(Content::decode(&asks.encode()), Ok(asks));
        let recovering = Content { is_recovering: true, ..content() };
        assert_eq!(recovering.encode()[60], 5);
        assert_eq!(Content::decode(&recovering.encode()), Ok(recovering));
        let restoring = Content { is_restoring: true, ..content() };
        assert_eq!(restoring.encode()[60], 9);
        assert_eq!(Content::decode(&restoring.encode()), Ok(restoring));
    }

    #[test]
    fn later_version_of_the_file_is_reported_as_such() {
        let bytes = content().encode();
        let mut body = bytes[..bytes.len() - 4].to_vec();
        body[8] = 9;
        let checksum = crc32c(&body);
        body.put_u32_le(checksum);
        assert_eq!(Content::decode(&body), Err(Unreadable::LaterVersion(9)));
    }

    proptest! {
        #[test]
        fn changed_or_cut_file_is_rejected(
            position in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            length in any::<prop::sample::Index>(),
        ) {
            let bytes = content().encode();
            let mut changed = bytes.clone();
            changed[position.index(bytes.len())] ^= 1 << bit;
            prop_assert!(Content::decode(&changed).is_err());
            prop_assert!(Content::decode(&bytes[..length.index(bytes.len())]).is_err());
        }

        #[test]
        fn arbitrary_bytes_with_a_checksum_are_decoded_or_rejected(mut body in prop::collection::vec(any::<u8>(), 0..300)) {
            for (place, byte) in b"PRnodeid\x01\0\0\0".iter().enumerate().take(body.len()) {
                body[place] = *byte;
            }
            let checksum = crc32c(&body);
            body.put_u32_le(checksum);
            let _ = Content::decode(&body);
        }
    }
}
