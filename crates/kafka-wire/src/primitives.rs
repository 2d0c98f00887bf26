//! The protocol's integers, strings and lengths, read from untrusted bytes.
//!
//! "Flexible" is the protocol's word for the versions of a message whose lengths are varints, one more than
//! the length so that 0 can mean null.

use bytes::{BufMut, BytesMut};
use thiserror::Error;
use uuid::Uuid;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MalformedValue {
    #[error("cut off: {needed} bytes are due and {have} are there")]
    Truncated { needed: usize, have: usize },
    #[error("the impossible length {length}")]
    Length { length: i64 },
    #[error("an integer that does not end")]
    Varint,
    #[error("text that is not UTF-8")]
    Text,
    #[error("null where a value is due")]
    Null,
}

/// Reads from the front of borrowed bytes.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], MalformedValue> {
        let have = self.bytes.len();
        let (taken, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(MalformedValue::Truncated { needed: len, have })?;
        self.bytes = rest;
        Ok(taken)
    }

    pub fn skip(&mut self, len: usize) -> Result<(), MalformedValue> {
        self.take(len).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedValue> {
        let have = self.bytes.len();
        let (taken, rest) =
            self.bytes.split_first_chunk().ok_or(MalformedValue::Truncated { needed: N, have })?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub fn int8(&mut self) -> Result<i8, MalformedValue> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn int16(&mut self) -> Result<i16, MalformedValue> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn int32(&mut self) -> Result<i32, MalformedValue> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn int64(&mut self) -> Result<i64, MalformedValue> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Result<Uuid, MalformedValue> {
        self.array().map(Uuid::from_bytes)
    }

    /// At most 32 bits in at most five bytes.
    pub fn unsigned_varint(&mut self) -> Result<u32, MalformedValue> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                // The fifth byte has room for four bits.
                return if shift == 28 && byte > 0x0f {
                    Err(MalformedValue::Varint)
                } else {
                    Ok(value)
                };
            }
        }
        Err(MalformedValue::Varint)
    }

    /// Reads the number of an array's elements; `None` for a null array. Every element takes at least one
    /// byte, so a count above the remaining bytes is refused here.
    pub fn count(&mut self, flexible: bool) -> Result<Option<usize>, MalformedValue> {
        let count = if flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else {
            i64::from(self.int32()?)
        };
        let Some(count) = length(count)? else { return Ok(None) };
        let have = self.left();
        if count > have {
            return Err(MalformedValue::Truncated { needed: count, have });
        }
        Ok(Some(count))
    }

    pub fn nullable_text(&mut self, flexible: bool) -> Result<Option<&'a str>, MalformedValue> {
        let len = if flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else {
            i64::from(self.int16()?)
        };
        let Some(len) = length(len)? else { return Ok(None) };
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| MalformedValue::Text)?;
        Ok(Some(text))
    }

    pub fn text(&mut self, flexible: bool) -> Result<&'a str, MalformedValue> {
        self.nullable_text(flexible)?.ok_or(MalformedValue::Null)
    }

    /// Reads the length of a byte string; `None` for null. The bytes are present.
    pub fn blob_len(&mut self, flexible: bool) -> Result<Option<usize>, MalformedValue> {
        let len = if flexible {
            i64::from(self.unsigned_varint()?) - 1
        } else {
            i64::from(self.int32()?)
        };
        let Some(len) = length(len)? else { return Ok(None) };
        let have = self.left();
        if len > have {
            return Err(MalformedValue::Truncated { needed: len, have });
        }
        Ok(Some(len))
    }

    pub fn nullable_blob(&mut self, flexible: bool) -> Result<Option<&'a [u8]>, MalformedValue> {
        match self.blob_len(flexible)? {
            Some(len) => self.take(len).map(Some),
            None => Ok(None),
        }
    }

    /// Skips tagged fields, which are unknown here.
    pub fn skip_tagged_fields(&mut self) -> Result<(), MalformedValue> {
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            self.skip(size)?;
        }
        Ok(())
    }
}

/// -1 is null, and other negative values are invalid.
fn length(length: i64) -> Result<Option<usize>, MalformedValue> {
    match length {
        -1 => Ok(None),
        0.. => Ok(Some(length as usize)),
        _ => Err(MalformedValue::Length { length }),
    }
}

/// Writes the formats that [`Cursor`] reads.
pub trait PutPrimitives {
    fn put_unsigned_varint(&mut self, value: u32);
    fn put_count(&mut self, count: usize, flexible: bool);
    fn put_nullable_text(&mut self, text: Option<&str>, flexible: bool);
    fn put_uuid(&mut self, uuid: Uuid);
    /// Ends a struct of a flexible version that has no tagged fields.
    fn put_no_tagged_fields(&mut self, flexible: bool);
}

impl PutPrimitives for BytesMut {
    fn put_unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    fn put_count(&mut self, count: usize, flexible: bool) {
        if flexible {
            self.put_unsigned_varint(count as u32 + 1);
        } else {
            self.put_i32(count as i32);
        }
    }

    fn put_nullable_text(&mut self, text: Option<&str>, flexible: bool) {
        match text {
            Some(text) if flexible => self.put_unsigned_varint(text.len() as u32 + 1),
            Some(text) => self.put_i16(text.len() as i16),
            None if flexible => self.put_u8(0),
            None => self.put_i16(-1),
        }
        self.put_slice(text.unwrap_or_default().as_bytes());
    }

    fn put_uuid(&mut self, uuid: Uuid) {
        self.put_slice(uuid.as_bytes());
    }

    fn put_no_tagged_fields(&mut self, flexible: bool) {
        if flexible {
            self.put_u8(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_varint_is_read_as_it_was_written(value: u32) {
            let mut bytes = BytesMut::new();
            bytes.put_unsigned_varint(value);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.unsigned_varint(), Ok(value));
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn text_is_read_as_it_was_written(text in proptest::option::of(".{0,300}"), flexible: bool) {
            let mut bytes = BytesMut::new();
            bytes.put_nullable_text(text.as_deref(), flexible);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.nullable_text(flexible), Ok(text.as_deref()));
            prop_assert_eq!(cursor.left(), 0);
        }

        #[test]
        fn no_bytes_make_a_cursor_panic(bytes: Vec<u8>, flexible: bool) {
            let mut cursor = Cursor::new(&bytes);
            let _ = cursor.count(flexible);
            let _ = cursor.nullable_text(flexible);
            let _ = cursor.nullable_blob(flexible);
            let _ = cursor.skip_tagged_fields();
        }
    }

    #[test]
    fn a_count_that_the_bytes_cannot_hold_is_refused() {
        let mut cursor = Cursor::new(&[0x7f, 0xff, 0xff, 0xff, 1, 2]);
        let needed = i32::MAX as usize;
        assert_eq!(cursor.count(false), Err(MalformedValue::Truncated { needed, have: 2 }));
    }

    #[test]
    fn a_varint_of_more_than_32_bits_is_refused() {
        assert_eq!(Cursor::new(&[0xff; 6]).unsigned_varint(), Err(MalformedValue::Varint));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).unsigned_varint(),
            Err(MalformedValue::Varint)
        );
    }
}
