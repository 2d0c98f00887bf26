//! Typed values, and tables of them: the headers of messages and the arguments of declarations.
//!
//! Types and encoding are those of AMQP 0-9-1's field tables, the richest set among the protocols. Documents and record
//! headers hold tables in that wire format, so that no type is lost.
//!
//! The types follow RabbitMQ's reading of the specification (its errata page and binary parser): `L` is a signed 64-bit
//! number like `l`, and `B`, `u`, `i` are unsigned. Nesting is bounded: nested tables could otherwise exhaust the
//! stack.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
use bytes::{BufMut, Bytes, BytesMut};

/// Limit on the fields and elements of one table, including inner tables. A frame of 128 KiB has no room for more
/// fields, and a decoded value takes up to 64 times its encoding.
const VALUES_MAX: u32 = 65_536;
/// RabbitMQ sets no limit; clients nest two or three deep (`x-death` is an array of tables).
const DEPTH_MAX: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    #[error("a field table ends within a field")]
    Truncated,
    #[error("a field table has a value of the unknown type {0:#04x}")]
    UnknownType(u8),
    #[error("a field table is nested more than {DEPTH_MAX} deep")]
    TooDeep,
    #[error("a field table has more than {VALUES_MAX} values")]
    TooMany,
    #[error("a field's name is not UTF-8")]
    NotUtf8,
}

/// Names and values in wire order. A name may occur twice; then the first counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table(pub Vec<(String, Value)>);

/// An encoded table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncodedTable<'a>(pub &'a [u8]);

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Boolean(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A scale, and a number to be divided by ten to its power.
    Decimal(u8, u32),
    /// Usually text; any bytes are permitted.
    LongString(Bytes),
    Array(Vec<Value>),
    /// Seconds since the epoch.
    Timestamp(u64),
    Table(Table),
    Void,
    ByteArray(Bytes),
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Replaces the value of `name`, or adds it.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, present)) => *present = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let place = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(place).1)
    }

    pub fn decode(encoded: &[u8]) -> Result<Self, Malformed> {
        decode_table(encoded, 0, &mut { VALUES_MAX })
    }

    /// Encodes the fields, without the length in front.
    pub fn encode(&self, out: &mut BytesMut) {
        for (name, value) in &self.0 {
            put_name(name, out);
            value.encode(out);
        }
    }

    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }
}

/// A field's name is a short string; a longer name is cut.
fn put_name(name: &str, out: &mut BytesMut) {
    put_short(name.as_bytes(), out);
}

/// Byte limit of a short string.
pub const SHORT_STRING_BYTES_MAX: usize = u8::MAX as usize;

/// The part of `bytes` that fits into a short string. Text is cut in front of the character that
/// would pass the limit; bytes that are not UTF-8 are cut at the limit.
pub fn shortened(bytes: &[u8]) -> &[u8] {
    let Some((most, rest)) = bytes.split_at_checked(SHORT_STRING_BYTES_MAX) else { return bytes };
    if rest.is_empty() {
        return bytes;
    }
    // A character has at most three bytes behind its first.
    let starts = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
    let cut = (SHORT_STRING_BYTES_MAX - 3..=SHORT_STRING_BYTES_MAX).rev().find(starts);
    cut.and_then(|cut| most.get(..cut)).unwrap_or(most)
}

/// As [`shortened`], for text.
pub fn shortened_text(text: &str) -> &str {
    text.get(..shortened(text.as_bytes()).len()).unwrap_or_default()
}

/// Writes a short string: its length in one byte, then its bytes, cut by [`shortened`].
pub fn put_short(bytes: &[u8], out: &mut BytesMut) {
    let bytes = shortened(bytes);
    out.put_u8(bytes.len() as u8);
    out.put_slice(bytes);
}

impl Value {
    /// The letter of its type, as it is encoded.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Boolean(_) => b't',
            Self::I8(_) => b'b',
            Self::U8(_) => b'B',
            Self::I16(_) => b's',
            Self::U16(_) => b'u',
            Self::I32(_) => b'I',
            Self::U32(_) => b'i',
            Self::I64(_) => b'l',
            Self::F32(_) => b'f',
            Self::F64(_) => b'd',
            Self::Decimal(..) => b'D',
            Self::LongString(_) => b'S',
            Self::Array(_) => b'A',
            Self::Timestamp(_) => b'T',
            Self::Table(_) => b'F',
            Self::Void => b'V',
            Self::ByteArray(_) => b'x',
        }
    }

    /// Any of the whole-number types.
    pub fn as_integer(&self) -> Option<i64> {
        Some(match *self {
            Self::I8(number) => number.into(),
            Self::U8(number) => number.into(),
            Self::I16(number) => number.into(),
            Self::U16(number) => number.into(),
            Self::I32(number) => number.into(),
            Self::U32(number) => number.into(),
            Self::I64(number) => number,
            _ => return None,
        })
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::LongString(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// The type's letter and the value.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.kind());
        match self {
            Self::Boolean(value) => out.put_u8(u8::from(*value)),
            Self::I8(number) => out.put_i8(*number),
            Self::U8(number) => out.put_u8(*number),
            Self::I16(number) => out.put_i16(*number),
            Self::U16(number) => out.put_u16(*number),
            Self::I32(number) => out.put_i32(*number),
            Self::U32(number) => out.put_u32(*number),
            Self::I64(number) => out.put_i64(*number),
            Self::F32(number) => out.put_f32(*number),
            Self::F64(number) => out.put_f64(*number),
            Self::Decimal(scale, number) => {
                out.put_u8(*scale);
                out.put_u32(*number);
            }
            Self::LongString(bytes) | Self::ByteArray(bytes) => {
                out.put_u32(bytes.len() as u32);
                out.put_slice(bytes);
            }
            Self::Timestamp(seconds) => out.put_u64(*seconds),
            Self::Void => {}
            Self::Array(values) => put_with_length(out, |out| {
                for value in values {
                    value.encode(out);
                }
            }),
            Self::Table(table) => put_with_length(out, |out| table.encode(out)),
        }
    }
}

