//! The state as bytes. A snapshot comes from a disk or a peer, so nothing in it is trusted: first
//! the checksum is verified, then every field is bounded by the available bytes, then the whole
//! must be consistent. The persisted form has its own types: the state's may change freely.
//!
//! ```text
//! magic "PRMS" | version u16 | level u16 | CRC32C of the body u32   (little-endian)
//! level: the cluster's when it was written; 0: the first. Any other is prefixed to the body for the checksum
//! body, in postcard's encoding: versions 1 to 3 as in `whole`,
//!       versions 4 to 11: RoleV4, then as in `catalog` or `rows`
//! ```

use base::checksum::{crc32c, crc32c_append};
use base::{Format, Level, Levels};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::entry::DecodeError;
use crate::state::{Role, State};
use crate::stored::RoleV4;
use catalog::CatalogImage;
use rows::RowsImage;
use whole::WholeImage;

mod catalog;
mod channels;
mod moves;
mod record_ids;
mod requests;
mod rows;
mod transactions;
mod whole;

const MAGIC: [u8; 4] = *b"PRMS";
/// The first version of a separate catalog or separate rows.
const APART_SINCE: u16 = 4;
/// The first version with channels. Rows without channels are written in the previous version, so
/// that a node with one shard keeps writing a format that older programs read.
const CHANNELS_SINCE: u16 = 5;
/// The first version with the members of groups; likewise written only if there are some.
const MEMBERSHIPS_SINCE: u16 = 6;
/// The first version with moves of partitions; likewise written only if there were some.
const MOVES_SINCE: u16 = 7;
/// The first version with rows brought by other nodes; likewise written only if there are some.
const BROUGHT_SINCE: u16 = 8;
/// The first version with ids of records. It is written only if ids were stored, which requires
/// [`Level::RECORD_IDS`].
const RECORD_IDS_SINCE: u16 = 9;
/// The first version with commands in messages, and with fences; likewise written only if there are
/// some.
const MESSAGE_COMMANDS_SINCE: u16 = 10;
/// The first version with transactions of Kafka's producers; likewise written only if there were some.
const TRANSACTIONS_SINCE: u16 = 11;
const NEWEST: u16 = TRANSACTIONS_SINCE;
const _: () = assert!(NEWEST as u32 == Format::MachineSnapshot.newest(Levels::OURS.max));
const HEADER_BYTES: usize = 12;

/// A state at one moment, for another thread to encode. It shares everything with the captured
/// state, and keeps the old content of later changes.
#[derive(Clone, Debug)]
pub struct Image(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Whole(WholeImage),
    Catalog(CatalogImage),
    Rows(Box<RowsImage>),
}

impl Image {
    /// The whole state, written at the first level. Two states with the same history have equal
    /// bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_at(Level::FIRST)
    }

    /// The whole state, in the format of the cluster's level.
    pub fn encode_at(&self, level: Level) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(&MAGIC);
        let version = match &self.0 {
            Kind::Whole(_) => whole::VERSION,
            Kind::Rows(image) => image.version(),
            Kind::Catalog(image) => image.version(),
        };
        bytes.extend_from_slice(&version.to_le_bytes());
        let level = if level > Level::FIRST { level.0 } else { 0 };
        bytes.extend_from_slice(&level.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let mut bytes = match &self.0 {
            Kind::Whole(image) => image.encode(bytes),
            Kind::Catalog(image) => image.encode(put(bytes, &RoleV4::Catalog)),
            Kind::Rows(image) => image.encode(put(bytes, &RoleV4::Rows { shard: image.shard() })),
        };
        let checksum = checksum(level, &bytes[HEADER_BYTES..]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl State {
    /// Captures the current state. Visits each chunk of the outermost maps, some microseconds for
    /// each thousand topics; the first later change of a chunk copies that chunk.
    pub fn capture(&self) -> Image {
        Image(match self.role {
            Role::Whole => Kind::Whole(WholeImage::of(self)),
            Role::Catalog => Kind::Catalog(CatalogImage::of(&self.catalog, self.last_ms)),
            Role::Rows(shard) => {
                Kind::Rows(Box::new(RowsImage::of(shard, &self.rows, self.last_ms)))
            }
        })
    }

    /// See [`Image::encode`].
    pub fn encode(&self) -> Vec<u8> {
        self.capture().encode()
    }

    /// Decodes a state of any level supported by this version: see [`Self::decode_within`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_within(Levels::OURS, bytes)
    }

    /// Decodes a state written at one of these levels.
    pub fn decode_within(can: Levels, bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, mut body) = open(can, bytes)?;
        let state = match version {
            APART_SINCE.. => match take::<RoleV4>(&mut body, "the role")? {
                RoleV4::Catalog if matches!(version, APART_SINCE | MOVES_SINCE) => {
                    catalog::decode(version, &mut body)?
                }
                RoleV4::Catalog => return Err(inconsistent("channels", "of a catalog")),
                RoleV4::Rows { shard } => rows::decode(shard, version, &mut body)?,
            },
            _ => whole::decode(version, &mut body)?,
        };
        if body.is_empty() { Ok(state) } else { Err(DecodeError::LeftOver { bytes: body.len() }) }
    }
}

/// Validates the header. Returns version and body.
fn open(can: Levels, bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(if bytes.is_empty() { DecodeError::Empty } else { DecodeError::NotASnapshot });
    };
    let [m0, m1, m2, m3, v0, v1, l0, l1, c0, c1, c2, c3] = *header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(DecodeError::NotASnapshot);
    }
    let needed = Level(u16::from_le_bytes([l0, l1]));
    if needed > Level::FIRST && !can.has(needed) {
        return Err(DecodeError::Level { needed, can });
    }
    let version = u16::from_le_bytes([v0, v1]);
    if !(1..=NEWEST).contains(&version) {
        let (found, known) = (version.into(), NEWEST.into());
        return Err(DecodeError::UnknownVersion { found, known });
    }
    let (expected, found) = (u32::from_le_bytes([c0, c1, c2, c3]), checksum(needed.0, body));
    if expected != found {
        return Err(DecodeError::Checksum { expected, found });
    }
    Ok((version, body))
}

fn checksum(level: u16, body: &[u8]) -> u32 {
    match level {
        0 => crc32c(body),
        level => crc32c_append(crc32c(&level.to_le_bytes()), body),
    }
}

fn put<T: Serialize>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes)
        .expect("a vector grows, and the state holds no type that postcard cannot encode")
}

fn take<T: DeserializeOwned>(body: &mut &[u8], what: &'static str) -> Result<T, DecodeError> {
    let (value, rest) = postcard::take_from_bytes(body)
        .map_err(|source| DecodeError::Malformed { what, source })?;
    *body = rest;
    Ok(value)
}

/// Capacity for `count` items of at least one byte, bounded by the available bytes.
fn with_room_for<T>(count: u64, body: &[u8]) -> Vec<T> {
    Vec::with_capacity(count.min(body.len() as u64) as usize)
}

fn inconsistent(what: &'static str, name: impl ToString) -> DecodeError {
    DecodeError::Inconsistent { what, name: name.to_string() }
}
