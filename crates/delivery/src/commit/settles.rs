//! Conversion of settles to machine commands.

use base::{LeaseGroupId, Offset};
use machine::GroupSettle;

/// The settles of these records (partition and offset), as ranges of each partition.
pub(crate) fn settles_of(group: LeaseGroupId, mut records: Vec<(u32, Offset)>) -> Vec<GroupSettle> {
    records.sort_unstable();
    let mut settles: Vec<GroupSettle> = Vec::new();
    for (partition, offset) in records {
        if settles.last().is_none_or(|last| last.partition != partition) {
            let (settled, attempts) = (Vec::new(), Vec::new());
            settles.push(GroupSettle { group, partition, settled, attempts });
        }
        let Some(last) = settles.last_mut() else { continue };
        match last.settled.last_mut() {
            Some((first, count)) if *first + u64::from(*count) == offset => *count += 1,
            _ => last.settled.push((offset, 1)),
        }
    }
    settles
}

/// The attempt counts of these settles, which stay true if the records are not settled.
pub(crate) fn attempts_of(settles: &[GroupSettle]) -> Vec<GroupSettle> {
    let counted = settles.iter().filter(|settle| !settle.attempts.is_empty());
    counted.map(|settle| GroupSettle { settled: Vec::new(), ..settle.clone() }).collect()
}

/// Splits settles into pieces of about `bytes_max` bytes. Each piece is valid alone: a missing settle is as if
/// it came later.
pub(crate) fn split(settles: Vec<GroupSettle>, bytes_max: usize) -> Vec<Vec<GroupSettle>> {
    let ranges_max = bytes_max / size_of::<(Offset, u32)>();
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for mut settle in settles {
        loop {
            let GroupSettle { group, partition, .. } = settle;
            let settled = take_front(&mut settle.settled, ranges_max);
            let attempts = take_front(&mut settle.attempts, ranges_max - settled.len());
            let part = GroupSettle { group, partition, settled, attempts };
            if bytes + part.weight() > bytes_max && !piece.is_empty() {
                pieces.push(std::mem::take(&mut piece));
                bytes = 0;
            }
            bytes += part.weight();
            piece.push(part);
            if settle.settled.is_empty() && settle.attempts.is_empty() {
                break;
            }
        }
    }
    pieces.push(piece);
    pieces
}

/// Usually all of it.
fn take_front<T>(all: &mut Vec<T>, count: usize) -> Vec<T> {
    let rest = all.split_off(count.min(all.len()));
    std::mem::replace(all, rest)
}

#[cfg(test)]
mod tests {
    use crate::limits::SETTLE_COMMAND_BYTES_MAX;

    use super::*;

    fn settle(partition: u32, ranges: u64) -> GroupSettle {
        let settled = (0..ranges).map(|number| (number * 2, 1)).collect();
        let attempts = vec![(1, 1), (3, 2)];
        GroupSettle { group: LeaseGroupId(1), partition, settled, attempts }
    }

    #[test]
    fn a_million_ranges_are_split_into_commands_of_bounded_size() {
        const BYTES_MAX: usize = SETTLE_COMMAND_BYTES_MAX;
        let all = vec![settle(0, 3), settle(1, 1_000_000), settle(2, 5)];
        let pieces = split(all.clone(), BYTES_MAX);
        assert!(pieces.len() > 8_000_000 / BYTES_MAX);
        let weight =
            |piece: &Vec<GroupSettle>| piece.iter().map(GroupSettle::weight).sum::<usize>();
        assert!(pieces.iter().all(|piece| !piece.is_empty() && weight(piece) <= BYTES_MAX + 64));
        for expected in all {
            let of_partition =
                pieces.iter().flatten().filter(|it| it.partition == expected.partition);
            let settled: Vec<_> = of_partition.clone().flat_map(|it| it.settled.clone()).collect();
            let attempts: Vec<_> = of_partition.flat_map(|it| it.attempts.clone()).collect();
            assert_eq!((settled, attempts), (expected.settled, expected.attempts));
        }
    }

    #[test]
    fn settles_within_the_limit_stay_one_command() {
        let all = vec![settle(0, 3), settle(1, 10)];
        assert_eq!(split(all.clone(), SETTLE_COMMAND_BYTES_MAX), [all]);
    }

    #[test]
    fn records_become_ranges_of_their_partitions() {
        let settles = settles_of(LeaseGroupId(1), vec![(2, 7), (0, 5), (2, 9), (2, 8), (0, 3)]);
        let ranges: Vec<_> = settles.into_iter().map(|it| (it.partition, it.settled)).collect();
        assert_eq!(ranges, [(0, vec![(3, 1), (5, 1)]), (2, vec![(7, 3)])]);
    }
}
