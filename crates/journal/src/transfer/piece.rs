//! Batches of a segment in transit, by stream and offset.
//!
//! ```text
//! magic "PRsp" | count u32 | crc32c of the rows u32
//! rows     count x { stream u64, base_offset u64, max_timestamp i64, span u32, len u32,
//!                    crc32c of the batch u32, place u32, flags u32 }
//! batches  those included, in the order of their rows
//! ```
//! Little-endian. `place` identifies a batch within its segment. Flag 1: the batch is shared by
//! several streams. Flag 2: an earlier row of the segment included it. A shared body is sent once.

use base::checksum::crc32c;
use bytes::Bytes;

use crate::address::Address;
use crate::index::fields::Fields;

const MAGIC: [u8; 4] = *b"PRsp";
const HEADER_BYTES: usize = 12;
pub(crate) const ROW_BYTES: usize = 44;
const SHARED: u32 = 1;
const CAME_BEFORE: u32 = 2;

/// A row as it is sent. The address's segment is unused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) stream: u64,
    pub(crate) address: Address,
    /// `None`: an earlier row included it.
    pub(crate) batch: Option<Bytes>,
}

/// Encodes `rows` with their batches' checksums; a repeated batch has the checksum of its first
/// row.
pub(crate) fn encode(rows: &[Row]) -> Vec<u8> {
    let batches = || rows.iter().filter_map(|row| row.batch.as_ref());
    let bytes: usize = batches().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + rows.len() * ROW_BYTES + bytes);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(rows.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for Row { stream, address, batch } in rows {
        let flags = if address.shared { SHARED } else { 0 };
        let (crc, flags) = match batch {
            Some(batch) => (crc32c(batch), flags),
            None => (0, flags | CAME_BEFORE),
        };
        out.extend_from_slice(&stream.to_le_bytes());
        out.extend_from_slice(&address.base_offset.to_le_bytes());
        out.extend_from_slice(&address.max_timestamp.to_le_bytes());
        for number in [address.span, address.len, crc, address.position, flags] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    let crc = crc32c(&out[HEADER_BYTES..]);
    out[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    batches().for_each(|batch| out.extend_from_slice(batch));
    out
}

/// Decodes the rows; batches are slices of `piece`, with verified checksums.
pub(crate) fn decode(mut piece: Bytes) -> Result<Vec<Row>, &'static str> {
    const CUT: &str = "a piece that is cut short";
    let mut header = Fields::new(&piece);
    if header.array() != Some(MAGIC) {
        return Err("not a piece");
    }
    let (Some(count), Some(crc)) = (header.u32(), header.u32()) else { return Err(CUT) };
    let table_bytes = (count as usize).checked_mul(ROW_BYTES).ok_or(CUT)?;
    if piece.len() - HEADER_BYTES < table_bytes {
        return Err(CUT);
    }
    let table = piece.split_to(HEADER_BYTES + table_bytes).slice(HEADER_BYTES..);
    if crc32c(&table) != crc {
        return Err("rows with another checksum");
    }
    let mut rows = Vec::with_capacity(count as usize);
    for descriptor in table.chunks_exact(ROW_BYTES) {
        rows.push(row(descriptor, &mut piece)?);
    }
    if !piece.is_empty() {
        return Err("something follows the batches");
    }
    Ok(rows)
}

fn row(descriptor: &[u8], batches: &mut Bytes) -> Result<Row, &'static str> {
    const SENSELESS: &str = "a row that makes no sense";
    let mut fields = Fields::new(descriptor);
    let (Some(stream), Some(base_offset), Some(max_timestamp)) =
        (fields.u64(), fields.u64(), fields.u64())
    else {
        return Err(SENSELESS);
    };
    let mut number = || fields.u32().ok_or(SENSELESS);
    let [span, len, crc, position, flags] = [number()?, number()?, number()?, number()?, number()?];
    let (shared, came_before) = (flags & SHARED != 0, flags & CAME_BEFORE != 0);
    let possible = base_offset.checked_add(span.into()).is_some() && len > 0;
    if !possible || flags > (SHARED | CAME_BEFORE) || (came_before && !shared) {
        return Err(SENSELESS);
    }
    let max_timestamp = max_timestamp as i64;
    let address = Address { segment: 0, position, len, span, base_offset, max_timestamp, shared };
    let batch = if came_before {
        None
    } else {
        if batches.len() < len as usize {
            return Err("a piece without the batches of its rows");
        }
        let batch = batches.split_to(len as usize);
        if crc32c(&batch) != crc {
            return Err("a batch with another checksum");
        }
        Some(batch)
    };
    Ok(Row { stream, address, batch })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(stream: u64, base_offset: u64, position: u32, batch: Option<&'static [u8]>) -> Row {
        let address = Address {
            segment: 0,
            position,
            len: batch.map_or(5, |batch| batch.len() as u32),
            span: 3,
            base_offset,
            max_timestamp: -1,
            shared: batch.is_none() || position == 5,
        };
        Row { stream, address, batch: batch.map(Bytes::from_static) }
    }

    fn rows() -> Vec<Row> {
        vec![
            row(1, 0, 5, Some(b"first")),
            row(1, 3, 9, Some(b"second and longer")),
            row(u64::MAX, 7, 5, None),
        ]
    }

    #[test]
    fn a_piece_is_read_back_without_a_copy_of_its_batches() {
        let piece = Bytes::from(encode(&rows()));
        let back = decode(piece.clone()).unwrap();
        assert_eq!(back, rows());
        let within = piece.as_ptr_range();
        assert!(within.contains(&back[1].batch.as_ref().unwrap().as_ptr()));
        assert_eq!(decode(encode(&[]).into()), Ok(vec![]));
    }

    #[test]
    fn any_flipped_bit_or_cut_of_a_piece_is_detected() {
        let good = encode(&rows());
        for place in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[place] ^= 1 << bit;
                assert!(decode(bad.into()).is_err(), "byte {place} bit {bit}");
            }
            assert!(decode(good[..place].to_vec().into()).is_err(), "cut to {place}");
        }
        let long = [&good[..], b"x"].concat();
        assert!(decode(long.into()).is_err());
    }

    proptest! {
        #[test]
        fn garbage_pieces_never_panic(bytes: Vec<u8>) {
            let _ = decode(Bytes::from(bytes.clone()));
            let mut rows = bytes;
            rows.resize(rows.len().next_multiple_of(ROW_BYTES), 0);
            let count = (rows.len() / ROW_BYTES) as u32;
            let piece = [&MAGIC[..], &count.to_le_bytes(), &crc32c(&rows).to_le_bytes(), &rows];
            let _ = decode(piece.concat().into());
        }
    }
}
