//! The sidecar of a sealed segment: the addresses of its batches, by stream and offset.
//!
//! Written once when the segment is full and never changed: later trims do not alter it, and the
//! run table decides which batches are live. It is derived data. Its checksum covers every byte; a
//! sidecar that fails it is discarded and rebuilt from the segment, so nothing here is trusted and
//! nothing needs repair.
//!
//! ```text
//! header     magic "PRIX" | version u32 | segment u32 | generation u32 | streams u32 | batches u32
//!            | log indexes of the first and the last entry u64, u64
//!            | crc32c of what follows the header u32 | crc32c of the header so far u32
//! directory  streams x { stream u64, end u32 }     ascending; `end`: place after its last batch
//! batches    batches x { position u32, shared bit and len u32, span u32, base_offset u64,
//!                        max_timestamp i64 }
//! ```
//! All numbers are little-endian. The indexes are all ones where they are not known. A shared batch
//! has the highest bit of its length set; no length needs it.
//!
//! Version 2 is written; version 1, without the indexes and shared batches, is still read.

use std::ops::Range;

use base::HashSet;
use base::checksum::crc32c;
use thiserror::Error;

use super::addresses::AddressList;
use super::batches::Batches;
use super::fields::Fields;
use crate::address::Address;
use crate::little_endian::{u32_at, u64_at};

const MAGIC: [u8; 4] = *b"PRIX";
const VERSION: u32 = 2;
const HEADER_V1_BYTES: usize = 32;
const HEADER_BYTES: usize = 48;
const INDEXES_AT: usize = 24;
const NO_INDEX: u64 = u64::MAX;
const SHARED_BIT: u32 = 1 << 31;
const STREAM_BYTES: usize = 12;
const BATCH_BYTES: usize = 28;

/// Why a sidecar is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum SidecarError {
    #[error("it is too short")]
    Short,
    #[error("its header is damaged")]
    Header,
    #[error("it has version {0}")]
    Version(u32),
    #[error("it belongs to segment {segment}, generation {generation}")]
    Other { segment: u32, generation: u32 },
    #[error("its content is damaged")]
    Content,
}

/// A loaded sidecar, kept in its encoded form: an address is decoded when it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sidecar {
    segment: u32,
    streams: usize,
    header_bytes: usize,
    bytes: Vec<u8>,
}

/// Bytes that the batches of a sidecar occupy in their segment, dead or live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SidecarBytes {
    /// Each body once, regardless of the number of its streams.
    pub(crate) once: u64,
    pub(crate) any_shared: bool,
}

