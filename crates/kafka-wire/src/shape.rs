//! Validates a request before it is decoded.
//!
//! The message crate reserves memory for as many array elements as a request claims to have, so twelve
//! hostile bytes could allocate terabytes. A [`crate::layout::MessageShape`] is walked first: it follows every length in the bytes,
//! refuses one beyond the end, and adds up the size of the decoded request. The crate then decodes the valid
//! ones; a property test (`shape_tests`) checks that both agree on well-formed requests.

use kafka_protocol::messages::ApiKey;
use thiserror::Error;

use crate::layout::{Field, Fields, Kind};
use crate::primitives::{Cursor, MalformedValue};
use crate::shapes;

/// Limit of a decoded request's size. A request for 100,000 partitions takes about 15 MB.
pub const DECODED_BYTES_MAX: usize = 128 << 20;

/// Decoded size of an array element, without the data that it points to: the larger structs of the crate have
/// some 150 bytes.
const ROW_BYTES: usize = 160;
/// A string or a byte string is a handle into the frame.
const HANDLE_BYTES: usize = 40;
/// An unknown tagged field is kept in a map.
const TAG_BYTES: usize = 96;

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ShapeError {
    #[error("field {field}: {malformed}")]
    Malformed { field: &'static str, malformed: MalformedValue },
    #[error("the request would take more than {DECODED_BYTES_MAX} bytes when decoded")]
    TooHeavy,
    #[error("requests of this kind are not taken")]
    Unknown,
}

/// Follows every length of a request's body; returns its decoded size.
pub fn examine(api: ApiKey, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
    // Trailing bytes are ignored, as in Kafka.
    walked(api, version, body).map(|walk| walk.weight)
}

/// Number of bytes after a request in its frame.
pub fn bytes_behind(api: ApiKey, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
    walked(api, version, body).map(|walk| walk.cursor.left())
}

fn walked(api: ApiKey, version: i16, body: &[u8]) -> Result<ShapeWalk<'_>, ShapeError> {
    let shape = shapes::of(api).ok_or(ShapeError::Unknown)?;
    let mut walk = ShapeWalk {
        cursor: Cursor::new(body),
        version,
        flexible: version >= shape.flexible_since,
        weight: ROW_BYTES,
    };
    walk.fields(&shape.fields)?;
    Ok(walk)
}

struct ShapeWalk<'a> {
    cursor: Cursor<'a>,
    version: i16,
    flexible: bool,
    weight: usize,
}

impl ShapeWalk<'_> {
    fn fields(&mut self, fields: &Fields) -> Result<(), ShapeError> {
        for field in fields.plain {
            if (field.since..=field.until).contains(&self.version) {
                self.kind(field.name, &field.kind)?;
            }
        }
        if self.flexible { self.tagged_fields(fields.tagged) } else { Ok(()) }
    }

    fn tagged_fields(&mut self, known: &[(u32, Field)]) -> Result<(), ShapeError> {
        let within = |malformed| ShapeError::Malformed { field: "tagged fields", malformed };
        let count = self.cursor.unsigned_varint().map_err(within)?;
        for _ in 0..count {
            let tag = self.cursor.unsigned_varint().map_err(within)?;
            let size = self.cursor.unsigned_varint().map_err(within)? as usize;
            let Some((_, field)) = known.iter().find(|(known, _)| *known == tag) else {
                self.weigh(TAG_BYTES)?;
                self.cursor.skip(size).map_err(within)?;
                continue;
            };
            // The decoder reads a known field by its kind and ignores the size. If the two differed,
            // everything after would be read from the wrong position.
            let before = self.cursor.left();
            self.kind(field.name, &field.kind)?;
            if before - self.cursor.left() != size {
                return Err(within(MalformedValue::Length { length: size as i64 }));
            }
        }
        Ok(())
    }

    fn kind(&mut self, name: &'static str, kind: &Kind) -> Result<(), ShapeError> {
        let within = |malformed| ShapeError::Malformed { field: name, malformed };
        let flexible = self.flexible;
        match kind {
            Kind::Fixed(size) => self.cursor.skip(*size).map_err(within),
            Kind::Text => self.cursor.nullable_text(flexible).map(drop).map_err(within),
            Kind::Blob => self.cursor.nullable_blob(flexible).map(drop).map_err(within),
            Kind::List(element) => {
                let count = self.cursor.count(flexible).map_err(within)?;
                for _ in 0..count.unwrap_or(0) {
                    self.weigh(HANDLE_BYTES)?;
                    self.kind(name, element)?;
                }
                Ok(())
            }
            Kind::Rows(fields) => {
                let count = self.cursor.count(flexible).map_err(within)?;
                for _ in 0..count.unwrap_or(0) {
                    self.weigh(ROW_BYTES)?;
                    self.fields(fields)?;
                }
                Ok(())
            }
            Kind::Row(fields) => self.fields(fields),
            Kind::Maybe(fields) => {
                if self.cursor.int8().map_err(within)? == 1 {
                    self.fields(fields)
                } else {
                    Ok(())
                }
            }
        }
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), ShapeError> {
        self.weight += bytes;
        if self.weight > DECODED_BYTES_MAX { Err(ShapeError::TooHeavy) } else { Ok(()) }
    }
}
