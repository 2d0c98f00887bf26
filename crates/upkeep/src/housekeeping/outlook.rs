//! When a partition is due for compaction, by its batches: now, or by a date or a number of appended bytes.

use std::ops::Range;

use base::Offset;
use journal::Address;

/// A topic's settings for when to compact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Batches younger than this are not compacted (`min.compaction.lag.ms`).
    pub(crate) min_lag_ms: i64,
    /// Dirty records older than this make a pass due at any ratio.
    pub(crate) max_lag_ms: i64,
    /// The batches of what would be Kafka's active segment are not compacted: those younger than this (`segment.ms`)
    /// among the newest bytes of this number (`segment.bytes`).
    pub(crate) segment_ms: i64,
    pub(crate) active_bytes: u64,
    pub(crate) dirty_ratio_min: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CompactionOutlook {
    /// Time from which a pass is due without appends, ms since the epoch; `i64::MAX` for never.
    pub(crate) date_ms: i64,
    /// Size of the partition in bytes below which appends make no pass due earlier.
    pub(crate) to_bytes: u64,
}

/// Time at which more than `ms` have passed since `at_ms`.
fn later(at_ms: i64, ms: i64) -> i64 {
    at_ms.saturating_add(ms).saturating_add(1)
}

impl Rule {
    /// Returns the end of the part that is old enough; `None` if there is none.
    pub(crate) fn eligible_up_to(&self, batches: &[Address], now_ms: i64) -> Option<Offset> {
        let before_ms = now_ms.saturating_sub(self.min_lag_ms);
        let active_after_ms = now_ms.saturating_sub(self.segment_ms);
        let mut active = 0;
        let active_from = batches.iter().rposition(|batch| {
            active += u64::from(batch.len);
            active > self.active_bytes || batch.max_timestamp < active_after_ms
        });
        let closed = active_from.map_or(0, |last_closed| last_closed + 1);
        let old = batches[..closed].iter().take_while(|batch| batch.max_timestamp < before_ms);
        old.last().map(Address::next_offset)
    }

    /// Whether these offsets, all of them old enough, are worth a pass; those before them are compacted.
    pub(crate) fn is_due(&self, batches: &[Address], dirty: Range<Offset>, now_ms: i64) -> bool {
        let Range { start: compacted_to, end: up_to } = dirty;
        let overdue_before_ms = now_ms.saturating_sub(self.max_lag_ms);
        let (mut clean, mut dirty) = (0_u64, 0_u64);
        let mut overdue = false;
        for batch in batches.iter().filter(|batch| batch.base_offset < up_to) {
            if batch.base_offset < compacted_to {
                clean += u64::from(batch.len);
            } else {
                dirty += u64::from(batch.len);
                overdue |= batch.max_timestamp < overdue_before_ms;
            }
        }
        dirty > 0 && (overdue || self.is_worth(clean, dirty))
    }

    fn is_worth(&self, clean: u64, dirty: u64) -> bool {
        dirty as f64 >= self.dirty_ratio_min * (clean + dirty) as f64
    }

    /// Returns when a pass will be due. Exact without appends; for appends the caller compares
    /// [`CompactionOutlook::to_bytes`], and the date by which a batch older than all of these closes the segment.
    pub(crate) fn outlook(&self, batches: &[Address], compacted_to: Offset) -> CompactionOutlook {
        let old_enough = self.old_enough(batches);
        let all_bytes: u64 = batches.iter().map(|batch| u64::from(batch.len)).sum();
        let mut date_ms = i64::MAX;
        // Upper bound of the growth before the next list.
        let mut grows = all_bytes / 8 + 1;
        // Number of appended bytes after which a batch that begins here is not among the newest any more.
        let closes = |begin: u64| match (self.active_bytes + 1).saturating_sub(all_bytes - begin) {
            0 => u64::MAX,
            bytes => bytes,
        };
        let (mut end, mut clean, mut dirty) = (0_u64, 0_u64, 0_u64);
        let mut worth = false;
        for (batch, old_enough_ms) in batches.iter().zip(old_enough) {
            let begin = end;
            end += u64::from(batch.len);
            if batch.base_offset < compacted_to {
                clean += u64::from(batch.len);
                continue;
            }
            let first = dirty == 0;
            dirty += u64::from(batch.len);
            let overdue_ms = later(batch.max_timestamp, self.max_lag_ms);
            date_ms = date_ms.min(old_enough_ms.max(overdue_ms));
            let becomes_worth = !worth && self.is_worth(clean, dirty);
            worth |= becomes_worth;
            if worth {
                date_ms = date_ms.min(old_enough_ms);
            }
            if becomes_worth || (first && self.max_lag_ms < i64::MAX) {
                grows = grows.min(closes(begin));
            }
        }
        if !worth {
            let needed = self.dirty_ratio_min * clean as f64 / (1.0 - self.dirty_ratio_min);
            // A number that overflows, where everything has to be dirty, is as good as never.
            grows = grows.min((needed as u64).saturating_sub(dirty).max(1));
        }
        CompactionOutlook { date_ms, to_bytes: all_bytes.saturating_add(grows) }
    }

