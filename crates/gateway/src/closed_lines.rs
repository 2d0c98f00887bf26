//! Limits the log lines about connections with a bad end. A client that keeps retrying, or a scanner, would fill the
//! log. Beyond a few lines a minute per address, and some more for all addresses, lines are counted instead.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::limits::CLOSED_LINES_KEPT_MAX;
use parking_lot::Mutex;
use world::Instant;

const PERIOD: Duration = Duration::from_secs(60);
/// Lines of one address and kind in a period.
const PER_ADDRESS: u32 = 5;
/// Lines of all addresses in a period.
const OF_ALL: u32 = 100;

#[derive(Debug, Default)]
pub(crate) struct ClosedLines(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    of: BTreeMap<(IpAddr, &'static str), Row>,
    all: Option<Row>,
    /// Lines suppressed since the last one that was written.
    suppressed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    since: Instant,
    written: u32,
}

impl Row {
    /// Counts one more line, unless the period's limit is reached.
    fn takes(row: Option<Self>, now: Instant, most: u32) -> Option<Self> {
        match row {
            Some(row) if now.duration_since(row.since) < PERIOD => {
                (row.written < most).then(|| Self { written: row.written + 1, ..row })
            }
            _ => Some(Self { since: now, written: 1 }),
        }
    }
}

impl ClosedLines {
    /// Decides about the next line. `Some`: it is written, with the number of lines suppressed before it. `None`: it
    /// is suppressed.
    pub(crate) fn next(&self, peer: IpAddr, kind: &'static str, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        let key = (peer.to_canonical(), kind);
        let own = Row::takes(lines.of.get(&key).copied(), now, PER_ADDRESS);
        let all = own.and_then(|_| Row::takes(lines.all, now, OF_ALL));
        let (Some(own), Some(all)) = (own, all) else {
            lines.suppressed += 1;
            return None;
        };
        if lines.of.len() >= CLOSED_LINES_KEPT_MAX && !lines.of.contains_key(&key) {
            lines.of.retain(|_, row| now.duration_since(row.since) < PERIOD);
        }
        // An address without a row of its own counts towards the common limit only.
        if lines.of.len() < CLOSED_LINES_KEPT_MAX || lines.of.contains_key(&key) {
            lines.of.insert(key, own);
        }
        lines.all = Some(all);
        Some(std::mem::take(&mut lines.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_one_address_beyond_the_limit_are_counted_until_the_next_minute() {
        let lines = ClosedLines::default();
        let next = |last| lines.next(address(last), "amqp", Instant::now());
        for _ in 0..PER_ADDRESS {
            assert_eq!(next(1), Some(0));
        }
        for _ in 0..1_000 {
            assert_eq!(next(1), None);
        }
        assert_eq!(next(2), Some(1_000), "another address has its own, and says what was left out");
        assert_eq!(next(1), None);
        tokio::time::sleep(PERIOD).await;
        assert_eq!(next(1), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn lines_of_many_addresses_are_limited_together() {
        let lines = ClosedLines::default();
        let written = (0..=255_u8)
            .flat_map(|last| [(last, "amqp"), (last, "kafka")])
            .filter(|(last, kind)| lines.next(address(*last), kind, Instant::now()).is_some());
        assert_eq!(written.count(), OF_ALL as usize);
    }
}
