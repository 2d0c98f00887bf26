//! Written batches are read back unchanged, in every codec; rewrites preserve everything else.

mod model;

use std::collections::BTreeSet;

use proptest::prelude::*;
use record::{
    BatchBuilder, BatchHeader, BatchOptions, CompactionResult, Compression, EncodedHeaders,
    TimestampType, ValidateLimits, assign, first_with_max_timestamp, offset_at_or_after,
    recompress, retain, set_log_append_time, set_max_timestamp, validate, verify_checksum,
};

proptest! {
    #[test]
    fn built_batches_are_valid_and_read_unchanged(
        records in model::records(), compression in model::compression(),
    ) {
        let batch =
            model::build(BatchOptions { compression, ..BatchOptions::default() }, &records);
        let validated = validate(&batch, &ValidateLimits::default()).unwrap();
        let max = records.iter().map(|record| record.timestamp).max().unwrap();
        prop_assert_eq!(validated.max_timestamp, max);
        prop_assert_eq!(validated.header.max_timestamp, max);
        prop_assert_eq!(validated.header.total_len(), batch.len());
        prop_assert_eq!(model::read_records(&batch), records);
    }

    #[test]
    fn a_value_in_slices_makes_the_same_record(records in model::records(), cut in 0_usize..400) {
        let records: Vec<_> = records.into_iter().filter(|r| r.value.is_some()).collect();
        prop_assume!(!records.is_empty());
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let mut headers = EncodedHeaders::new();
        for record in &records {
            headers.clear();
            for (key, value) in &record.headers {
                headers.push(key, value.as_deref());
            }
            let (key, value) = (record.key.as_deref(), record.value.as_deref().unwrap_or_default());
            let (first, rest) = value.split_at(cut.min(value.len()));
            let len_max = builder.len_with_encoded(key, value.len(), &headers);
            builder.push_sliced(record.timestamp, key, &[first, rest], &headers).unwrap();
            prop_assert!(builder.len() <= len_max);
        }
        prop_assert_eq!(builder.finish(), model::build(BatchOptions::default(), &records));
    }

    #[test]
    fn a_batch_gets_its_offset_without_a_new_checksum(
        records in model::records(),
        compression in model::compression(),
        base_offset in 0..1_u64 << 62,
        leader_epoch in any::<i32>(),
    ) {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let mut batch = model::build(options, &records);
        let before = batch.clone();
        assign(&mut batch, base_offset, leader_epoch);
        prop_assert_eq!(&batch[16..], &before[16..]);
        let header = verify_checksum(&batch).unwrap();
        prop_assert_eq!((header.base_offset, header.leader_epoch), (base_offset, leader_epoch));
        let expected: Vec<_> = (base_offset..).zip(records).collect();
        prop_assert_eq!(model::read(&batch).unwrap(), expected);
    }

    #[test]
    fn recompression_changes_only_the_bytes(
        records in model::records(), from in model::compression(), to in model::compression(),
    ) {
        let batch = model::build(model::golden_options(from), &records);
        let again = recompress(&batch, to).unwrap();
        let header = validate(&again, &ValidateLimits::default()).unwrap().header;
        let before = BatchHeader::parse(&batch).unwrap();
        let expected = BatchHeader {
            batch_length: header.batch_length,
            crc: header.crc,
            attributes: before.attributes.with_compression(to),
            ..before
        };
        prop_assert_eq!(header, expected);
        prop_assert_eq!(model::read(&again).unwrap(), model::read(&batch).unwrap());
    }

    #[test]
    fn compaction_keeps_offsets_timestamps_and_the_covered_range(
        records in model::records(),
        compression in model::compression(),
        keep_bits in any::<u32>(),
        horizon in proptest::option::of(0..2_000_000_000_000_i64),
    ) {
        let batch = model::build(model::golden_options(compression), &records);
        let before = BatchHeader::parse(&batch).unwrap();
        let keep = |offset: u64| keep_bits >> (offset - 42) & 1 == 1;
        let mut expected = model::read(&batch).unwrap();
        expected.retain(|(offset, _)| keep(*offset));
        let has_tombstone = expected.iter().any(|(_, record)| record.value.is_none());
        let horizon_due = horizon.filter(|_| has_tombstone);

        match retain(&batch, horizon, |record| keep(record.offset)).unwrap() {
            CompactionResult::None => prop_assert!(expected.is_empty()),
            CompactionResult::All => {
                prop_assert_eq!(expected.len(), records.len());
                prop_assert_eq!(horizon_due, None);
            }
            CompactionResult::Part(part) => {
                let header = verify_checksum(&part).unwrap();
                prop_assert_eq!(header.base_offset, before.base_offset);
                prop_assert_eq!(header.last_offset(), before.last_offset());
                prop_assert_eq!(header.producer_id, before.producer_id);
                prop_assert_eq!(header.base_sequence, before.base_sequence);
                prop_assert_eq!(header.last_sequence(), before.last_sequence());
                prop_assert_eq!(header.record_count as usize, expected.len());
                prop_assert_eq!(header.attributes.compression(), compression);
                prop_assert_eq!(header.delete_horizon(), horizon_due);
                let max = expected.iter().map(|(_, record)| record.timestamp).max();
                prop_assert_eq!(Some(header.max_timestamp), max);
                prop_assert_eq!(model::read(&part).unwrap(), expected);
                // A second compaction keeps the first horizon.
                let later = retain(&part, horizon.map(|ms| ms + 1), |_| true).unwrap();
                if horizon_due.is_some() {
                    prop_assert_eq!(later, CompactionResult::All);
                }
            }
        }
    }

    #[test]
    fn search_by_time_agrees_with_a_scan(
        records in model::records(),
        compression in model::compression(),
        timestamp in prop_oneof![1_700_000_000_000..1_700_000_100_000_i64, any::<i64>()],
    ) {
        let batch = model::build(model::golden_options(compression), &records);
        let all: Vec<_> =
            (42..).zip(&records).map(|(offset, record)| (offset, record.timestamp)).collect();
        let first = all.iter().copied().find(|(_, at)| *at >= timestamp);
        prop_assert_eq!(offset_at_or_after(&batch, timestamp).unwrap(), first);
        let max = all.iter().map(|(_, at)| *at).max().unwrap();
        let first_max = all.iter().copied().find(|(_, at)| *at == max);
        prop_assert_eq!(first_with_max_timestamp(&batch).unwrap(), first_max);
    }

    #[test]
    fn log_append_time_is_the_time_of_every_record(
        records in model::records(), compression in model::compression(), now in 0..i64::MAX,
    ) {
        let mut batch = model::build(model::golden_options(compression), &records);
        set_log_append_time(&mut batch, now);
        let header = verify_checksum(&batch).unwrap();
        prop_assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppend);
        prop_assert_eq!(header.attributes.compression(), compression);
        prop_assert_eq!(header.max_timestamp, now);
        let read = model::read_records(&batch);
        prop_assert!(read.iter().all(|record| record.timestamp == now));
        prop_assert_eq!(read.len(), records.len());
        prop_assert_eq!(offset_at_or_after(&batch, now).unwrap(), Some((42, now)));
    }
}

