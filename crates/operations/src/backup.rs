//! Protocol of a backup: the client pulls it from one node, piece by piece. It requests a piece only once it has the
//! previous one, so that the node never sends faster than the client writes.
//!
//! ```text
//! begin                                  lists the shards
//! for each shard: shard                  takes a snapshot; the node keeps the log behind it from here on
//!                 section, segment       contents of the snapshot, piece by piece
//!                 log                    entries behind the snapshot, requested repeatedly until the end
//! ends, ends                             last index of each shard, requested twice. Everything acknowledged before the
//!                                        first request is below the first reply, and all shards were between the two
//!                                        replies at one common moment
//! log                                    up to the second reply
//! end
//! ```

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A request. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Reply: [`BackupBegun`].
    Begin {},
    /// Reply: [`ShardBackupBegun`].
    Shard { backup: u64, shard: u32 },
    /// Bytes of a section of the snapshot, by its position in [`ShardBackupBegun::sections`]. Reply: [`BackupPiece`].
    Section { backup: u64, shard: u32, section: u8, from: u64 },
    /// Batches of a segment, by its position, starting at a row. Reply: [`BackupPiece`].
    Segment { backup: u64, shard: u32, segment: u64, row: u64 },
    /// Entries of the log behind the snapshot, starting at this index; the node drops earlier ones. Reply:
    /// [`LogPiece`].
    Log { backup: u64, shard: u32, from: u64 },
    /// Sent once this node has applied everything acknowledged anywhere in the cluster. Reply: [`BackupEnds`].
    Ends { backup: u64 },
    /// Ends the backup: the node releases everything it kept for it. Reply: [`BackupEnded`].
    End { backup: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupBegun {
    /// Number of the backup that the other steps carry.
    pub backup: u64,
    pub cluster: String,
    /// The replying node.
    pub node: u64,
    /// Version of the node.
    pub version: String,
    /// Clock of the node.
    pub now_ms: i64,
    /// The catalog shard first.
    pub shards: Vec<u32>,
}

/// An entry of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogId {
    pub index: u64,
    pub term: u64,
    pub leader: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardBackupBegun {
    /// The last entry in the snapshot.
    pub snapshot: LogId,
    /// Sections: consensus state, machine state, live offsets, and the list of segments.
    pub sections: Vec<SectionSize>,
    /// Number of segments.
    pub segments: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SectionSize {
    pub bytes: u64,
    pub crc: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupPiece {
    pub bytes: Blob,
    /// For a segment: the next row to request; null at its end.
    pub next: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPiece {
    /// Concatenated entries, in the encoding of the log.
    pub entries: Blob,
    /// The next index to request.
    pub next: u64,
    /// Whether more entries are available already.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupEnds {
    /// Index of each shard's last entry, in the order of [`BackupBegun::shards`].
    pub ends: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BackupEnded {}

/// Binary data, base64 in JSON.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(pub Bytes);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(de::Error::custom)?;
        Ok(Self(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_replies_round_trip() {
        let step = Step::Segment { backup: 7, shard: 1, segment: 2, row: 3 };
        let written = serde_json::to_string(&step).expect("JSON");
        assert_eq!(written, r#"{"segment":{"backup":7,"shard":1,"segment":2,"row":3}}"#);
        assert_eq!(serde_json::from_str::<Step>(&written).expect("a step"), step);
        let piece = BackupPiece { bytes: Blob(Bytes::from_static(&[0, 0xff, 0xfe])), next: None };
        let written = serde_json::to_string(&piece).expect("JSON");
        assert_eq!(written, r#"{"bytes":"AP/+","next":null}"#);
        assert_eq!(serde_json::from_str::<BackupPiece>(&written).expect("a piece"), piece);
        assert!(serde_json::from_str::<BackupPiece>(r#"{"bytes":"?","next":null}"#).is_err());
    }
}
