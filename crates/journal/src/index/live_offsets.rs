//! Live offsets of each stream as of one log index: a replica that lacks the log in between needs
//! them in addition to the batches.
//!
//! ```text
//! magic "PRlo" | version u32 | streams n x { stream+, start, end - start, holes n x { gap, len } }
//! ```
//! Numbers are varints. `+` is the difference to the previous one, as are start, gap and length
//! within a stream. Offsets below `start` and in holes are dead. `end` is the end of the last
//! batch.

use base::OffsetRanges;
use thiserror::Error;

use super::fields::{Fields, put_varint};
use super::table::RunTable;

const MAGIC: [u8; 4] = *b"PRlo";
const VERSION: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the live offsets make no sense")]
pub(crate) struct InvalidLiveOffsets;

/// Live streams in ascending order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LiveOffsets(Vec<LiveStream>);

/// A stream with a live batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LiveStream {
    pub(crate) stream: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Ascending and disjoint, between start and end.
    pub(crate) holes: Vec<(u64, u64)>,
}

impl LiveOffsets {
    pub(crate) fn of(table: &RunTable) -> Self {
        let streams = table.streams.iter().filter_map(|(&stream, runs)| {
            let (start, end) = (runs.first()?.first_offset, runs.last()?.next_offset);
            let holes = table.holes(stream).into_iter().flat_map(OffsetRanges::iter);
            // A hole may extend beyond the last batch: offsets without a batch are not dead.
            let holes = holes.map(|(from, to)| (from.max(start), to.min(end)));
            let holes = holes.filter(|(from, to)| from < to).collect();
            Some(LiveStream { stream, start, end, holes })
        });
        Self(streams.collect())
    }

    pub(crate) fn get(&self, stream: u64) -> Option<&LiveStream> {
        let place = self.0.binary_search_by_key(&stream, |it| it.stream).ok()?;
        self.0.get(place)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveStream> {
        self.0.iter()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + self.0.len() * 8);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_varint(&mut out, self.0.len() as u64);
        let mut last = 0;
        for LiveStream { stream, start, end, holes } in &self.0 {
            put_varint(&mut out, stream - last);
            put_varint(&mut out, *start);
            put_varint(&mut out, end - start);
            put_varint(&mut out, holes.len() as u64);
            let mut offset = *start;
            for (from, to) in holes {
                put_varint(&mut out, from - offset);
                put_varint(&mut out, to - from);
                offset = *to;
            }
            last = *stream;
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, InvalidLiveOffsets> {
        let mut fields = Fields::new(bytes);
        if fields.array() != Some(MAGIC) || fields.u32() != Some(VERSION) {
            return Err(InvalidLiveOffsets);
        }
        let streams = streams(&mut fields).filter(|_| fields.remaining() == 0);
        streams.map(Self).ok_or(InvalidLiveOffsets)
    }
}

fn streams(fields: &mut Fields<'_>) -> Option<Vec<LiveStream>> {
    let count = fields.count(4)?;
    let mut streams: Vec<LiveStream> = Vec::with_capacity(count);
    for _ in 0..count {
        let step = fields.varint()?;
        let stream = match streams.last() {
            None => step,
            Some(_) if step == 0 => return None,
            Some(last) => last.stream.checked_add(step)?,
        };
        let start = fields.varint()?;
        let end = start.checked_add(fields.varint()?)?;
        if start == end {
            return None;
        }
        let mut holes = Vec::new();
        let mut offset = start;
        for place in 0..fields.count(2)? {
            let (gap, len) = (fields.varint()?, fields.varint()?);
            let from = offset.checked_add(gap)?;
            offset = from.checked_add(len)?;
            // Adjacent ranges would have been merged.
            if len == 0 || (place > 0 && gap == 0) || offset > end {
                return None;
            }
            holes.push((from, offset));
        }
        streams.push(LiveStream { stream, start, end, holes });
    }
    Some(streams)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> LiveOffsets {
        let stream = |stream, start, end, holes: &[(u64, u64)]| {
            let holes = holes.to_vec();
            LiveStream { stream, start, end, holes }
        };
        LiveOffsets(vec![
            stream(0, 0, 1, &[]),
            stream(7, 5, 100, &[(9, 12), (20, 99)]),
            stream(u64::MAX, 1 << 60, 1 << 61, &[(1 << 60, (1 << 60) + 1)]),
        ])
    }

    #[test]
    fn live_offsets_are_read_back_and_found_by_stream() {
        let live = sample();
        assert_eq!(LiveOffsets::decode(&live.encode()), Ok(live.clone()));
        assert_eq!(live.get(7).map(|it| it.end), Some(100));
        assert_eq!(live.get(8), None);
        let none = LiveOffsets::default();
        assert_eq!(LiveOffsets::decode(&none.encode()), Ok(none));
    }

    #[test]
    fn truncated_or_extended_live_offsets_are_refused() {
        let good = sample().encode();
        for len in 0..good.len() {
            assert_eq!(LiveOffsets::decode(&good[..len]), Err(InvalidLiveOffsets), "cut to {len}");
        }
        let mut long = good;
        long.push(0);
        assert_eq!(LiveOffsets::decode(&long), Err(InvalidLiveOffsets));
    }

    proptest! {
        #[test]
        fn decoded_live_offsets_are_ordered_and_garbage_never_panics(mut bytes: Vec<u8>, place: usize, byte: u8) {
            let _ = LiveOffsets::decode(&bytes);
            bytes = sample().encode();
            let place = place % bytes.len();
            bytes[place] = byte;
            if let Ok(live) = LiveOffsets::decode(&bytes) {
                prop_assert!(live.0.is_sorted_by_key(|it| it.stream));
                for it in live.iter() {
                    prop_assert!(it.start < it.end);
                    prop_assert!(it.holes.iter().all(|(from, to)| from < to && *to <= it.end));
                }
            }
        }
    }
}
