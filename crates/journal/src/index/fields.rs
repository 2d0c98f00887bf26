//! Reading numbers from untrusted bytes: every read is checked, none panics.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*field)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// LEB128: seven bits a byte, lowest first.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    /// A count of items of at least `bytes_each`, bounded by the bytes left.
    pub(crate) fn count(&mut self, bytes_each: usize) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count.checked_mul(bytes_each)? <= self.rest.len()).then_some(count)
    }

    /// Zigzag: small numbers of either sign stay short.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_survive(unsigned: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(&mut out, unsigned);
            put_signed(&mut out, signed);
            let mut fields = Fields::new(&out);
            prop_assert_eq!(fields.varint(), Some(unsigned));
            prop_assert_eq!(fields.signed(), Some(signed));
            prop_assert_eq!(fields.remaining(), 0);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let mut fields = Fields::new(&bytes);
            while fields.varint().is_some() {}
            let _ = Fields::new(&bytes).count(3);
        }
    }
}
