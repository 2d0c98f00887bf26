//! The state as bytes. A snapshot is read back from a disk or from a peer, so nothing in it is
//! believed: checksum first, then every field is bounded by the bytes that are there, then the
//! whole must be consistent. The persisted form has its own types: the state's may change freely.
//!
//! ```text
//! magic "PRMS" | version u16 | level u16 | CRC32C of the body u32   (little-endian)
//! level: the cluster's when it was written; 0: the first. Another one is covered by the checksum, in front of the body
//! body, in postcard's encoding: versions 1 to 3 as `whole` has it,
//!       versions 4 to 9: RoleV4, then as `catalog` or `rows` has it
//! ```

use base::checksum::{crc32c, crc32c_append};
use base::{Format, Level, Levels};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::entry::DecodeError;
use crate::state::{Role, State};
use catalog::CatalogImage;
use rows::RowsImage;
use stored::RoleV4;
use whole::WholeImage;

mod catalog;
mod channels;
mod moves;
mod record_ids;
mod requests;
mod rows;
pub(crate) mod stored;
mod whole;

const MAGIC: [u8; 4] = *b"PRMS";
/// The first version that is of a catalog or of rows.
const APART_SINCE: u16 = 4;
/// The first version with channels. Rows that have none are written as before, so that a node with one shard
/// goes on to write what an older version reads.
const CHANNELS_SINCE: u16 = 5;
/// The first version with the members of groups, and as well written only where there are some.
const MEMBERSHIPS_SINCE: u16 = 6;
/// The first version with moves of partitions, and as well written only where there were some.
const MOVES_SINCE: u16 = 7;
/// The first version with what other nodes have brought, and as well written only where there is some.
const BROUGHT_SINCE: u16 = 8;
/// The first version with ids of records. It is written only where ids were stored, which needs
/// [`Level::RECORD_IDS`].
const RECORD_IDS_SINCE: u16 = 9;
const _: () = assert!(RECORD_IDS_SINCE as u32 == Format::MachineSnapshot.newest(Levels::OURS.max));
const HEADER_BYTES: usize = 12;

/// A state as it was, for another thread to encode. It shares everything with the state that it was
/// taken of; what of that the state changes afterwards is kept here as it was.
#[derive(Clone, Debug)]
pub struct Image(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Whole(WholeImage),
    Catalog(CatalogImage),
    Rows(RowsImage),
}

impl Image {
    /// The whole state, written at the first level. Two states with the same history have the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_at(Level::FIRST)
    }

    /// The whole state, as the cluster's level permits it to be written.
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
    /// The state as it stands. Costs a look at each chunk of the outermost maps, some microseconds
    /// for each thousand topics; the first change of a chunk afterwards copies that chunk.
    pub fn capture(&self) -> Image {
        Image(match self.role {
            Role::Whole => Kind::Whole(WholeImage::of(self)),
            Role::Catalog => Kind::Catalog(CatalogImage::of(&self.catalog, self.last_ms)),
            Role::Rows(shard) => Kind::Rows(RowsImage::of(shard, &self.rows, self.last_ms)),
        })
    }

    /// See [`Image::encode`].
    pub fn encode(&self) -> Vec<u8> {
        self.capture().encode()
    }

    /// A state of any level that this source knows: see [`Self::decode_within`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_within(Levels::OURS, bytes)
    }

    /// A state that was written at one of these levels.
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

/// Version and body, once the header is right.
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
    if !(1..=RECORD_IDS_SINCE).contains(&version) {
        let (found, known) = (version.into(), RECORD_IDS_SINCE.into());
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

/// For `count` things that take a byte at least, never more than the bytes that are there.
fn with_room_for<T>(count: u64, body: &[u8]) -> Vec<T> {
    Vec::with_capacity(count.min(body.len() as u64) as usize)
}

fn inconsistent(what: &'static str, name: impl ToString) -> DecodeError {
    DecodeError::Inconsistent { what, name: name.to_string() }
}
