//! Bytes that no client should send: each is refused for its reason, none panics, and none
//! allocates more memory than its limit allows.

mod model;

use proptest::prelude::*;
use record::{
    Batch, BatchError, BatchHeader, BatchOptions, Compression, CompressionError, HEADER_LEN,
    RecordFault, RefusalReason, RefusedRecord, ValidateLimits, first_with_max_timestamp,
    offset_at_or_after, recompress, retain, set_log_append_time, split, validate,
};

fn check(batch: &[u8]) -> Result<(), BatchError> {
    validate(batch, &ValidateLimits::default()).map(drop)
}

fn golden(compression: Compression) -> Vec<u8> {
    model::build(model::golden_options(compression), &model::golden_records(20))
}

/// A batch of one record whose body is `body`.
fn with_body(compression: Compression, record_count: i32, body: &[u8]) -> Vec<u8> {
    let mut batch = golden(compression)[..HEADER_LEN].to_vec();
    batch.extend_from_slice(body);
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[23..27].copy_from_slice(&(record_count - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&record_count.to_be_bytes());
    model::reseal(&mut batch);
    batch
}

/// Calls every reader of a batch, to check that none panics.
fn read_in_every_way(batch: &[u8]) {
    let _ = BatchHeader::parse(batch);
    let _ = split(batch).count();
    let _ = check(batch);
    let _ = model::read(batch);
    let _ = recompress(batch, Compression::None);
    let _ = retain(batch, Some(5), |record| record.offset % 2 == 0);
    let _ = offset_at_or_after(batch, 1_700_000_000_000);
    let _ = first_with_max_timestamp(batch);
}

#[test]
fn every_truncation_is_refused() {
    for compression in Compression::ALL {
        let batch = golden(compression);
        for len in 0..batch.len() {
            let error = check(&batch[..len]).unwrap_err();
            assert!(matches!(error, BatchError::Truncated { .. }), "{compression} {len}: {error}");
            read_in_every_way(&batch[..len]);
        }
    }
}

#[test]
fn every_flipped_bit_under_the_checksum_is_refused() {
    for compression in Compression::ALL {
        let mut batch = golden(compression);
        for bit in 17 * 8..batch.len() * 8 {
            batch[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&batch).is_err(), "{compression}: bit {bit}");
            batch[bit / 8] ^= 1 << (bit % 8);
        }
        check(&batch).unwrap();
    }
}

#[test]
fn a_batch_with_bytes_behind_it_is_refused() {
    let mut batch = golden(Compression::None);
    let declared = batch.len();
    batch.push(0);
    let expected = BatchError::LengthMismatch { declared, actual: declared + 1 };
    assert_eq!(check(&batch), Err(expected));
}

#[test]
fn impossible_headers_are_refused_for_their_reason() {
    let change = |at: usize, bytes: &[u8]| {
        let mut batch = golden(Compression::None);
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        model::reseal(&mut batch);
        check(&batch).unwrap_err()
    };
    let negative = (-1_i32).to_be_bytes();
    assert_eq!(change(8, &negative), BatchError::ImpossibleLength(-1));
    assert_eq!(change(8, &48_i32.to_be_bytes()), BatchError::ImpossibleLength(48));
    assert_eq!(change(8, &i32::MAX.to_be_bytes()), BatchError::ImpossibleLength(i32::MAX));
    assert_eq!(change(16, &[3]), BatchError::UnsupportedMagic(3));
    assert_eq!(
        change(0, &(-7_i64).to_be_bytes()),
        BatchError::ImpossibleOffset { base_offset: -7 }
    );
    assert_eq!(
        change(0, &i64::MAX.to_be_bytes()),
        BatchError::ImpossibleOffset { base_offset: i64::MAX }
    );
    assert_eq!(change(21, &[0, 5]), BatchError::UnknownCompression(5));
    assert_eq!(change(21, &[0, 1 << 3]), BatchError::LogAppendTime);
    assert_eq!(change(21, &[0, 1 << 5]), BatchError::ControlBatch);
    for count in [-1, 0, 19, 21, i32::MAX] {
        let expected = BatchError::ImpossibleCount { count, last_offset_delta: 19 };
        assert_eq!(change(57, &count.to_be_bytes()), expected);
    }
    for last_offset_delta in [-1, 0, 20, i32::MAX] {
        let expected = BatchError::ImpossibleCount { count: 20, last_offset_delta };
        assert_eq!(change(23, &last_offset_delta.to_be_bytes()), expected);
    }
    let expected = BatchError::ImpossibleSequence { producer_id: 4711, epoch: 3, sequence: -1 };
    assert_eq!(change(53, &negative), expected);
}

