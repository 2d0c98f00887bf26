//! Address of a batch on disk, and its bytes once read.

use bytes::Bytes;

/// A batch on disk. Segment ids count up from 1; a rewritten segment keeps its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    pub segment: u32,
    /// Byte position of the batch's first byte in the segment's file.
    pub position: u32,
    /// Bytes of the batch.
    pub len: u32,
    /// Offsets that the batch spans: `base_offset .. base_offset + span`.
    pub span: u32,
    pub base_offset: u64,
    /// Largest timestamp in the batch, ms since the epoch; -1 when it has none.
    pub max_timestamp: i64,
    /// Several rows have or had these bytes. The base offset in the bytes is then not the one of
    /// this row.
    pub shared: bool,
}

impl Address {
    /// The offset after the batch.
    pub fn next_offset(&self) -> u64 {
        self.base_offset + u64::from(self.span)
    }
}

/// Bytes of the base offset, with which a batch begins. The journal knows no other field of a body.
pub(crate) const BASE_OFFSET_BYTES: usize = 8;

/// Batches read from the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredBatches {
    pub bytes: Bytes,
    /// `None`: one or more whole batches, final. `Some`: one batch shared with other streams.
    /// Readers must replace the first 8 bytes by this offset (big-endian).
    pub base_offset: Option<u64>,
}

impl StoredBatches {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The batch at `address`, whose bytes are `bytes`.
    pub(crate) fn at(address: &Address, bytes: Bytes) -> Self {
        let base_offset = address.shared.then_some(address.base_offset);
        Self { bytes, base_offset }
    }

    /// Final bytes. Copies a batch shared with other streams.
    pub fn into_bytes(self) -> Bytes {
        match self.base_offset {
            None => self.bytes,
            Some(base_offset) => {
                let mut own = self.bytes.to_vec();
                put_base_offset(&mut own, base_offset);
                own.into()
            }
        }
    }

    /// The same bytes as pieces to send in order. Large bodies are not copied.
    pub fn put_pieces(self, pieces: &mut Vec<Bytes>) {
        /// Smaller batches are cheaper to copy than to send in two pieces.
        const COPIED_BYTES_MAX: usize = 512;
        match self.base_offset {
            Some(base_offset) if self.bytes.len() > COPIED_BYTES_MAX => {
                pieces.push(Bytes::copy_from_slice(&base_offset.to_be_bytes()));
                pieces.push(self.bytes.slice(BASE_OFFSET_BYTES..));
            }
            _ => pieces.push(self.into_bytes()),
        }
    }
}

impl From<Bytes> for StoredBatches {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, base_offset: None }
    }
}

/// Writes the base offset of the batch in `bytes`.
pub(crate) fn put_base_offset(bytes: &mut [u8], base_offset: u64) {
    if let Some(field) = bytes.first_chunk_mut::<BASE_OFFSET_BYTES>() {
        *field = base_offset.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_batch_is_sent_with_its_own_offset_without_a_copy() {
        for len in [0, 7, 8, 100, 512, 513, 5_000] {
            let others = Bytes::from(vec![0xab; len]);
            let stored = StoredBatches { bytes: others.clone(), base_offset: Some(258) };
            let mut expected = others.to_vec();
            put_base_offset(&mut expected, 258);
            let mut pieces = Vec::new();
            stored.clone().put_pieces(&mut pieces);
            assert_eq!(pieces.concat(), expected);
            assert_eq!(stored.into_bytes(), expected);
            assert!(others.iter().all(|byte| *byte == 0xab));
            if len > 512 {
                assert_eq!(pieces[1].as_ptr(), others[8..].as_ptr(), "it was copied");
            }
            let mut pieces = Vec::new();
            StoredBatches::from(others.clone()).put_pieces(&mut pieces);
            assert!(pieces.len() == 1 && pieces[0].as_ptr() == others.as_ptr());
        }
    }
}
