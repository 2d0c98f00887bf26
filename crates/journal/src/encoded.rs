//! An encoded entry, identical in a segment and on the way to another node.
//!
//! A node that receives entries writes the received bytes, under the checksum that the proposer
//! computed. This detects damage on the way, and no body is copied.

use std::sync::Arc;

use bytes::Bytes;

use crate::entry::{Entry, EntryId};
use crate::frame::{EncodedEntry, EntryLayout, NotAnEntry};

/// An encoded entry. Clones share it.
#[derive(Clone, Debug)]
pub struct Encoded(pub(crate) Arc<EncodedEntry>);

impl Encoded {
    pub fn new(entry: Entry) -> Self {
        Self(Arc::new(EncodedEntry::new(entry)))
    }

    /// Splits the first entry off the untrusted `bytes` and checks it. The entry shares them.
    pub fn split_off(bytes: &mut Bytes) -> Result<Self, NotAnEntry> {
        let layout = EntryLayout::read(bytes)?;
        if layout.len >= u32::MAX as usize / 2 || !layout.is_sound(bytes) {
            return Err(NotAnEntry);
        }
        let own = bytes.split_to(layout.len);
        Ok(Self(Arc::new(EncodedEntry::found(&layout, &own))))
    }

    pub fn entry(&self) -> &Entry {
        &self.0.entry
    }

    pub fn id(&self) -> EntryId {
        self.0.entry.id
    }

    /// Bytes of the encoding.
    pub fn size(&self) -> usize {
        self.0.len as usize
    }

    /// Its bytes, in order, as they lie in memory.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> + '_ {
        let EncodedEntry { descriptor, entry, .. } = &*self.0;
        let bodies = self.0.written_bodies().map(|(_, bytes)| bytes);
        let pieces = [descriptor, &entry.head].into_iter().chain(bodies);
        pieces.filter(|piece| !piece.is_empty()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Body, EntryKind};

    fn entry(rows: u64) -> Entry {
        let shared = Bytes::from(vec![5; 300]);
        let body = |stream| Body {
            stream,
            base_offset: stream * 3,
            span: 2,
            max_timestamp: 9,
            bytes: if stream < 3 { shared.clone() } else { Bytes::from(vec![stream as u8; 40]) },
        };
        let id = EntryId { term: 3, leader: 2, index: 77 };
        let head = Bytes::from_static(b"head");
        Entry { id, kind: EntryKind::Command, head, bodies: (0..rows).map(body).collect() }
    }

    #[test]
    fn encoded_entry_is_split_off_unchanged() {
        for rows in [0, 1, 3, 5] {
            let sent = Encoded::new(entry(rows));
            let mut bytes: Bytes = sent.pieces().flatten().collect();
            assert_eq!(bytes.len(), sent.size());
            let whole = bytes.clone();
            bytes = [&whole[..], b"the next"].concat().into();
            let received = Encoded::split_off(&mut bytes).unwrap();
            assert_eq!(bytes, "the next");
            assert_eq!(received.entry(), &entry(rows));
            assert_eq!(received.pieces().flatten().collect::<Bytes>(), whole);
            let same = |one: &EncodedEntry, other: &EncodedEntry| {
                let places = |it: &EncodedEntry| it.addresses(4, 500).collect::<Vec<_>>();
                places(one) == places(other) && one.checksum == other.checksum
            };
            assert!(same(&received.0, &sent.0));
        }
    }

    #[test]
    fn any_flipped_bit_or_cut_of_an_entry_is_detected() {
        let whole: Bytes = Encoded::new(entry(5)).pieces().flatten().collect();
        for place in 0..whole.len() * 8 {
            let mut damaged = whole.to_vec();
            damaged[place / 8] ^= 1 << (place % 8);
            Encoded::split_off(&mut damaged.into()).unwrap_err();
        }
        for len in 0..whole.len() {
            Encoded::split_off(&mut whole.slice(..len)).unwrap_err();
        }
    }
}
