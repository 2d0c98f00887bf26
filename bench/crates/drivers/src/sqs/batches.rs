//! Groups messages into requests.

use std::collections::HashMap;

use driver::Message;

/// Message limit of one request.
pub(super) const ENTRIES_MAX: usize = 10;
/// Byte limit of all bodies in one request, with room for their attributes. Amazon accepts 1 MiB,
/// other servers its former limit.
const BYTES_MAX: usize = 256 * 1024 - ENTRIES_MAX * 256;

/// One request: indexes of messages for one destination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Chunk {
    pub(super) destination: u32,
    pub(super) indexes: Vec<usize>,
    bytes: usize,
}

impl Chunk {
    fn of(destination: u32) -> Self {
        Self { destination, ..Self::default() }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.indexes.is_empty()
            || self.indexes.len() < ENTRIES_MAX && self.bytes + bytes <= BYTES_MAX
    }

    fn add(&mut self, index: usize, bytes: usize) {
        self.indexes.push(index);
        self.bytes += bytes;
    }
}

/// Requests that may be sent concurrently.
pub(super) fn unordered(batch: &[(u32, Message)]) -> Vec<Chunk> {
    let mut filling: HashMap<u32, Chunk> = HashMap::new();
    let mut full = Vec::new();
    for (index, (destination, message)) in batch.iter().enumerate() {
        let bytes = message.body.len();
        let chunk = filling.entry(*destination).or_insert_with(|| Chunk::of(*destination));
        if !chunk.has_room(bytes) {
            full.push(std::mem::replace(chunk, Chunk::of(*destination)));
        }
        chunk.add(index, bytes);
    }
    full.extend(filling.into_values());
    full
}

/// Rows of requests. Rows may be sent concurrently, the requests of one row only in turn, so that
/// each lane keeps its order. At most `group_batch` messages of a lane are in one request.
pub(super) fn ordered(
    batch: &[(u32, Message)],
    group_batch: usize,
    parallel: usize,
) -> Vec<Vec<Chunk>> {
    let mut rows: HashMap<(u32, usize), Row> = HashMap::new();
    for (index, (destination, message)) in batch.iter().enumerate() {
        let row = rows.entry((*destination, message.lane as usize % parallel)).or_default();
        row.add(*destination, index, message, group_batch);
    }
    rows.into_values().map(|row| row.chunks).collect()
}

#[derive(Default)]
struct Row {
    chunks: Vec<Chunk>,
    /// By lane: its last request, and the number of its messages there.
    last: HashMap<u32, (usize, usize)>,
    /// Requests before this one are full.
    first_with_room: usize,
}

impl Row {
    fn add(&mut self, destination: u32, index: usize, message: &Message, group_batch: usize) {
        let bytes = message.body.len();
        let earliest = match self.last.get(&message.lane) {
            None => self.first_with_room,
            Some(&(chunk, count)) if count < group_batch => chunk,
            Some(&(chunk, _)) => chunk + 1,
        };
        let from = earliest.max(self.first_with_room);
        let place = (from..self.chunks.len()).find(|place| self.chunks[*place].has_room(bytes));
        let place = place.unwrap_or_else(|| {
            self.chunks.push(Chunk::of(destination));
            self.chunks.len() - 1
        });
        self.chunks[place].add(index, bytes);
        let (chunk, count) = self.last.entry(message.lane).or_insert((place, 0));
        (*chunk, *count) = if *chunk == place { (place, *count + 1) } else { (place, 1) };
        while self.chunks.get(self.first_with_room).is_some_and(|chunk| !chunk.has_room(0)) {
            self.first_with_room += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn batch(of: impl IntoIterator<Item = (u32, u32, usize)>) -> Vec<(u32, Message)> {
        let message = |(destination, lane, bytes)| {
            (destination, Message { lane, body: Bytes::from(vec![0; bytes]) })
        };
        of.into_iter().map(message).collect()
    }

    fn sorted(chunks: impl IntoIterator<Item = Chunk>) -> Vec<usize> {
        let mut all: Vec<usize> = chunks.into_iter().flat_map(|chunk| chunk.indexes).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_request_has_one_destination_and_at_most_ten_messages() {
        let batch = batch((0..25).map(|number| (number % 2, 0, 100)));
        let chunks = unordered(&batch);
        assert_eq!(chunks.len(), 4);
        for chunk in &chunks {
            assert!(chunk.indexes.len() <= ENTRIES_MAX);
            assert!(chunk.indexes.iter().all(|index| batch[*index].0 == chunk.destination));
        }
        assert!(sorted(chunks).into_iter().eq(0..25));
    }

    #[test]
    fn request_stays_below_the_byte_limit_except_for_one_message() {
        let sizes = [200_000, 100_000, 50_000, 300_000, 1];
        let chunks = unordered(&batch(sizes.map(|bytes| (0, 0, bytes))));
        let indexes: Vec<Vec<usize>> = chunks.into_iter().map(|chunk| chunk.indexes).collect();
        assert_eq!(indexes, [vec![0], vec![1, 2], vec![3], vec![4]]);
    }

    #[test]
    fn lane_stays_in_one_row_in_order_and_once_per_request() {
        let batch = batch((0..60).map(|number| (0, number * 7 % 5, 100)));
        let rows = ordered(&batch, 1, 3);
        assert_eq!(rows.len(), 3);
        for row in &rows {
            let mut latest: HashMap<u32, usize> = HashMap::new();
            for chunk in row {
                let lanes = chunk.indexes.iter().map(|index| batch[*index].1.lane);
                let mut lanes: Vec<u32> = lanes.collect();
                lanes.sort_unstable();
                let all = lanes.len();
                lanes.dedup();
                assert_eq!(lanes.len(), all);
                for &index in &chunk.indexes {
                    let before = latest.insert(batch[index].1.lane, index);
                    assert!(before.is_none_or(|before| before < index));
                }
            }
        }
        assert!(sorted(rows.into_iter().flatten()).into_iter().eq(0..60));
    }

    #[test]
    fn lane_fills_requests_where_the_server_keeps_order() {
        let rows = ordered(&batch((0..25).map(|_| (0, 4, 100))), 10, 3);
        let sizes: Vec<usize> = rows[0].iter().map(|chunk| chunk.indexes.len()).collect();
        assert_eq!((rows.len(), sizes), (1, vec![10, 10, 5]));
    }
}
