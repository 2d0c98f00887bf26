use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Five blocks, so that ranges begin, end and continue at each position of a block.
const END: Offset = 320;

fn as_set(ranges: &OffsetRanges) -> BTreeSet<Offset> {
    ranges.iter().flat_map(|(from, to)| from..to).collect()
}

/// Half of the time a whole number of blocks.
fn place() -> impl Strategy<Value = Offset> {
    prop_oneof![0..END, (0..END / 64).prop_map(|block| block * 64)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn offset_ranges_match_a_set_in_the_fewest_ranges(
        steps in prop::collection::vec((0..8_u8, place(), place()), 1..60),
    ) {
        let (mut ranges, mut model) = (OffsetRanges::new(), BTreeSet::new());
        for (step, one, other) in steps {
            let (from, to) = (one.min(other), one.max(other));
            let held = |model: &BTreeSet<Offset>| {
                model.range(from..to).copied().collect::<BTreeSet<_>>()
            };
            match step {
                0 => {
                    let reached = ranges.join_below(from);
                    let next = (from..).find(|at| !model.contains(at)).unwrap();
                    prop_assert_eq!(reached, next);
                    model.retain(|at| *at > reached);
                }
                1 => {
                    let kept = ranges.around(from.saturating_sub(1)).filter(|it| it.1 > from);
                    ranges.forget_below(from);
                    let least = kept.map_or(from, |(begin, _)| begin);
                    model.retain(|at| *at >= least);
                }
                2 => {
                    let first = ranges.pop_first();
                    prop_assert_eq!(first.map(|it| it.0), model.first().copied());
                    model.retain(|at| first.is_none_or(|(_, end)| *at >= end));
                }
                3 | 4 => {
                    let inside = held(&model);
                    prop_assert_eq!(ranges.remove(from, to), inside.len() as u64);
                    model.retain(|at| !inside.contains(at));
                }
                _ => {
                    let missing: BTreeSet<_> =
                        (from..to).filter(|at| !model.contains(at)).collect();
                    let gaps: BTreeSet<_> =
                        ranges.gaps(from, to).into_iter().flat_map(|(a, b)| a..b).collect();
                    prop_assert_eq!(&gaps, &missing);
                    prop_assert_eq!(ranges.insert(from, to), missing.len() as u64);
                    model.extend(from..to);
                }
            }
            let listed: Vec<_> = ranges.iter().collect();
            prop_assert!(listed.iter().all(|(from, to)| from < to));
            prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert_eq!(&as_set(&ranges), &model);
            prop_assert_eq!(ranges.offsets(), model.len() as u64);
            prop_assert_eq!(ranges.is_empty(), model.is_empty());
            // Equal sets are equal whatever their history.
            prop_assert_eq!(&listed.iter().copied().collect::<OffsetRanges>(), &ranges);
            for at in 0..END + 70 {
                let around = ranges.around(at);
                prop_assert_eq!(around, listed.iter().copied().find(|it| it.0 <= at && at < it.1));
                prop_assert_eq!(ranges.contains(at), around.is_some());
                prop_assert_eq!(ranges.end_of(at), around.map(|it| it.1));
                let first = listed.iter().find(|it| it.0 >= at).map(|it| it.0);
                prop_assert_eq!(ranges.next_begin(at), first);
            }
            let within: BTreeSet<_> =
                ranges.within(from, to).flat_map(|(a, b)| a..b).collect();
            prop_assert_eq!(within, held(&model));
            let touching: OffsetRanges =
                listed.iter().copied().filter(|it| it.0 < to && it.1 > from).collect();
            if from < to {
                prop_assert_eq!(ranges.touching(from, to), touching);
            }
        }
    }
}

#[test]
fn ranges_near_the_first_are_joined_with_it_up_to_a_span() {
    let ranges: OffsetRanges = [(10, 12), (15, 16), (90, 300), (600, 601)].into_iter().collect();
    assert_eq!(ranges.first_near(0, 999), Some((10, 12)));
    assert_eq!(ranges.first_near(3, 999), Some((10, 16)));
    assert_eq!(ranges.first_near(80, 999), Some((10, 300)));
    assert_eq!(ranges.first_near(80, 100), Some((10, 110)));
    assert_eq!(ranges.first_near(999, 999), Some((10, 601)));
    assert_eq!(OffsetRanges::new().first_near(9, 9), None);
}

#[test]
fn set_holds_offsets_up_to_the_maximum() {
    let mut ranges = OffsetRanges::new();
    assert_eq!(ranges.insert(5, Offset::MAX), Offset::MAX - 5);
    assert_eq!(ranges.around(1 << 40), Some((5, Offset::MAX)));
    assert_eq!(ranges.remove(Offset::MAX - 2, Offset::MAX), 2);
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [(5, Offset::MAX - 2)]);
    assert!(ranges.cells() < 4);
}

#[test]
fn scattered_offsets_take_a_cell_per_block_and_a_row_takes_one() {
    let every_other: OffsetRanges = (0..6_400).map(|at| (at * 2, at * 2 + 1)).collect();
    assert_eq!((every_other.len(), every_other.cells()), (6_400, 200));
    let row: OffsetRanges = [(64, 6_400), (6_400, 64_000)].into_iter().collect();
    assert_eq!((row.len(), row.cells()), (1, 1));
}
