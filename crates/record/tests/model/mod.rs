//! Records as plain values, to compare batches with.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use record::{Batch, BatchBuilder, BatchError, BatchOptions, Compression, Header, RecordView};

pub type Bytes = Vec<u8>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl From<&RecordView<'_>> for Record {
    fn from(view: &RecordView<'_>) -> Self {
        let headers = view.headers.iter();
        Self {
            timestamp: view.timestamp,
            key: view.key.map(<[u8]>::to_vec),
            value: view.value.map(<[u8]>::to_vec),
            headers: headers.map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec))).collect(),
        }
    }
}

pub fn record() -> impl Strategy<Value = Record> {
    let bytes = || vec(any::<u8>(), 0..40);
    // Text repeats, so that codecs can compress it.
    let value = prop_oneof![bytes(), "[ab]{0,300}".prop_map(String::into_bytes)];
    let timestamp = prop_oneof![1_700_000_000_000..1_700_000_100_000_i64, any::<i64>(), Just(-1)];
    let headers = vec((bytes(), option::of(bytes())), 0..4);
    (timestamp, option::of(bytes()), option::weighted(0.8, value), headers)
        .prop_map(|(timestamp, key, value, headers)| Record { timestamp, key, value, headers })
}

pub fn records() -> impl Strategy<Value = Vec<Record>> {
    vec(record(), 1..30)
}

pub fn compression() -> impl Strategy<Value = Compression> {
    proptest::sample::select(&Compression::ALL[..])
}

pub fn build(options: BatchOptions, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| Header { key, value: value.as_deref() })
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let len_max = builder.len_with(key, value, &headers);
        builder.push(record.timestamp, key, value, &headers).unwrap();
        assert!(builder.len() <= len_max, "{} > {len_max}", builder.len());
    }
    builder.finish()
}

/// Offsets and records of a batch.
pub fn read(batch: &[u8]) -> Result<Vec<(u64, Record)>, BatchError> {
    let batch = Batch::decode(batch)?;
    batch.records().map(|record| record.map(|view| (view.offset, Record::from(&view)))).collect()
}

pub fn read_records(batch: &[u8]) -> Vec<Record> {
    read(batch).unwrap().into_iter().map(|(_, record)| record).collect()
}

/// The records of the golden batches, by the same rule as in `golden/MakeGolden.java`.
pub fn golden_records(count: i64) -> Vec<Record> {
    (0..count)
        .map(|i| Record {
            timestamp: 1_700_000_000_000 + if i % 3 == 2 { -i } else { i * 7 },
            key: (i % 3 != 0).then(|| format!("key-{i}").into_bytes()),
            value: (i % 5 != 4)
                .then(|| format!("value-{i}-{}", "x".repeat(i as usize % 50)).into_bytes()),
            headers: (0..i % 4)
                .map(|j| {
                    let value = (j % 2 == 0).then(|| format!("v{j}").into_bytes());
                    (format!("h{j}").into_bytes(), value)
                })
                .collect(),
        })
        .collect()
}

/// Fields of the golden batches besides their records.
pub fn golden_options(compression: Compression) -> BatchOptions {
    BatchOptions {
        compression,
        base_offset: 42,
        leader_epoch: 7,
        producer_id: 4711,
        producer_epoch: 3,
        base_sequence: 99,
        transactional: false,
    }
}

/// Recomputes the checksum after a change.
pub fn reseal(batch: &mut [u8]) {
    let crc = base::checksum::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