#[test]
fn broken_records_are_refused_for_their_reason() {
    let fault = |body: &[u8]| match check(&with_body(Compression::None, 1, body)) {
        Err(BatchError::Record { index: 0, fault }) => fault,
        other => panic!("{other:?}"),
    };
    // length, attributes, timestamp delta, offset delta, key, value, headers
    check(&with_body(Compression::None, 1, &[12, 0, 0, 0, 1, 1, 0])).unwrap();
    assert_eq!(fault(&[]), RecordFault::Truncated);
    assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 0]), RecordFault::Truncated);
    assert_eq!(fault(&[0xff, 0xff, 0xff, 0xff, 0xff, 1]), RecordFault::Varint);
    assert_eq!(fault(&[3, 0]), RecordFault::ImpossibleLength(-2));
    assert_eq!(fault(&[12, 0, 0, 0, 3, 1, 0]), RecordFault::ImpossibleLength(-2));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 1]), RecordFault::ImpossibleLength(-1));
    // A header without a key, a value longer than its record, more headers than bytes.
    assert_eq!(fault(&[16, 0, 0, 0, 1, 1, 2, 1, 1]), RecordFault::ImpossibleLength(-1));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 20, 0]), RecordFault::Truncated);
    assert_eq!(fault(&[20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]), RecordFault::Truncated);
    let expected = RecordFault::LengthMismatch { declared: 7, used: 6 };
    assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 0, 0]), expected);
    let expected = RecordFault::OffsetDeltaOutOfRange { found: 1, min: 0, max: 0 };
    assert_eq!(fault(&[12, 0, 0, 2, 1, 1, 0]), expected);

    let body = [12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 4, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0];
    let expected = RecordFault::OffsetDelta { found: 2, expected: 1 };
    assert_eq!(
        check(&with_body(Compression::None, 3, &body)),
        Err(BatchError::Record { index: 1, fault: expected })
    );
    assert_eq!(
        check(&with_body(Compression::None, 2, &[12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0, 9])),
        Err(BatchError::TrailingBytes { bytes: 1 })
    );
}

#[test]
fn batches_outside_of_the_topics_limits_are_refused() {
    let batch = golden(Compression::Lz4);
    let defaults = ValidateLimits::default();
    let refusal = |limits| validate(&batch, &limits).unwrap_err();
    let refused = |limits| match refusal(limits) {
        BatchError::Records(refused) => refused,
        other => panic!("unexpected {other:?}"),
    };
    let keyless = refused(ValidateLimits { require_key: true, ..defaults });
    let expected: Vec<u32> = Batch::decode(&batch)
        .unwrap()
        .records()
        .map(|record| record.unwrap())
        .enumerate()
        .filter(|(_, record)| record.key.is_none())
        .map(|(place, _)| place as u32)
        .collect();
    assert_eq!(keyless.named.iter().map(|record| record.index).collect::<Vec<_>>(), expected);
    assert!(keyless.named.iter().all(|record| record.reason == RefusalReason::MissingKey));
    assert_eq!((keyless.count, keyless.has_bad_timestamp), (expected.len() as u32, false));

    let few = refused(ValidateLimits { require_key: true, refused_named_max: 1, ..defaults });
    assert_eq!((few.named.len(), few.count), (1, keyless.count));
    assert_eq!(
        refusal(ValidateLimits { batch_bytes_max: batch.len() - 1, ..defaults }),
        BatchError::TooLarge { bytes: batch.len(), limit: batch.len() - 1 }
    );
    assert_eq!(
        refusal(ValidateLimits { records_max: 19, ..defaults }),
        BatchError::TooManyRecords { limit: 19 }
    );
    let (min, max) = (1_700_000_000_000, 1_800_000_000_000);
    let untimely = refused(ValidateLimits { timestamp_min: min, timestamp_max: max, ..defaults });
    let reason = RefusalReason::TimestampOutOfRange { timestamp: min - 2 };
    assert_eq!(untimely.named[0], RefusedRecord { index: 2, reason });
    assert!(untimely.has_bad_timestamp);
}

