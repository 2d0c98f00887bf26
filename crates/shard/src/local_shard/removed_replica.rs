//! Shards whose replica was removed from this node: it was a member of their groups, and is none any more.
//!
//! A file beside the shard's directory records this, and the node's promises in the group ([`consensus::Floor`]). It
//! is written once the group's leader has confirmed by committed entries that the node is no member. The shard's own
//! files are in use, so they stay until the node restarts; the floor then covers the promises made meanwhile.
//!
//! States of the file, and the action of the next start:
//!
//! * marked, with the log end as it was when the file was written: the floor is taken from the shard's files, `removing`
//! * marked, with another log end: the node is a member again, the files stay, `removed`
//! * removing: the files are removed, `removed`
//! * removed: none, and the floor holds for any later replica of the shard on this node
//!
//! The log of a node that rejoins changes its end before its replica counts: the entry that makes the node a member
//! comes after all entries that it had.
//!
//! ```text
//!  0  magic "PRgiveup"   8  version u32   12  state u8
//! 13  where the log ended: 1 if it had entries u8, term u64, index u64
//! 30  length u32, and the floor
//!     CRC32C of all before it u32
//! ```
//!
//! Numbers are little-endian.

use std::io::{self, IoSlice};
use std::path::Path;

use base::checksum::crc32c;
use base::{Format, Levels, ShardId};
use bytes::{Buf, BufMut};
use consensus::{Floor, LogEnd};
use world::Disk;
use world::disk::replace;

const MAGIC: &[u8; 8] = b"PRgiveup";
const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::GivenUp.newest(Levels::OURS.max));

/// Files of a removed replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaFiles {
    /// To be removed at the next start, unless the log has changed by then.
    Marked,
    Removing,
    /// The files were removed; any that exist are newer.
    Removed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedReplica {
    pub files: ReplicaFiles,
    /// End of the log when the replica was removed.
    pub ended: Option<LogEnd>,
    pub floor: Floor,
}

impl RemovedReplica {
    /// Marks the replica as removed. The floor includes that of an earlier removal.
    pub fn of(floor: Floor, before: Option<Self>) -> Self {
        let promised = before.map_or(floor, |before| floor.max(before.floor));
        Self { files: ReplicaFiles::Marked, ended: floor.last(), floor: promised }
    }

    /// Returns the name of a shard's file in the data directory.
    pub fn file_name(shard: ShardId) -> String {
        format!("given-up-{}", shard.0)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u8(match self.files {
            ReplicaFiles::Marked => 1,
            ReplicaFiles::Removing => 2,
            ReplicaFiles::Removed => 3,
        });
        let LogEnd { term, index } = self.ended.unwrap_or_default();
        out.put_u8(self.ended.is_some().into());
        out.put_u64_le(term);
        out.put_u64_le(index);
        let floor = self.floor.encode();
        out.put_u32_le(floor.len() as u32);
        out.put_slice(&floor);
        out.put_u32_le(crc32c(&out));
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c(content).to_le_bytes() != *checksum {
            return None;
        }
        let mut content = content.strip_prefix(MAGIC)?;
        if content.try_get_u32_le().ok()? != VERSION {
            return None;
        }
        let files = match content.try_get_u8().ok()? {
            1 => ReplicaFiles::Marked,
            2 => ReplicaFiles::Removing,
            3 => ReplicaFiles::Removed,
            _ => return None,
        };
        let had_entries = content.try_get_u8().ok()? == 1;
        let (term, index) = (content.try_get_u64_le().ok()?, content.try_get_u64_le().ok()?);
        let ended = had_entries.then_some(LogEnd { term, index });
        let length = content.try_get_u32_le().ok()? as usize;
        let floor = content.get(..length).filter(|_| content.len() == length)?;
        Some(Self { files, ended, floor: Floor::decode(floor).ok()? })
    }

    /// Durable on return. Blocking.
    pub fn write(&self, disk: &dyn Disk, dir: &Path, shard: ShardId) -> io::Result<()> {
        replace(disk, dir, &Self::file_name(shard), &mut [IoSlice::new(&self.encode())])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn changed_or_cut_removal_file_is_rejected(
            position in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            length in any::<prop::sample::Index>(),
        ) {
            let floor = Floor::decode(&[1, 0, 0]).expect("an empty floor");
            let found = RemovedReplica { files: ReplicaFiles::Removing, ended: Some(LogEnd { term: 7, index: 9 }), floor };
            let bytes = found.encode();
            prop_assert_eq!(RemovedReplica::decode(&bytes), Some(found));
            let mut changed = bytes.clone();
            changed[position.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(RemovedReplica::decode(&changed), None);
            prop_assert_eq!(RemovedReplica::decode(&bytes[..length.index(bytes.len())]), None);
        }
    }
}
