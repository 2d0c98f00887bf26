use record::{Batch, BatchBuilder, BatchOptions, Header};

use super::*;

const PARTITION: PartitionId = PartitionId::new(TopicId(1), 0);

fn batch(ids: &[Option<&str>], producer_id: i64) -> Vec<u8> {
    let options = BatchOptions {
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence: if producer_id < 0 { -1 } else { 0 },
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    for id in ids {
        let key = base::headers::ID.as_bytes();
        let headers: Vec<Header<'_>> =
            id.iter().map(|id| Header { key, value: Some(id.as_bytes()) }).collect();
        builder.push(0, None, Some(b"v"), &headers).expect("it fits");
    }
    builder.finish()
}

/// With a state that has no ids.
fn dedup() -> Dedup {
    Dedup { replicates: true, ..Dedup::default() }
}

fn check(dedup: &mut Dedup, bytes: &[u8], base_offset: u64, now_ms: i64) -> Deduplicated {
    let header = BatchHeader::parse(bytes).expect("a batch");
    let (partition, window_ms, ticket) = (PARTITION, 1_000, base_offset + 1);
    let going = BatchTarget { partition, base_offset, window_ms, now_ms, ticket };
    dedup.check(&header, &RecordIds::read(bytes), going, &StoredIds::default()).0
}

#[test]
fn duplicate_id_within_the_window_is_not_appended() {
    let mut dedup = dedup();
    let both = batch(&[Some("a"), Some("b")], -1);
    assert_eq!(check(&mut dedup, &both, 0, 0), Deduplicated::Whole);
    let again = Deduplicated::Nothing { partition: PARTITION, offset: 1 };
    assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 2, 500), again);
    assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 2, 1_001), Deduplicated::Whole);
    assert_eq!(check(&mut dedup, &batch(&[None, None], -1), 3, 1_001), Deduplicated::Whole);
}

#[test]
fn new_records_of_a_batch_with_copies_keep_their_offsets() {
    let mut dedup = dedup();
    check(&mut dedup, &batch(&[Some("a")], -1), 0, 0);
    // An id twice in one batch is a duplicate, too.
    let mixed = batch(&[Some("b"), Some("a"), None, Some("b"), Some("c")], -1);
    let Deduplicated::Part(copies) = check(&mut dedup, &mixed, 1, 0) else { panic!("a part") };
    let rest = without(&mixed, &copies).expect("it can be read");
    let rest = Batch::decode(&rest).expect("a batch");
    let offsets: Vec<u64> = rest.records().map(|it| it.expect("a record").offset).collect();
    assert_eq!((offsets, rest.header().last_offset_delta), (vec![0, 2, 4], 4));
}

#[test]
fn idempotent_producer_keeps_its_place_for_an_all_duplicate_batch() {
    let mut dedup = dedup();
    check(&mut dedup, &batch(&[Some("a")], 7), 0, 0);
    let bytes = batch(&[Some("a")], 7);
    let again = check(&mut dedup, &bytes, 1, 0);
    let Deduplicated::Part(copies) = again else { panic!("an empty batch") };
    let rest = without(&bytes, &copies).expect("it can be read");
    let header = BatchHeader::parse(&rest).expect("a batch");
    assert_eq!((header.record_count, header.last_offset_delta), (0, 0));
    assert_eq!((header.producer_id, header.base_sequence), (7, 0));
}

#[test]
fn entry_carries_the_ids_of_new_records() {
    let mut dedup = dedup();
    let bytes = batch(&[Some("a"), None, Some("b")], -1);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let going = BatchTarget {
        partition: PARTITION,
        base_offset: 0,
        window_ms: 1_000,
        now_ms: 0,
        ticket: 1,
    };
    let (outcome, new) =
        dedup.check(&header, &RecordIds::read(&bytes), going, &StoredIds::default());
    assert_eq!(outcome, Deduplicated::Whole);
    let places: Vec<u32> = new.iter().map(|(place, _)| place).collect();
    assert_eq!(places, [0, 2]);
    let again = Deduplicated::Nothing { partition: PARTITION, offset: 2 };
    assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 3, 1), again);
}

#[test]
fn ids_of_a_failed_proposal_are_forgotten() {
    let mut dedup = dedup();
    check(&mut dedup, &batch(&[Some("a")], -1), 0, 0);
    check(&mut dedup, &batch(&[Some("b")], -1), 1, 0);
    dedup.forget_from(2);
    assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 1, 0), Deduplicated::Whole);
    let again = Deduplicated::Nothing { partition: PARTITION, offset: 0 };
    assert_eq!(check(&mut dedup, &batch(&[Some("a")], -1), 2, 0), again);
}

#[test]
fn applied_proposal_is_no_longer_in_flight() {
    let mut dedup = dedup();
    check(&mut dedup, &batch(&[Some("a")], -1), 0, 0);
    check(&mut dedup, &batch(&[Some("b")], -1), 1, 0);
    dedup.applied(1);
    // The state of this test has none of the ids.
    assert_eq!(check(&mut dedup, &batch(&[Some("a")], -1), 2, 0), Deduplicated::Whole);
    let again = Deduplicated::Nothing { partition: PARTITION, offset: 1 };
    assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 3, 0), again);
}
