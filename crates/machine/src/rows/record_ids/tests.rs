use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::ids::AppendedIds;

const TOPIC: TopicId = TopicId(1);

fn id(hash: IdHash, at_ms: i64) -> KnownId {
    KnownId { hash, at_ms, partition: 0, offset: at_ms as u64 }
}

fn change(expire_before_ms: i64, at_most: u64, inherited: Vec<KnownId>) -> RecordIdsChange {
    let of_topic =
        TopicIdsChange { inherited, ..TopicIdsChange::new(TOPIC, expire_before_ms, at_most) };
    RecordIdsChange { topics: vec![of_topic], complete: false }
}

fn apply(ids: &mut RecordIds, change: &RecordIdsChange) {
    ids.change(change, &[], &[], 0, |_| true);
}

/// A hash like SHA-256's: all of its bits differ.
fn spread(number: u64) -> IdHash {
    let half = |number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    u128::from(half(number)) << 64 | u128::from(half(number ^ 0x5555))
}

fn append(index: u32, base_offset: Offset) -> Append {
    Append {
        partition: PartitionId::new(TOPIC, index),
        base_offset,
        span: 3,
        leader_epoch: 1,
        max_timestamp: 5,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        kind: Default::default(),
    }
}

#[test]
fn ids_of_a_refused_append_are_not_stored() {
    let mut ids = RecordIds::default();
    let of = |append, hash| AppendedIds { append, ids: [(2, hash)].into_iter().collect() };
    let appended = vec![of(0, 7), of(1, 8), of(9, 9)];
    let mut change = change(0, 10, Vec::new());
    change.topics[0].appended = appended;
    let outcomes =
        [AppendOutcome::Taken { base_offset: 40 }, AppendOutcome::NotSequenced { expected: 3 }];
    ids.change(&change, &[append(3, 40), append(4, 50)], &outcomes, 1_000, |_| true);
    let stored = KnownId { hash: 7, at_ms: 1_000, partition: 3, offset: 42 };
    assert_eq!((ids.find(TOPIC, 7, 0), ids.len()), (Some(stored), 1));
    assert_eq!((ids.find(TOPIC, 8, 0), ids.find(TOPIC, 9, 0)), (None, None));
    assert_eq!(ids.find(TOPIC, 7, 1_001), None, "it arrived before the window");
    ids.drop_topic(TOPIC);
    assert_eq!(ids, RecordIds::default());
}

#[test]
fn full_topic_forgets_the_oldest_arrivals_first() {
    let mut ids = RecordIds::default();
    apply(&mut ids, &change(0, 3, (1..=5).map(|at| id(at as u128, at)).collect()));
    let kept = |ids: &RecordIds| -> Vec<u128> {
        (1..=9).filter(|hash| ids.find(TOPIC, *hash, 0).is_some()).collect()
    };
    assert_eq!((kept(&ids), ids.forgotten_early()), (vec![3, 4, 5], 2));
    // A later change with an older arrival, such as of a moving partition, displaces none of them.
    apply(&mut ids, &change(0, 3, vec![id(9, 1)]));
    assert_eq!((kept(&ids), ids.forgotten_early()), (vec![3, 4, 5], 3));
    let topic = ids.topic(TOPIC).expect("it has ids");
    assert_eq!((topic.forgotten_to_ms(), topic.oldest_ms()), (Some(2), Some(3)));
    // Ids that leave the window do not count as displaced.
    apply(&mut ids, &change(5, 3, Vec::new()));
    assert_eq!((kept(&ids), ids.forgotten_early()), (vec![5], 3));
}

#[test]
fn window_that_ends_at_once_is_forgotten_in_bounded_steps() {
    let mut ids = RecordIds::default();
    let count = DEDUP_IDS_FORGOTTEN_PER_CHANGE as u64 + 100;
    let all = (0..count).map(|number| id(spread(number), 7)).collect();
    apply(&mut ids, &change(0, u64::MAX, all));
    apply(&mut ids, &change(8, u64::MAX, Vec::new()));
    assert_eq!(ids.len(), 100);
    apply(&mut ids, &change(8, u64::MAX, Vec::new()));
    assert_eq!(ids, RecordIds::default());
}