    /// Times from which each batch is old enough, with all before it.
    fn old_enough(&self, batches: &[Address]) -> Vec<i64> {
        let mut from: Vec<i64> = Vec::with_capacity(batches.len());
        let (mut newest, mut oldest_ms) = (0_u64, i64::MAX);
        for batch in batches.iter().rev() {
            newest += u64::from(batch.len);
            oldest_ms = oldest_ms.min(batch.max_timestamp);
            let closed = newest > self.active_bytes;
            from.push(if closed { i64::MIN } else { later(oldest_ms, self.segment_ms) });
        }
        from.reverse();
        let mut rested_ms = i64::MIN;
        for (from, batch) in from.iter_mut().zip(batches) {
            rested_ms = rested_ms.max(later(batch.max_timestamp, self.min_lag_ms));
            *from = (*from).max(rested_ms);
        }
        from
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batches(of: &[(u32, i64)]) -> Vec<Address> {
        let batch = |(index, &(len, max_timestamp)): (usize, &(u32, i64))| Address {
            base_offset: index as u64,
            span: 1,
            segment: 1,
            position: index as u32 * 1_000,
            len,
            max_timestamp,
            shared: false,
        };
        of.iter().enumerate().map(batch).collect()
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let lags = (0..50_i64, prop_oneof![Just(i64::MAX), 0..200_i64], 0..100_i64);
        (lags, 0..400_u64, 0.0..1.0_f64).prop_map(|(lags, active_bytes, dirty_ratio_min)| Rule {
            min_lag_ms: lags.0,
            max_lag_ms: lags.1,
            segment_ms: lags.2,
            active_bytes,
            dirty_ratio_min,
        })
    }

    fn stored() -> impl Strategy<Value = Vec<(u32, i64)>> {
        prop::collection::vec((1..100_u32, 0..200_i64), 1..12)
    }

    fn is_due(rule: Rule, batches: &[Address], compacted_to: Offset, now_ms: i64) -> bool {
        let up_to = rule.eligible_up_to(batches, now_ms);
        up_to.is_some_and(|up_to| rule.is_due(batches, compacted_to..up_to, now_ms))
    }

    proptest! {
        #[test]
        fn pass_is_due_from_the_date_on_and_not_before(
            rule in rule(), stored in stored(), compacted_to in 0..12_u64,
        ) {
            let batches = batches(&stored);
            let CompactionOutlook { date_ms, .. } = rule.outlook(&batches, compacted_to);
            for now_ms in -10..600 {
                let due = is_due(rule, &batches, compacted_to, now_ms);
                prop_assert_eq!(due, now_ms >= date_ms, "at {} of {}", now_ms, date_ms);
            }
        }

        #[test]
        fn appends_below_the_byte_limit_make_no_pass_due_before_the_date(
            rule in rule(), stored in stored(), more in stored(), compacted_to in 0..12_u64,
        ) {
            // Excludes the case that bytes of a later batch close an older dirty one.
            let rule = Rule { max_lag_ms: i64::MAX, ..rule };
            let outlook = rule.outlook(&batches(&stored), compacted_to);
            let all: Vec<_> = stored.iter().chain(&more).copied().collect();
            let (mut bytes, mut date_ms) = (0_u64, outlook.date_ms);
            for count in stored.len() + 1..=all.len() {
                bytes = all[..count].iter().map(|(len, _)| u64::from(*len)).sum();
                if bytes >= outlook.to_bytes {
                    break;
                }
                date_ms = date_ms.min(later(all[count - 1].1, rule.segment_ms));
                let stored = batches(&all[..count]);
                let due = (0..600).find(|now_ms| is_due(rule, &stored, compacted_to, *now_ms));
                prop_assert!(due.is_none_or(|due| due >= date_ms), "{:?} before {}", due, date_ms);
            }
            prop_assert!(bytes > 0);
        }
    }
}
