//! The sidecar of a sealed segment: the addresses of its batches, by stream and offset.
//!
//! Written once when the segment is full and never changed: what was trimmed later stays in it,
//! the run table says what is live. It is derived data. Its checksum covers every byte, and
//! whatever fails it is thrown away and rebuilt from the segment, so nothing here is trusted and
//! nothing here needs repair.
//!
//! ```text
//! header     magic "PRIX" | version u32 | segment u32 | generation u32 | streams u32 | batches u32
//!            | crc32c of what follows the header u32 | crc32c of the header so far u32
//! directory  streams x { stream u64, end u32 }     ascending; `end`: place after its last batch
//! batches    batches x { position u32, len u32, span u32, base_offset u64, max_timestamp i64 }
//! ```
//! All numbers are little-endian.

use std::ops::Range;

use base::checksum::crc32c;
use thiserror::Error;

use super::batches::Batches;
use super::fields::Fields;
use crate::address::Address;

const MAGIC: [u8; 4] = *b"PRIX";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
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

/// A loaded sidecar, kept as it lies on disk: an address is decoded when it is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sidecar {
    segment: u32,
    streams: usize,
    bytes: Vec<u8>,
}

impl Sidecar {
    /// `streams` ascending, the addresses of each ascending.
    pub(crate) fn build<'a>(
        segment: u32,
        generation: u32,
        streams: impl Iterator<Item = (u64, &'a [Address])> + Clone,
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
        for address in streams.flat_map(|(_, addresses)| addresses) {
            bytes.extend_from_slice(&address.position.to_le_bytes());
            bytes.extend_from_slice(&address.len.to_le_bytes());
            bytes.extend_from_slice(&address.span.to_le_bytes());
            bytes.extend_from_slice(&address.base_offset.to_le_bytes());
            bytes.extend_from_slice(&address.max_timestamp.to_le_bytes());
        }
        let content = crc32c(&bytes[HEADER_BYTES..]);
        let numbers =
            [VERSION, segment, generation, stream_count as u32, batch_count as u32, content];
        bytes[..4].copy_from_slice(&MAGIC);
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[4 + place * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        let header = crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
        Self { segment, streams: stream_count, bytes }
    }

    pub(crate) fn parse(
        bytes: Vec<u8>,
        segment: u32,
        generation: u32,
    ) -> Result<Self, SidecarError> {
        let header = bytes.get(..HEADER_BYTES).ok_or(SidecarError::Short)?;
        let mut fields = Fields::new(header);
        let magic = fields.array::<4>();
        let numbers: [Option<u32>; 7] = std::array::from_fn(|_| fields.u32());
        let [
            Some(version),
            Some(of),
            Some(generation_of),
            Some(streams),
            Some(batches),
            Some(content),
            Some(own),
        ] = numbers
        else {
            return Err(SidecarError::Short);
        };
        if magic != Some(MAGIC) || crc32c(&header[..HEADER_BYTES - 4]) != own {
            return Err(SidecarError::Header);
        }
        if version != VERSION {
            return Err(SidecarError::Version(version));
        }
        if (of, generation_of) != (segment, generation) {
            return Err(SidecarError::Other { segment: of, generation: generation_of });
        }
        let expected = HEADER_BYTES as u64
            + u64::from(streams) * STREAM_BYTES as u64
            + u64::from(batches) * BATCH_BYTES as u64;
        if bytes.len() as u64 != expected || crc32c(&bytes[HEADER_BYTES..]) != content {
            return Err(SidecarError::Content);
        }
        let sidecar = Self { segment, streams: streams as usize, bytes };
        // The checksum says that these are the bytes once written; that they make sense is ours.
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
            return Batches::NONE;
        }
        Batches::Sidecar { sidecar: self, places: self.places(low) }
    }

    /// Every stream in it with its batches, ascending.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (u64, Batches<'_>)> {
        (0..self.streams).map(|place| {
            let batches = Batches::Sidecar { sidecar: self, places: self.places(place) };
            (self.stream(place).0, batches)
        })
    }

    /// Bytes of all batches in it, dead or live.
    pub(crate) fn batch_bytes(&self) -> u64 {
        let batches = (self.bytes.len() - HEADER_BYTES - self.streams * STREAM_BYTES) / BATCH_BYTES;
        (0..batches).map(|place| u64::from(self.address(place).len)).sum()
    }

    pub(super) fn address(&self, place: usize) -> Address {
        let start = HEADER_BYTES + self.streams * STREAM_BYTES + place * BATCH_BYTES;
        let bytes = &self.bytes[start..start + BATCH_BYTES];
        Address {
            segment: self.segment,
            position: u32_at(bytes, 0),
            len: u32_at(bytes, 4),
            span: u32_at(bytes, 8),
            base_offset: u64_at(bytes, 12),
            max_timestamp: u64_at(bytes, 20) as i64,
        }
    }

    fn places(&self, stream_place: usize) -> Range<usize> {
        let start = if stream_place == 0 { 0 } else { self.stream(stream_place - 1).1 };
        start..self.stream(stream_place).1
    }

    fn stream(&self, place: usize) -> (u64, usize) {
        let bytes = &self.bytes[HEADER_BYTES + place * STREAM_BYTES..][..STREAM_BYTES];
        (u64_at(bytes, 0), u32_at(bytes, 8) as usize)
    }
}

fn u32_at(bytes: &[u8], position: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[position..position + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], position: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[position..position + 8]);
    u64::from_le_bytes(field)
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
        }
    }

    fn sidecar() -> Sidecar {
        let (one, two) = ([address(0), address(1), address(2)], [address(5)]);
        Sidecar::build(7, 1, [(3, &one[..]), (9, &two[..])].into_iter())
    }

    #[test]
    fn a_sidecar_gives_back_what_was_put_in() {
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
    fn a_sidecar_cut_or_lengthened_anywhere_is_noticed() {
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