impl Sidecar {
    /// `streams` ascending, the addresses of each ascending.
    pub(crate) fn build<'a>(
        segment: u32,
        generation: u32,
        indexes: Option<(u64, u64)>,
        streams: impl Iterator<Item = (u64, &'a AddressList)> + Clone,
    ) -> Self {
        let stream_count = streams.clone().count();
        let batch_count: usize = streams.clone().map(|(_, addresses)| addresses.len()).sum();
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES + stream_count * STREAM_BYTES + batch_count * BATCH_BYTES,
        );
        bytes.resize(HEADER_BYTES, 0);
        let mut end = 0_u32;
        for (stream, addresses) in streams.clone() {
            end += addresses.len() as u32;
            bytes.extend_from_slice(&stream.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        for address in streams.flat_map(|(_, addresses)| addresses.iter()) {
            bytes.extend_from_slice(&address.position.to_le_bytes());
            debug_assert!(address.len < SHARED_BIT, "a segment is shorter than that");
            let shared = if address.shared { SHARED_BIT } else { 0 };
            bytes.extend_from_slice(&(address.len | shared).to_le_bytes());
            bytes.extend_from_slice(&address.span.to_le_bytes());
            bytes.extend_from_slice(&address.base_offset.to_le_bytes());
            bytes.extend_from_slice(&address.max_timestamp.to_le_bytes());
        }
        let content = crc32c(&bytes[HEADER_BYTES..]);
        let numbers = [VERSION, segment, generation, stream_count as u32, batch_count as u32];
        bytes[..4].copy_from_slice(&MAGIC);
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[4 + place * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        let (first, last) = indexes.unwrap_or((NO_INDEX, NO_INDEX));
        for (place, index) in [first, last].into_iter().enumerate() {
            bytes[INDEXES_AT + place * 8..][..8].copy_from_slice(&index.to_le_bytes());
        }
        bytes[HEADER_BYTES - 8..HEADER_BYTES - 4].copy_from_slice(&content.to_le_bytes());
        let header = crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        Self { segment, streams: stream_count, header_bytes: HEADER_BYTES, bytes }
    }

    pub(crate) fn parse(
        bytes: Vec<u8>,
        segment: u32,
        generation: u32,
    ) -> Result<Self, SidecarError> {
        let mut fields = Fields::new(&bytes);
        let (magic, version) = (fields.array::<4>(), fields.u32());
        if magic.is_some_and(|magic| magic != MAGIC) {
            return Err(SidecarError::Header);
        }
        let header_bytes = match version.ok_or(SidecarError::Short)? {
            VERSION => HEADER_BYTES,
            1 => HEADER_V1_BYTES,
            other => return Err(SidecarError::Version(other)),
        };
        let header = bytes.get(..header_bytes).ok_or(SidecarError::Short)?;
        let [of, generation_of, streams, batches] = [8, 12, 16, 20].map(|at| u32_at(header, at));
        let [content, own] = [8, 4].map(|from_end| u32_at(header, header_bytes - from_end));
        if crc32c(&header[..header_bytes - 4]) != own {
            return Err(SidecarError::Header);
        }
        if (of, generation_of) != (segment, generation) {
            return Err(SidecarError::Other { segment: of, generation: generation_of });
        }
        let expected = header_bytes as u64
            + u64::from(streams) * STREAM_BYTES as u64
            + u64::from(batches) * BATCH_BYTES as u64;
        if bytes.len() as u64 != expected || crc32c(&bytes[header_bytes..]) != content {
            return Err(SidecarError::Content);
        }
        let sidecar = Self { segment, streams: streams as usize, header_bytes, bytes };
        // The checksum proves only that these bytes were written; check their consistency too.
        let mut last = 0;
        for place in 0..sidecar.streams {
            let end = sidecar.stream(place).1;
            if end < last || end > batches as usize {
                return Err(SidecarError::Content);
            }
            last = end;
        }
        Ok(sidecar)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn batches(&self, stream: u64) -> Batches<'_> {
        let (mut low, mut high) = (0, self.streams);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.stream(middle).0 < stream {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == self.streams || self.stream(low).0 != stream {
            return Batches::Sidecar { sidecar: self, places: 0..0 };
        }
        Batches::Sidecar { sidecar: self, places: self.places(low) }
    }

    /// Streams with their batches, ascending.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (u64, Batches<'_>)> {
        (0..self.streams).map(|place| {
            let batches = Batches::Sidecar { sidecar: self, places: self.places(place) };
            (self.stream(place).0, batches)
        })
    }

    pub(crate) fn batch_bytes(&self) -> SidecarBytes {
        let before = self.header_bytes + self.streams * STREAM_BYTES;
        let mut once = DistinctBytes::default();
        (0..(self.bytes.len() - before) / BATCH_BYTES).for_each(|it| once.add(&self.address(it)));
        SidecarBytes { once: once.bytes, any_shared: !once.shared.is_empty() }
    }

    /// Log indexes of the first and last entry with a batch in the segment.
    #[cfg(test)]
    pub(crate) fn indexes(&self) -> Option<(u64, u64)> {
        let indexes = (u64_at(&self.bytes, INDEXES_AT), u64_at(&self.bytes, INDEXES_AT + 8));
        (self.header_bytes == HEADER_BYTES && indexes.0 != NO_INDEX).then_some(indexes)
    }

    pub(super) fn address(&self, place: usize) -> Address {
        let start = self.header_bytes + self.streams * STREAM_BYTES + place * BATCH_BYTES;
        let bytes = &self.bytes[start..start + BATCH_BYTES];
        Address {
            segment: self.segment,
            position: u32_at(bytes, 0),
            len: u32_at(bytes, 4) & !SHARED_BIT,
            span: u32_at(bytes, 8),
            base_offset: u64_at(bytes, 12),
            max_timestamp: u64_at(bytes, 20) as i64,
            shared: u32_at(bytes, 4) & SHARED_BIT != 0,
        }
    }

    fn places(&self, stream_place: usize) -> Range<usize> {
        let start = if stream_place == 0 { 0 } else { self.stream(stream_place - 1).1 };
        start..self.stream(stream_place).1
    }

    fn stream(&self, place: usize) -> (u64, usize) {
        let bytes = &self.bytes[self.header_bytes + place * STREAM_BYTES..][..STREAM_BYTES];
        (u64_at(bytes, 0), u32_at(bytes, 8) as usize)
    }
}

/// Adds up the bytes of batches; a shared batch counts once.
#[derive(Debug, Default)]
pub(crate) struct DistinctBytes {
    pub(crate) bytes: u64,
    /// Positions of the shared batches.
    shared: HashSet<u32>,
}

impl DistinctBytes {
    pub(crate) fn add(&mut self, address: &Address) {
        if !address.shared || self.shared.insert(address.position) {
            self.bytes += u64::from(address.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(base_offset: u64) -> Address {
        Address {
            segment: 7,
            position: 512 + base_offset as u32 * 100,
            len: 100,
            span: 10,
            base_offset: base_offset * 10,
            max_timestamp: 1_000 + base_offset as i64,
            shared: base_offset == 1,
        }
    }

    /// The sidecar as version 1 wrote it.
    fn version_1(mut sidecar: Vec<u8>) -> Vec<u8> {
        sidecar.drain(INDEXES_AT..INDEXES_AT + 16);
        sidecar[4] = 1;
        let header = crc32c(&sidecar[..HEADER_V1_BYTES - 4]);
        sidecar[HEADER_V1_BYTES - 4..HEADER_V1_BYTES].copy_from_slice(&header.to_le_bytes());
        sidecar
    }

    #[test]
    fn a_sidecar_of_version_1_is_still_read() {
        let addresses = [address(0), address(2)];
        let list: AddressList = addresses.into_iter().collect();
        let streams = [(3, &list)];
        let old = version_1(Sidecar::build(7, 1, Some((4, 9)), streams.into_iter()).bytes);
        let sidecar = Sidecar::parse(old, 7, 1).unwrap();
        assert_eq!(sidecar.batches(3).iter().collect::<Vec<_>>(), addresses);
        assert_eq!(sidecar.batch_bytes(), SidecarBytes { once: 200, any_shared: false });
        assert_eq!(sidecar.indexes(), None);
    }

    #[test]
    fn a_body_that_several_streams_share_counts_once() {
        let one = [address(0), address(1)];
        let two = [Address { base_offset: 77, ..address(1) }, address(2)];
        let sidecar = build_of_two(&one, &two);
        let sidecar = Sidecar::parse(sidecar.bytes, 7, 1).unwrap();
        assert_eq!(sidecar.batch_bytes(), SidecarBytes { once: 300, any_shared: true });
        assert_eq!(sidecar.batches(9).iter().collect::<Vec<_>>(), two);
        assert_eq!(sidecar.indexes(), Some((4, 9)));
    }

    fn sidecar() -> Sidecar {
        let (one, two) = ([address(0), address(1), address(2)], [address(5)]);
        build_of_two(&one, &two)
    }

    fn build_of_two(one: &[Address], two: &[Address]) -> Sidecar {
        let [one, two] = [one, two].map(|list| list.iter().copied().collect::<AddressList>());
        Sidecar::build(7, 1, Some((4, 9)), [(3, &one), (9, &two)].into_iter())
    }

    #[test]
    fn sidecar_returns_the_addresses_it_was_built_from() {
        let sidecar = Sidecar::parse(sidecar().bytes, 7, 1).unwrap();
        assert_eq!(
            sidecar.batches(3).iter().collect::<Vec<_>>(),
            [address(0), address(1), address(2)]
        );
        assert_eq!(sidecar.batches(9).iter().collect::<Vec<_>>(), [address(5)]);
        for absent in [0, 4, 10] {
            assert_eq!(sidecar.batches(absent).len(), 0);
        }
        assert_eq!(sidecar.streams().map(|(stream, _)| stream).collect::<Vec<_>>(), [3, 9]);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let good = sidecar().bytes;
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[position] ^= 1 << bit;
                assert!(Sidecar::parse(bad, 7, 1).is_err(), "byte {position} bit {bit}");
            }
        }
    }

    #[test]
    fn truncated_or_extended_sidecar_is_detected() {
        let good = sidecar().bytes;
        for len in 0..good.len() {
            assert!(Sidecar::parse(good[..len].to_vec(), 7, 1).is_err(), "cut to {len}");
        }
        let mut long = good.clone();
        long.push(0);
        assert_eq!(Sidecar::parse(long, 7, 1), Err(SidecarError::Content));
    }

    #[test]
    fn the_sidecar_of_another_segment_or_generation_is_not_used() {
        let other = SidecarError::Other { segment: 7, generation: 1 };
        assert_eq!(Sidecar::parse(sidecar().bytes, 8, 1), Err(other));
        assert_eq!(Sidecar::parse(sidecar().bytes, 7, 2), Err(other));
    }
}
