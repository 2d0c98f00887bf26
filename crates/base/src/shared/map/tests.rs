use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Ascend(u16),
    Remove(u16),
    RemoveAll(u16, u16),
    Change(u16, u32),
    Copy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..600_u16, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        1 => (0..200_u16).prop_map(Step::Ascend),
        4 => (0..600_u16).prop_map(Step::Remove),
        1 => (0..600_u16, 0..300_u16).prop_map(|(from, count)| Step::RemoveAll(from, count)),
        2 => (0..600_u16, any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
        1 => Just(Step::Copy),
    ]
}

proptest! {
    #[test]
    fn shared_map_matches_btree_map_and_its_copies_do_not_change(
        steps in prop::collection::vec(step(), 1..120),
        from in 0..700_u16,
        to in 0..700_u16,
    ) {
        let (mut map, mut model) = (SharedMap::new(), BTreeMap::new());
        let mut copies = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    prop_assert_eq!(map.insert(key, value), model.insert(key, value));
                }
                Step::Ascend(count) => {
                    let first = model.last_key_value().map_or(0, |(key, _)| key + 1);
                    for key in first..first.saturating_add(count) {
                        prop_assert_eq!(*map.get_or_insert_with(key, || 7), 7);
                        model.insert(key, 7);
                    }
                }
                Step::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                Step::RemoveAll(from, count) => {
                    let gone = from..from + count;
                    map.retain(|key, _| !gone.contains(key));
                    model.retain(|key, _| !gone.contains(key));
                }
                Step::Change(key, value) => {
                    prop_assert_eq!(map.get_mut(&key).is_some(), model.contains_key(&key));
                    if let (Some(held), Some(known)) = (map.get_mut(&key), model.get_mut(&key)) {
                        (*held, *known) = (value, value);
                    }
                }
                Step::Copy => copies.push((map.clone(), model.clone())),
            }
            prop_assert_eq!(map.len(), model.len());
            let sound = map.chunks.iter().all(|(_, chunk)| {
                (1..=ROWS_PER_CHUNK).contains(&chunk.keys.len())
                    && chunk.keys.len() == chunk.values.len()
            });
            prop_assert!(sound);
        }
        copies.push((map, model));
        for (map, model) in copies {
            prop_assert!(map.iter().eq(&model));
            prop_assert!(model.iter().all(|(key, value)| map.get(key) == Some(value)));
            prop_assert!(map.range(from..).eq(model.range(from..)));
            prop_assert!(map.range(..=to).eq(model.range(..=to)));
            let after = (Bound::Excluded(from), Bound::Unbounded);
            prop_assert!(map.range(after).eq(model.range(after)));
            let tail = map.iter_from(|key, _| *key < from);
            prop_assert!(tail.eq(model.range(from..)));
            prop_assert_eq!(map.last_key_value(), model.last_key_value());
            if from <= to {
                prop_assert!(map.range(from..to).eq(model.range(from..to)));
            }
        }
    }
}

#[test]
fn a_change_after_a_copy_copies_one_chunk() {
    let mut map: SharedMap<u32, u32> = (0..100_000).map(|key| (key, key)).collect();
    assert_eq!(map.chunks.len(), 100_000_usize.div_ceil(ROWS_PER_CHUNK), "all are full");
    let copy = map.clone();
    *map.get_mut(&50_000).unwrap() = 0;
    assert_eq!((map.get(&50_000), copy.get(&50_000)), (Some(&0), Some(&50_000)));
    assert_eq!(map.chunks_not_in(&copy), 1);
}
