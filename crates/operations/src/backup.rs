//! A backup is asked for piece by piece, at one node: whoever writes it asks for the next piece once it has the one
//! before, so that the node sends no faster than that.
//!
//! ```text
//! begin                                  the shards that there are
//! of each shard:  shard                  a snapshot is taken; from here on its log is kept
//!                 section, segment       what the snapshot has, piece by piece
//!                 log                    what came behind it, again and again until the end
//! ends, ends                             up to where each log goes: all that was acknowledged before the first
//!                                        question is below the first answer, and at some moment between the two
//!                                        all shards were at once
//! log                                    up to the second answer
//! end
//! ```

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What is asked for. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Answers [`Begun`].
    Begin {},
    /// Answers [`ShardBegun`].
    Shard { backup: u64, shard: u32 },
    /// Bytes of a section of the snapshot, by its place in [`ShardBegun::sections`]. Answers [`Piece`].
    Section { backup: u64, shard: u32, section: u8, from: u64 },
    /// Batches of a segment, by its place, from a row on. Answers [`Piece`].
    Segment { backup: u64, shard: u32, segment: u64, row: u64 },
    /// Entries of the log from this one on, which is behind the snapshot; those before it are kept no longer.
    /// Answers [`LogPiece`].
    Log { backup: u64, shard: u32, from: u64 },
    /// Answers [`Ends`], once all that was acknowledged anywhere is applied at the node that is asked.
    Ends { backup: u64 },
    /// Nothing is held any more. Answers [`Ended`].
    End { backup: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// What the other steps name.
    pub backup: u64,
    pub cluster: String,
    /// The node that is asked.
    pub node: u64,
    /// Its version.
    pub version: String,
    /// Its time.
    pub now_ms: i64,
    /// The catalog's first.
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
pub struct ShardBegun {
    /// The last entry in the snapshot.
    pub snapshot: LogId,
    /// Those of consensus and of the machine, what is live, and the list of segments.
    pub sections: Vec<SectionSize>,
    /// How many segments there are.
    pub segments: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SectionSize {
    pub bytes: u64,
    pub crc: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Piece {
    pub bytes: Blob,
    /// Of a segment: the row to ask for next; null at its end.
    pub next: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogPiece {
    /// In the encoding of the log, one behind the other.
    pub entries: Blob,
    /// The index to ask for next.
    pub next: u64,
    /// Whether more of the log is there already.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// Of each shard the index of its last entry, in the order of [`Begun::shards`].
    pub ends: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ended {}

/// Bytes that are no text.
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
    fn steps_and_answers_are_read_back() {
        let step = Step::Segment { backup: 7, shard: 1, segment: 2, row: 3 };
        let written = serde_json::to_string(&step).expect("JSON");
        assert_eq!(written, r#"{"segment":{"backup":7,"shard":1,"segment":2,"row":3}}"#);
        assert_eq!(serde_json::from_str::<Step>(&written).expect("a step"), step);
        let piece = Piece { bytes: Blob(Bytes::from_static(&[0, 0xff, 0xfe])), next: None };
        let written = serde_json::to_string(&piece).expect("JSON");
        assert_eq!(written, r#"{"bytes":"AP/+","next":null}"#);
        assert_eq!(serde_json::from_str::<Piece>(&written).expect("a piece"), piece);
        assert!(serde_json::from_str::<Piece>(r#"{"bytes":"?","next":null}"#).is_err());
    }
}
