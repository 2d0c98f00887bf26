//! Zigzag varints as in Protocol Buffers: 7 bits a byte, low ones first. Records use the 32-bit
//! kind for lengths and offset deltas, the 64-bit kind for timestamp deltas.

use bytes::BufMut;

/// Reads a 32-bit integer from the front of `bytes`; `None` if it does not end within five bytes.
#[inline]
pub fn read_i32(bytes: &mut &[u8]) -> Option<i32> {
    let raw = read_raw(bytes, 5)?;
    // Five bytes hold 35 bits: larger values are not an i32, and Kafka refuses them too.
    let raw = u32::try_from(raw).ok()?;
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Reads a 64-bit integer from the front of `bytes`; `None` if it does not end within ten bytes.
#[inline]
pub fn read_i64(bytes: &mut &[u8]) -> Option<i64> {
    let raw = read_raw(bytes, 10)?;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[inline]
fn read_raw(bytes: &mut &[u8], len_max: usize) -> Option<u64> {
    // Nearly all integers of a record take one byte or two.
    match **bytes {
        [first, ref rest @ ..] if first < 0x80 => {
            *bytes = rest;
            Some(u64::from(first))
        }
        [first, second, ref rest @ ..] if second < 0x80 => {
            *bytes = rest;
            Some(u64::from(first & 0x7f) | u64::from(second) << 7)
        }
        _ => read_raw_long(bytes, len_max),
    }
}

#[cold]
fn read_raw_long(bytes: &mut &[u8], len_max: usize) -> Option<u64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(len_max).enumerate() {
        // The tenth byte has room for one bit.
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

#[inline]
pub fn write_i32(out: &mut impl BufMut, value: i32) {
    write_raw(out, u64::from(zigzag_i32(value)));
}

#[inline]
pub fn write_i64(out: &mut impl BufMut, value: i64) {
    write_raw(out, zigzag_i64(value));
}

fn write_raw(out: &mut impl BufMut, mut raw: u64) {
    while raw >= 0x80 {
        out.put_u8(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.put_u8(raw as u8);
}

/// Encoded length of `value` in [`write_i32`].
#[inline]
pub const fn len_i32(value: i32) -> usize {
    len_raw(zigzag_i32(value) as u64)
}

/// Encoded length of `value` in [`write_i64`].
#[inline]
pub const fn len_i64(value: i64) -> usize {
    len_raw(zigzag_i64(value))
}

const fn len_raw(raw: u64) -> usize {
    // One byte for each started seven bits; zero takes one as well.
    (70 - (raw | 1).leading_zeros() as usize) / 7
}

const fn zigzag_i32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

const fn zigzag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn varints_have_golden_encodings() {
        let known: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (-64, &[127]),
            (64, &[0x80, 1]),
            (300, &[0xd8, 4]),
        ];
        for (value, encoded) in known {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, encoded);
        }
    }

    #[test]
    fn unterminated_varint_is_refused() {
        assert_eq!(read_i32(&mut &[][..]), None);
        assert_eq!(read_i32(&mut &[0x80][..]), None);
        assert_eq!(read_i32(&mut &[0xff; 11][..]), None);
        assert_eq!(read_i64(&mut &[0xff; 11][..]), None);
        // 35 bits, and 70 bits.
        assert_eq!(read_i32(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..]), None);
        assert_eq!(
            read_i64(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]),
            None
        );
    }

    proptest! {
        #[test]
        fn varints_are_read_back_and_have_the_computed_length(
            small in any::<i32>(), large in any::<i64>(), shift in 0..64_u32,
        ) {
            let (small, large) = (small >> (shift % 32), large >> shift);
            let mut out = Vec::new();
            write_i32(&mut out, small);
            prop_assert_eq!(out.len(), len_i32(small));
            write_i64(&mut out, large);
            prop_assert_eq!(out.len(), len_i32(small) + len_i64(large));
            let mut rest = &out[..];
            prop_assert_eq!(read_i32(&mut rest), Some(small));
            prop_assert_eq!(read_i64(&mut rest), Some(large));
            prop_assert!(rest.is_empty());
        }
    }
}