#[test]
fn a_bomb_is_refused_at_its_limit() {
    let limit = 1 << 20;
    let limits = ValidateLimits { decompressed_bytes_max: limit, ..ValidateLimits::default() };
    for compression in &Compression::ALL[1..] {
        let mut packed = Vec::new();
        compression.compress(&vec![0; 32 << 20], &mut packed);
        let expected = BatchError::Compression {
            compression: *compression,
            error: CompressionError::TooLarge { limit },
        };
        let refused = validate(&with_body(*compression, 1, &packed), &limits);
        assert_eq!(refused, Err(expected));
        assert_eq!(compression.decompress(&packed, 32 << 20).unwrap().len(), 32 << 20);
        assert_eq!(
            compression.decompress(&packed, (32 << 20) - 1),
            Err(CompressionError::TooLarge { limit: (32 << 20) - 1 })
        );
    }
}

#[test]
fn snappy_block_with_a_false_length_reserves_no_memory() {
    // A bare block that claims 200 MB and has three bytes.
    let claim = [0x80, 0x90, 0xad, 0x5f, 0, 0, 0];
    let error = Compression::Snappy.decompress(&claim, usize::MAX >> 1).unwrap_err();
    assert!(matches!(error, CompressionError::Corrupt { .. }), "{error}");
}

#[test]
fn compressed_data_with_trailing_bytes_is_refused() {
    for compression in &Compression::ALL[1..] {
        let mut packed = Vec::new();
        compression.compress(&[7; 1000], &mut packed);
        packed.push(0);
        assert!(compression.decompress(&packed, 1 << 20).is_err(), "{compression}");
        for len in 0..packed.len() - 1 {
            // Some codecs read a truncated stream as a shorter one: then records are missing.
            if let Ok(unpacked) = compression.decompress(&packed[..len], 1 << 20) {
                assert!(unpacked.len() <= 1000, "{compression}");
            }
        }
    }
}

#[test]
fn snappy_is_read_bare_and_in_joined_streams_too() {
    let bytes = b"to be, or not to be, to be, or not to be".repeat(2000);
    let bare = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
    assert_eq!(Compression::Snappy.decompress(&bare, bytes.len()).unwrap(), bytes);
    let mut joined = Vec::new();
    Compression::Snappy.compress(&bytes, &mut joined);
    Compression::Snappy.compress(&bytes, &mut joined);
    let unpacked = Compression::Snappy.decompress(&joined, 2 * bytes.len()).unwrap();
    assert_eq!(unpacked, bytes.repeat(2));
}

#[test]
fn builder_refuses_records_beyond_the_batch_limits() {
    let value = vec![0; 40 << 20];
    let mut builder = record::BatchBuilder::new(BatchOptions::default());
    builder.push(0, None, Some(&value), &[]).unwrap();
    let len = builder.len();
    let refused = builder.push(0, None, Some(&value), &[]).unwrap_err();
    assert!(matches!(refused, BatchError::TooLarge { .. }), "{refused}");
    assert_eq!((builder.len(), builder.record_count()), (len, 1));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_in_every_way(&bytes);
        let mut batch = bytes;
        if batch.len() > 17 {
            batch[16] = 2;
            read_in_every_way(&batch);
        }
    }

    /// The checksum is recomputed, so that the damage behind it is reached.
    #[test]
    fn damage_behind_a_valid_checksum_never_panics(
        records in model::records(),
        compression in model::compression(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut batch = model::build(model::golden_options(compression), &records);
        for (at, byte) in damage {
            let at = at.index(batch.len());
            batch[at] = byte;
        }
        model::reseal(&mut batch);
        read_in_every_way(&batch);
        if check(&batch).is_ok() {
            // A valid batch can be read, whatever its content.
            let read = model::read(&batch).unwrap();
            let header = *Batch::decode(&batch).unwrap().header();
            prop_assert_eq!(read.len(), header.record_count as usize);
            set_log_append_time(&mut batch, 5);
        }
    }

    #[test]
    fn bodies_of_garbage_never_panic(
        body in proptest::collection::vec(any::<u8>(), 0..100),
        compression in model::compression(),
        count in 1..4_i32,
    ) {
        read_in_every_way(&with_body(compression, count, &body));
    }
}
