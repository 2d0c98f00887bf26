//! Batches built by Apache Kafka's own library (`golden/MakeGolden.java`) and one built by hand.

mod model;

use record::{
    Batch, BatchError, CompactionResult, Compression, ValidateLimits, retain, split, validate,
    verify_checksum,
};

const NONE: &[u8] = include_bytes!("golden/none.batch");
const HORIZON: &[u8] = include_bytes!("golden/horizon.batch");
const HORIZON_MS: i64 = 1_800_000_000_000;

const SHORT: [(Compression, &[u8]); 5] = [
    (Compression::None, NONE),
    (Compression::Gzip, include_bytes!("golden/gzip.batch")),
    (Compression::Snappy, include_bytes!("golden/snappy.batch")),
    (Compression::Lz4, include_bytes!("golden/lz4.batch")),
    (Compression::Zstd, include_bytes!("golden/zstd.batch")),
];

/// 3,000 records: more than one block in every codec.
const LONG: [(Compression, &[u8]); 4] = [
    (Compression::Gzip, include_bytes!("golden/gzip-long.batch")),
    (Compression::Snappy, include_bytes!("golden/snappy-long.batch")),
    (Compression::Lz4, include_bytes!("golden/lz4-long.batch")),
    (Compression::Zstd, include_bytes!("golden/zstd-long.batch")),
];

/// A record with the value "a", byte by byte from the format's description.
const BY_HAND: [u8; 69] = [
    0, 0, 0, 0, 0, 0, 0, 0, // base offset
    0, 0, 0, 57, // length
    0xff, 0xff, 0xff, 0xff, // leader epoch
    2,    // magic
    0x5e, 0x1d, 0xa8, 0x08, // checksum, from a bitwise CRC32C
    0, 0, // attributes
    0, 0, 0, 0, // last offset delta
    0, 0, 0, 0, 0, 0, 0, 5, // base timestamp
    0, 0, 0, 0, 0, 0, 0, 5, // max timestamp
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // producer id
    0xff, 0xff, // producer epoch
    0xff, 0xff, 0xff, 0xff, // base sequence
    0, 0, 0, 1, // records
    14, 0, 0, 0, 1, 2, b'a', 0, // length, attributes, deltas, no key, value, no headers
];

#[test]
fn builder_makes_the_batch_written_by_hand() {
    let record =
        model::Record { timestamp: 5, key: None, value: Some(b"a".to_vec()), headers: vec![] };
    assert_eq!(model::build(Default::default(), &[record]), BY_HAND);
    assert!(validate(&BY_HAND, &ValidateLimits::default()).is_ok());
}

#[test]
fn batches_of_the_java_client_are_valid_and_read_unchanged() {
    let all = SHORT.iter().map(|batch| (5, batch)).chain(LONG.iter().map(|batch| (3000, batch)));
    for (count, &(compression, batch)) in all {
        let validated = validate(batch, &ValidateLimits::default()).unwrap();
        let header = validated.header;
        assert_eq!(header.attributes.compression(), compression);
        assert_eq!(validated.max_timestamp, header.max_timestamp);
        assert_eq!(
            (header.base_offset, header.leader_epoch, header.record_count),
            (42, 7, count as i32)
        );
        assert_eq!((header.last_offset(), header.next_offset()), (41 + count, 42 + count));
        assert_eq!((header.producer_id, header.producer_epoch), (4711, 3));
        assert_eq!((header.base_sequence, header.last_sequence()), (99, 98 + count as i32));
        let expected = (42..).zip(model::golden_records(count as i64)).collect::<Vec<_>>();
        assert_eq!(model::read(batch).unwrap(), expected, "{compression}");
    }
}

#[test]
fn the_builder_makes_the_java_clients_bytes() {
    let batch = model::build(model::golden_options(Compression::None), &model::golden_records(5));
    assert_eq!(batch, NONE);
}

#[test]
fn the_delete_horizon_is_written_as_kafka_writes_it() {
    let header = verify_checksum(HORIZON).unwrap();
    assert_eq!(header.delete_horizon(), Some(HORIZON_MS));
    let expected = model::golden_records(5);
    assert_eq!(model::read_records(HORIZON), expected);

    // Kafka's builder keeps the same records for the same horizon: the bytes are equal too.
    let CompactionResult::Part(ours) = retain(NONE, Some(HORIZON_MS), |_| true).unwrap() else {
        panic!("record 4 is a tombstone, so the batch gets a horizon");
    };
    assert_eq!(ours, HORIZON);
}

#[test]
fn records_are_shared_not_copied() {
    let bytes = bytes::Bytes::from_static(NONE);
    let batch = Batch::decode_shared(&bytes).unwrap();
    let value = batch.records().next().unwrap().unwrap().value.unwrap();
    let shared = batch.share(value);
    assert_eq!(&shared[..], b"value-0-");
    assert!(bytes.as_ptr_range().contains(&shared.as_ptr()));
}

#[test]
fn consecutive_batches_are_split_and_a_truncated_one_is_reported() {
    let mut blob = [NONE, HORIZON, LONG[0].1].concat();
    let places: Vec<_> = split(&blob).map(|batch| batch.unwrap().1).collect();
    assert_eq!(places.len(), 3);
    assert_eq!(&blob[places[1].clone()], HORIZON);
    assert_eq!(places[2].end, blob.len());

    blob.pop();
    let mut batches = split(&blob).skip(2);
    let needed = LONG[0].1.len();
    assert_eq!(batches.next(), Some(Err(BatchError::Truncated { needed, have: needed - 1 })));
    assert_eq!(batches.next(), None);
}

#[test]
fn legacy_message_sets_are_refused_by_their_format() {
    for magic in [0_u8, 1] {
        // Offset, size, checksum, magic, attributes, and then the fields of the format.
        let mut message = vec![0; 30];
        message[11] = 18;
        message[16] = magic;
        let refused = Err(BatchError::UnsupportedMagic(magic as i8));
        assert_eq!(validate(&message, &ValidateLimits::default()), refused);
        assert_eq!(split(&message).next().unwrap().map(drop), refused.map(drop));
    }
}