#[test]
fn id_takes_at_most_42_bytes_of_memory_and_all_are_found() {
    for count in [20_000_u64, 50_000, 100_000, 300_000] {
        let mut ids = RecordIds::default();
        for from in (0..count).step_by(10_000) {
            let some = (from..from + 10_000).map(|number| id(spread(number), 7)).collect();
            apply(&mut ids, &change(0, u64::MAX, some));
        }
        assert!((0..count).all(|number| ids.find(TOPIC, spread(number), 0).is_some()));
        assert!((count..2 * count).all(|number| ids.find(TOPIC, spread(number), 0).is_none()));
        let per_id = ids.bytes() as f64 / count as f64;
        assert!((36.0..44.0).contains(&per_id), "{per_id} of {count}");
    }
}

#[test]
fn ids_of_one_partition_are_listed_in_steps() {
    let mut ids = RecordIds::default();
    let of = |number: u64| KnownId { partition: (number % 3) as u32, ..id(spread(number), 7) };
    apply(&mut ids, &change(0, u64::MAX, (0..5_000).map(of).collect()));
    let topic = ids.topic(TOPIC).expect("it has ids");
    let (mut at, mut found) = (0, Vec::new());
    while at < topic.end() {
        let (some, next) = topic.partition_ids(PartitionId::new(TOPIC, 1), at, 1_000);
        found.extend(some);
        at = next;
    }
    assert!(
        found.iter().eq((0..5_000)
            .filter(|number| number % 3 == 1)
            .map(of)
            .collect::<Vec<_>>()
            .iter())
    );
}

/// The ids of a topic, as a list.
#[derive(Default)]
struct Model {
    kept: VecDeque<KnownId>,
    early: u64,
}

impl Model {
    fn find(&self, hash: IdHash, from_ms: i64) -> Option<KnownId> {
        let latest = self.kept.iter().rev().find(|known| known.hash == hash);
        latest.copied().filter(|known| known.at_ms >= from_ms)
    }

    fn apply(&mut self, change: &TopicIdsChange) {
        let TopicIdsChange { expire_before_ms: before, at_most, .. } = *change;
        while self.kept.pop_front_if(|known| known.at_ms < before).is_some() {}
        for known in &change.inherited {
            let oldest = self.kept.front().is_some_and(|oldest| known.at_ms < oldest.at_ms);
            if self.kept.len() as u64 >= at_most && oldest && known.at_ms >= before {
                self.early += 1;
            } else if self.find(known.hash, before).is_none() {
                self.kept.push_back(*known);
            }
        }
        while self.kept.len() as u64 > at_most {
            let forgotten = self.kept.pop_front().expect("there are some");
            self.early += u64::from(forgotten.at_ms >= before);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Times mostly ascend, with exceptions as for moving partitions. Hashes of few bits share one
    /// segment.
    #[test]
    fn ids_agree_with_a_model(
        changes in proptest::collection::vec(
            (0..20_i64, 0..30_i64, 1..200_u64, proptest::collection::vec((0..400_u64, 0..8_i64), 0..40)),
            1..60,
        ),
        is_spread: bool,
    ) {
        let (mut ids, mut model, mut now) = (RecordIds::default(), Model::default(), 30);
        for (later, window, at_most, new) in changes {
            now += later;
            let hash = |number: u64| if is_spread { spread(number) } else { number.into() };
            let inherited = new.iter().map(|(number, ago)| id(hash(*number), now - ago)).collect();
            let change = change(now - window, at_most, inherited);
            apply(&mut ids, &change);
            model.apply(&change.topics[0]);
            prop_assert_eq!((ids.len(), ids.forgotten_early()), (model.kept.len() as u64, model.early));
            for number in 0..400 {
                let hash = hash(number);
                prop_assert_eq!(ids.find(TOPIC, hash, now - window), model.find(hash, now - window));
            }
        }
    }
}