/// Writes the output of `content`, preceded by its length as 32 bits.
pub fn put_with_length(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_u32(0);
    content(out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

macro_rules! from_values {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

from_values!(bool => Boolean, i32 => I32, i64 => I64, Bytes => LongString, Table => Table,
    Vec<Value> => Array);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::LongString(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::LongString(Bytes::from(text))
    }
}

// ---------------------------------------------------------------------------------- walking

/// One field of an encoded table, not decoded: the hot path reads a few fields by name and leaves the rest as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawField<'a> {
    pub name: &'a [u8],
    /// The letter of the value's type.
    pub kind: u8,
    /// The value, without the length that strings, tables and arrays have in front.
    pub value: &'a [u8],
}

impl RawField<'_> {
    pub fn decode(&self) -> Result<Value, Malformed> {
        decode_value(self.kind, self.value, 0)
    }
}

/// The fields of an encoded table, in order. Iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct RawFields<'a> {
    rest: &'a [u8],
}

impl<'a> RawFields<'a> {
    pub fn new(encoded: &'a [u8]) -> Self {
        Self { rest: encoded }
    }
}

impl<'a> Iterator for RawFields<'a> {
    type Item = Result<RawField<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut rest = std::mem::take(&mut self.rest);
        let field = split_name(&mut rest).and_then(|name| {
            let (kind, value) = split_value(&mut rest)?;
            Ok(RawField { name, kind, value })
        });
        if field.is_ok() {
            self.rest = rest;
        }
        Some(field)
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or(Malformed::Truncated)?;
    *rest = left;
    Ok(taken)
}

fn split_name<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = take(rest, 1)?[0];
    take(rest, usize::from(length))
}

fn split_value<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Malformed> {
    let kind = take(rest, 1)?[0];
    let length = match kind {
        b't' | b'b' | b'B' => 1,
        b's' | b'u' => 2,
        b'I' | b'i' | b'f' => 4,
        b'l' | b'L' | b'd' | b'T' => 8,
        b'D' => 5,
        b'V' => 0,
        b'S' | b'x' | b'A' | b'F' => {
            let length = take(rest, 4)?;
            u32::from_be_bytes(fixed(length)?) as usize
        }
        unknown => return Err(Malformed::UnknownType(unknown)),
    };
    Ok((kind, take(rest, length)?))
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed::Truncated)
}

/// `left`: number of values that the outermost table may still have.
fn decode_table(encoded: &[u8], depth: u32, left: &mut u32) -> Result<Table, Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed::TooDeep);
    }
    let mut table = Table::new();
    for field in RawFields::new(encoded) {
        let field = field?;
        let name = std::str::from_utf8(field.name).map_err(|_| Malformed::NotUtf8)?;
        table.0.push((name.to_owned(), decode(field.kind, field.value, depth, left)?));
    }
    Ok(table)
}

/// Decodes a value from its type's letter and its bytes, without a length in front.
pub fn decode_value(kind: u8, value: &[u8], depth: u32) -> Result<Value, Malformed> {
    decode(kind, value, depth, &mut { VALUES_MAX })
}

fn decode(kind: u8, value: &[u8], depth: u32, left: &mut u32) -> Result<Value, Malformed> {
    *left = left.checked_sub(1).ok_or(Malformed::TooMany)?;
    Ok(match kind {
        b't' => Value::Boolean(fixed::<1>(value)?[0] != 0),
        b'b' => Value::I8(i8::from_be_bytes(fixed(value)?)),
        b'B' => Value::U8(u8::from_be_bytes(fixed(value)?)),
        b's' => Value::I16(i16::from_be_bytes(fixed(value)?)),
        b'u' => Value::U16(u16::from_be_bytes(fixed(value)?)),
        b'I' => Value::I32(i32::from_be_bytes(fixed(value)?)),
        b'i' => Value::U32(u32::from_be_bytes(fixed(value)?)),
        b'l' | b'L' => Value::I64(i64::from_be_bytes(fixed(value)?)),
        b'f' => Value::F32(f32::from_be_bytes(fixed(value)?)),
        b'd' => Value::F64(f64::from_be_bytes(fixed(value)?)),
        b'T' => Value::Timestamp(u64::from_be_bytes(fixed(value)?)),
        b'D' => {
            let [scale, number @ ..] = fixed::<5>(value)?;
            Value::Decimal(scale, u32::from_be_bytes(number))
        }
        b'V' => Value::Void,
        b'S' => Value::LongString(Bytes::copy_from_slice(value)),
        b'x' => Value::ByteArray(Bytes::copy_from_slice(value)),
        b'F' => Value::Table(decode_table(value, depth + 1, left)?),
        b'A' => Value::Array(decode_array(value, depth + 1, left)?),
        unknown => return Err(Malformed::UnknownType(unknown)),
    })
}

fn decode_array(mut encoded: &[u8], depth: u32, left: &mut u32) -> Result<Vec<Value>, Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed::TooDeep);
    }
    let mut values = Vec::new();
    while !encoded.is_empty() {
        let (kind, value) = split_value(&mut encoded)?;
        values.push(decode(kind, value, depth, left)?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
