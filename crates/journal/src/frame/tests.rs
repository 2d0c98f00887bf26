use base::HashSet;
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::address::Address;
use crate::entry::{Body, Entry, EntryId, EntryKind};

fn body() -> impl Strategy<Value = Body> {
    (any::<u64>(), any::<u64>(), 1..1000_u32, any::<i64>(), vec(any::<u8>(), 0..300)).prop_map(
        |(stream, base_offset, span, max_timestamp, bytes)| Body {
            stream,
            base_offset,
            span,
            max_timestamp,
            bytes: bytes.into(),
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind =
        prop_oneof![Just(EntryKind::Blank), Just(EntryKind::Command), Just(EntryKind::Membership)];
    let bodies = prop_oneof![vec(body(), 0..5), shared_bodies()];
    (any::<[u64; 3]>(), kind, vec(any::<u8>(), 0..200), bodies).prop_map(
        |([term, leader, index], kind, head, bodies)| Entry {
            id: EntryId { term, leader, index },
            kind,
            head: head.into(),
            bodies,
        },
    )
}

/// Bodies some of which are clones of the body before, for other streams or occasionally the same.
fn shared_bodies() -> impl Strategy<Value = Vec<Body>> {
    vec((body(), vec(0..6_u64, 0..8)), 0..4).prop_map(|bodies| {
        let rows = bodies.into_iter().flat_map(|(body, streams)| {
            let first = Body { stream: 0, ..body };
            let clone = first.clone();
            let others = streams.into_iter().enumerate().map(move |(place, stream)| Body {
                stream,
                base_offset: place as u64,
                ..clone.clone()
            });
            std::iter::once(first).chain(others)
        });
        rows.collect()
    })
}

fn frame_of(entries: &[Entry]) -> (FrameHeader, Vec<u8>) {
    let (mut content, mut checksum) = (Vec::new(), EntriesChecksum::default());
    for entry in entries {
        let encoded = EncodedEntry::new(entry.clone());
        content.extend_from_slice(&encoded.descriptor);
        content.extend_from_slice(&entry.head);
        encoded.written_bodies().for_each(|(_, bytes)| content.extend_from_slice(bytes));
        checksum.add(encoded.checksum);
    }
    let header = FrameHeader {
        bytes: frame_bytes(content.len() as u64) as u32,
        segment: 3,
        position: 1024,
        previous: 77,
        salt: 5,
        entries: entries.len() as u32,
        content_bytes: content.len() as u32,
        entries_checksum: checksum.get(),
        first_index: entries[0].id.index,
    };
    (header, content)
}

proptest! {
    #[test]
    fn encoded_entries_of_a_frame_are_decoded_unchanged(entries in vec(entry(), 1..6)) {
        let (header, content) = frame_of(&entries);
        prop_assert_eq!(FrameHeader::decode(&header.encode()), Some(header));
        prop_assert_eq!(check_content(&header, &content), Ok(()));
        let content = Bytes::from(content);
        let back: Vec<Entry> = layouts(&content)
            .map(|(at, layout)| layout.entry(&content.slice(at..at + layout.len)))
            .collect();
        prop_assert_eq!(back, entries);
    }

    #[test]
    fn addresses_lead_to_the_bodies(entry in entry(), at in 0..100_000_u32) {
        let (_, content) = frame_of(std::slice::from_ref(&entry));
        let encoded = EncodedEntry::new(entry.clone());
        let layout = EntryLayout::read(&content).unwrap();
        let of_layout: Vec<_> = layout.addresses(&content, 9, at).collect();
        prop_assert_eq!(&of_layout, &encoded.addresses(9, at).collect::<Vec<_>>());
        for ((stream, address), body) in of_layout.into_iter().zip(&entry.bodies) {
            let start = (address.position - at) as usize;
            prop_assert_eq!(&content[start..start + address.len as usize], &body.bytes[..]);
            prop_assert_eq!((stream, address.segment), (body.stream, 9));
            let found = encoded.body_at(address.position - at).unwrap();
            prop_assert!(found.bytes == body.bytes || body.bytes.is_empty());
        }
    }

    #[test]
    fn a_shared_body_is_written_once(entry in entry()) {
        let (_, content) = frame_of(std::slice::from_ref(&entry));
        let layout = EntryLayout::read(&content).unwrap();
        let rows: Vec<(u64, Address)> = layout.addresses(&content, 1, 0).collect();
        // Stream and place identify a row with bytes.
        let names: HashSet<(u32, u64)> =
            rows.iter().filter(|it| it.1.len > 0).map(|it| (it.1.position, it.0)).collect();
        prop_assert_eq!(names.len(), rows.iter().filter(|it| it.1.len > 0).count());
        let mut once: Vec<(u32, u32)> = rows.iter().map(|it| (it.1.position, it.1.len)).collect();
        once.sort_unstable();
        once.dedup();
        let bodies: usize = once.iter().map(|(_, len)| *len as usize).sum();
        prop_assert_eq!(content.len(), layout.head.end + bodies);
        for (_, address) in rows.iter().filter(|it| it.1.len > 0) {
            let sharing = rows.iter().filter(|it| it.1.len > 0 && it.1.position == address.position);
            prop_assert_eq!(address.shared, sharing.count() > 1);
        }
        // A decoded entry shares its bytes as well, and encodes to the same bytes.
        let again = EncodedEntry::new(layout.entry(&Bytes::from(content.clone())));
        prop_assert_eq!(&again.descriptor[..], &content[..layout.head.start]);
    }

    #[test]
    fn any_flipped_bit_of_a_frame_is_detected(
        entries in vec(entry(), 1..4), place in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let (header, content) = frame_of(&entries);
        let mut bytes = [&header.encode()[..52], &content].concat();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let mut block = bytes[..52].to_vec();
        block.resize(FRAME_HEADER_BYTES, 0);
        let complete = FrameHeader::decode(&block)
            .is_some_and(|header| check_content(&header, &bytes[52..]).is_ok());
        prop_assert!(!complete);
    }

    #[test]
    fn garbage_is_refused_without_a_panic(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert!(FrameHeader::decode(&bytes).is_none());
        if let Ok(layout) = EntryLayout::read(&bytes) {
            prop_assert!(!layout.is_sound(&bytes));
        }
    }

    #[test]
    fn a_cut_frame_is_incomplete(entries in vec(entry(), 1..4), keep in 0.0..1.0_f64) {
        let (header, content) = frame_of(&entries);
        let keep = (content.len() as f64 * keep) as usize;
        prop_assert!(check_content(&header, &content[..keep]).is_err());
        let mut zeroed = content.clone();
        zeroed[keep..].fill(0);
        prop_assert!(zeroed == content || check_content(&header, &zeroed).is_err());
    }
}
fn three_streams_and_one() -> Entry {
    let shared = Body {
        stream: 7,
        base_offset: 100,
        span: 2,
        max_timestamp: 1_234,
        bytes: Bytes::from_static(b"offset..body"),
    };
    let bodies = vec![
        shared.clone(),
        Body { stream: 8, base_offset: 5, ..shared.clone() },
        Body { stream: 9, base_offset: 0, ..shared },
        Body {
            stream: 7,
            base_offset: 102,
            span: 1,
            max_timestamp: -1,
            bytes: Bytes::from_static(b"alone"),
        },
    ];
    let id = EntryId { term: 3, leader: 2, index: 41 };
    Entry { id, kind: EntryKind::Command, head: Bytes::from_static(b"head"), bodies }
}

fn bytes_of(entry: &Entry) -> Vec<u8> {
    frame_of(std::slice::from_ref(entry)).1
}

#[test]
fn entry_encoding_has_golden_bytes() {
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let small = |numbers: &[u32]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    let golden = [
        numbers(&[41, 3, 2]),
        small(&[4, 4]),
        vec![1, 2, 0, 0],
        small(&[0x3f16_c9e8]),
        small(&[2, 0]),
        // The second and the third row are share rows.
        vec![0b0110, 0, 0, 0, 0, 0, 0, 0],
        numbers(&[7, 100, 1_234]),
        small(&[2, 12]),
        numbers(&[8, 5]),
        numbers(&[9, 0]),
        numbers(&[7, 102, u64::MAX]),
        small(&[1, 5]),
        b"headoffset..bodyalone".to_vec(),
    ];
    let golden = golden.concat();
    assert_eq!(bytes_of(&three_streams_and_one()), golden);
    let layout = EntryLayout::read(&golden).unwrap();
    assert!(layout.is_sound(&golden));
    assert_eq!(layout.entry(&Bytes::from(golden)), three_streams_and_one());
}

#[test]
fn an_entry_of_version_1_is_still_read() {
    let entry =
        Entry { bodies: three_streams_and_one().bodies[2..].to_vec(), ..three_streams_and_one() };
    let mut old = bytes_of(&entry);
    old.drain(40..48);
    old[ENTRY_VERSION_AT] = 0;
    let checksum = crc32c_append(crc32c(&old[..36]), &old[40..]);
    old[36..40].copy_from_slice(&checksum.to_le_bytes());
    let layout = EntryLayout::read(&old).unwrap();
    assert!(layout.is_sound(&old));
    assert_eq!(EntryLayout::descriptor_bytes(&old), Some(40 + 2 * 32));
    assert!(layout.addresses(&old, 1, 0).all(|(_, address)| !address.shared));
    assert_eq!(layout.entry(&Bytes::from(old)), entry);
}

#[test]
fn inconsistent_bitmap_is_refused() {
    let good = bytes_of(&three_streams_and_one());
    let spoilt = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        EntryLayout::read(&bad).err()
    };
    // One bit more and one less than counted, the first row, a row that does not exist.
    for bitmap in [0b1110, 0b0100, 0b0101, 0b1010_0000] {
        assert_eq!(spoilt(48, bitmap), Some(NotAnEntry), "{bitmap:b}");
    }
    assert_eq!(spoilt(48 + 7, 0x80), Some(NotAnEntry));
    // More share rows than rows, a future version.
    assert_eq!(spoilt(40, 4), Some(NotAnEntry));
    assert_eq!(spoilt(ENTRY_VERSION_AT, 3), Some(NotAnEntry));
    assert_eq!(spoilt(ENTRY_VERSION_AT, 1), Some(NotAnEntry));
    // A bitmap with another share row is caught by the checksum.
    let mut other = good.clone();
    other[48] = 0b1100;
    let sound = EntryLayout::read(&other).is_ok_and(|layout| layout.is_sound(&other));
    assert!(!sound);
}

#[test]
fn ten_streams_cost_little_more_than_one() {
    let mut entry = three_streams_and_one();
    let bytes = Bytes::from(vec![7; 1024]);
    entry.bodies = (0..10)
        .map(|stream| Body {
            stream,
            base_offset: stream,
            span: 1,
            max_timestamp: 0,
            bytes: bytes.clone(),
        })
        .collect();
    let ten = EncodedEntry::new(entry.clone()).len;
    entry.bodies.truncate(1);
    let one = EncodedEntry::new(entry).len;
    assert!(f64::from(ten) / f64::from(one) < 1.15, "{ten} and {one} bytes");
}
