//! The data types of AMQP 0-9-1 (4.2.5), read from bytes and written to them.
//!
//! Nothing is copied on the way in: a string or a table is a slice of the frame. Consecutive bits
//! share octets, lowest first, which is why reader and writer remember where in an octet they are.

use bytes::{BufMut, BytesMut};
pub use values::EncodedTable;
use values::put_short;

use super::table::MalformedTable;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedFields {
    #[error("the frame ends within a field")]
    Truncated,
    #[error("{0} octets follow the last field")]
    LeftOver(usize),
    #[error("a short string is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Table(#[from] MalformedTable),
    #[error("unknown property flags {0:#06x}")]
    PropertyFlags(u16),
}

/// A long string: up to 4 GB of arbitrary bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LongString<'a>(pub &'a [u8]);

#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The octet from which bits are read, and the number of its bits that are already read.
    bits: (u8, u32),
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, bits: (0, 8) }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn read<F: Field<'a>>(&mut self) -> Result<F, MalformedFields> {
        F::read(self)
    }

    /// Fails if bytes are left over.
    pub fn finish(self) -> Result<(), MalformedFields> {
        if self.rest.is_empty() { Ok(()) } else { Err(MalformedFields::LeftOver(self.rest.len())) }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], MalformedFields> {
        self.bits.1 = 8;
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(MalformedFields::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedFields> {
        self.bits.1 = 8;
        let (taken, rest) = self.rest.split_first_chunk().ok_or(MalformedFields::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn bit(&mut self) -> Result<bool, MalformedFields> {
        if self.bits.1 == 8 {
            let [octet] = self.array()?;
            self.bits = (octet, 0);
        }
        let bit = self.bits.0 >> self.bits.1 & 1;
        self.bits.1 += 1;
        Ok(bit == 1)
    }
}

#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut BytesMut,
    /// Number of bits used in the last octet; 8 when the last octet holds no bits.
    bits: u32,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut BytesMut) -> Self {
        Self { out, bits: 8 }
    }

    pub fn write<'f>(&mut self, field: &impl Field<'f>) {
        field.write(self);
    }

    fn out(&mut self) -> &mut BytesMut {
        self.bits = 8;
        self.out
    }

    fn bit(&mut self, bit: bool) {
        if self.bits == 8 {
            self.out.put_u8(0);
            self.bits = 0;
        }
        if let Some(octet) = self.out.last_mut() {
            *octet |= u8::from(bit) << self.bits;
        }
        self.bits += 1;
    }
}

/// A type that a method's argument may have.
pub trait Field<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields>;
    fn write(&self, writer: &mut Writer<'_>);
}

macro_rules! integer_fields {
    ($($integer:ty: $put:ident),*) => {$(
        impl<'a> Field<'a> for $integer {
            fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields> {
                reader.array().map(<$integer>::from_be_bytes)
            }

            fn write(&self, writer: &mut Writer<'_>) {
                writer.out().$put(*self);
            }
        }
    )*};
}

integer_fields!(u8: put_u8, u16: put_u16, u32: put_u32, u64: put_u64);

impl<'a> Field<'a> for bool {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields> {
        reader.bit()
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.bit(*self);
    }
}

/// A short string. The specification says UTF-8, and names are compared and stored as such. A longer string is
/// truncated on write, see [`values::shortened`].
impl<'a> Field<'a> for &'a str {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields> {
        let length: u8 = reader.read()?;
        let bytes = reader.take(usize::from(length))?;
        std::str::from_utf8(bytes).map_err(|_| MalformedFields::NotUtf8)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        put_short(self.as_bytes(), writer.out());
    }
}

impl<'a> Field<'a> for LongString<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields> {
        let length: u32 = reader.read()?;
        reader.take(length as usize).map(Self)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let out = writer.out();
        out.put_u32(self.0.len() as u32);
        out.put_slice(self.0);
    }
}

impl<'a> Field<'a> for EncodedTable<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, MalformedFields> {
        reader.read::<LongString<'a>>().map(|encoded| Self(encoded.0))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        LongString(self.0).write(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_bits_share_octets() {
        let mut out = BytesMut::new();
        let mut writer = Writer::new(&mut out);
        for bit in [true, false, true] {
            writer.write(&bit);
        }
        writer.write(&7u8);
        for _ in 0..9 {
            writer.write(&true);
        }
        assert_eq!(&out[..], &[0b101, 7, 0xff, 1]);

        let mut reader = Reader::new(&out);
        let bits: Vec<bool> = (0..3).map(|_| reader.read().expect("a bit")).collect();
        assert_eq!(bits, [true, false, true]);
        assert_eq!(reader.read::<u8>(), Ok(7));
        assert!((0..9).all(|_| reader.read::<bool>() == Ok(true)));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn truncated_or_non_utf8_short_string_is_rejected() {
        assert_eq!(Reader::new(&[3, b'a', b'b']).read::<&str>(), Err(MalformedFields::Truncated));
        assert_eq!(Reader::new(&[1, 0xff]).read::<&str>(), Err(MalformedFields::NotUtf8));
        assert_eq!(Reader::new(&[2, b'a', b'b']).read::<&str>(), Ok("ab"));
    }

    #[test]
    fn short_string_over_255_bytes_is_written_cut() {
        let mut out = BytesMut::new();
        let text = "\u{e9}".repeat(200);
        Writer::new(&mut out).write(&text.as_str());
        assert_eq!(Reader::new(&out).read::<&str>(), Ok(&text[..254]));
    }
}