#[test]
fn wrong_max_timestamp_is_found_and_corrected() {
    let mut batch =
        model::build(model::golden_options(Compression::Zstd), &model::golden_records(5));
    let right = batch.clone();
    set_max_timestamp(&mut batch, 1);
    let validated = validate(&batch, &ValidateLimits::default()).unwrap();
    assert_eq!(validated.header.max_timestamp, 1);
    set_max_timestamp(&mut batch, validated.max_timestamp);
    assert_eq!(batch, right);
}

#[test]
fn sequences_wrap_as_kafkas_do() {
    let header = |base_sequence| {
        let options = BatchOptions { base_sequence, ..model::golden_options(Compression::None) };
        BatchHeader::parse(&model::build(options, &model::golden_records(3))).unwrap()
    };
    assert_eq!(header(0).last_sequence(), 2);
    assert_eq!(header(i32::MAX - 2).last_sequence(), i32::MAX);
    assert_eq!(header(i32::MAX - 1).last_sequence(), 0);
    assert_eq!(header(i32::MAX).last_sequence(), 1);
    assert_eq!(header(-1).last_sequence(), -1);
}

#[test]
fn last_header_of_a_name_takes_precedence() {
    let mut record = model::golden_records(1).remove(0);
    record.headers = vec![
        (b"a".to_vec(), Some(b"1".to_vec())),
        (b"b".to_vec(), None),
        (b"a".to_vec(), Some(b"2".to_vec())),
    ];
    let batch = model::build(BatchOptions::default(), &[record]);
    let batch = record::Batch::decode(&batch).unwrap();
    let headers = batch.records().next().unwrap().unwrap().headers;
    assert_eq!(headers.last(b"a"), Some(Some(&b"2"[..])));
    assert_eq!(headers.last(b"b"), Some(None));
    assert_eq!(headers.last(b"c"), None);
    assert_eq!(headers.len(), 3);
}

#[test]
fn codecs_are_named_as_in_kafkas_configuration() {
    let names: BTreeSet<_> = Compression::ALL.iter().map(|codec| codec.name()).collect();
    assert_eq!(names.len(), Compression::ALL.len());
    for codec in Compression::ALL {
        assert_eq!(codec.name().parse(), Ok(codec));
        assert_eq!(Compression::from_id(codec.id()), Some(codec));
    }
    assert_eq!("uncompressed".parse(), Ok(Compression::None));
    assert!("producer".parse::<Compression>().is_err());
    assert_eq!(Compression::from_id(5), None);
}
