//! A share group: every record is accepted at least once, and none is delivered after a confirmed accept.

use std::collections::{BTreeMap, BTreeSet};

use crate::described;

#[derive(Clone, Debug, Default)]
pub struct History {
    /// Offsets of acknowledged records.
    pub produced: BTreeSet<i64>,
    pub deliveries: Vec<Delivery>,
}

/// Times are in milliseconds since the run began.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub offset: i64,
    /// Times of the fetch that returned the record: request and reply.
    pub asked: u64,
    pub at: u64,
    /// Time of the confirm of its accept.
    pub accepted: Option<u64>,
}

pub fn check(history: &History) -> Vec<String> {
    let mut accepted: BTreeMap<i64, u64> = BTreeMap::new();
    for Delivery { offset, accepted: at, .. } in &history.deliveries {
        if let Some(at) = at {
            let first = accepted.entry(*offset).or_insert(*at);
            *first = (*first).min(*at);
        }
    }
    let again = history.deliveries.iter().filter_map(|it| {
        let before = accepted.get(&it.offset).filter(|before| **before < it.asked)?;
        let Delivery { offset, at, .. } = it;
        Some(format!("offset {offset}, accepted at {before} ms, was delivered again at {at} ms"))
    });
    let delivered: BTreeSet<i64> = history.deliveries.iter().map(|it| it.offset).collect();
    let lost = history.produced.difference(&delivered);
    let lost = lost.map(|offset| format!("offset {offset} was never delivered")).collect();
    let mut all = described("share group, accept lost", again.collect());
    all.extend(described("share group, record lost", lost));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(offset: i64, asked: u64, at: u64, accepted: Option<u64>) -> Delivery {
        Delivery { offset, asked, at, accepted }
    }

    #[test]
    fn redelivery_before_the_confirmed_accept_is_allowed_and_after_it_is_found() {
        let mut history = History {
            produced: [0].into(),
            deliveries: vec![delivery(0, 1, 2, None), delivery(0, 3, 4, Some(6))],
        };
        history.deliveries.push(delivery(0, 5, 7, None));
        assert!(check(&history).is_empty(), "asked before the accept was confirmed");
        history.deliveries.push(delivery(0, 8, 9, None));
        assert!(check(&history)[0].contains("accepted at 6 ms, was delivered again at 9 ms"));
    }

    #[test]
    fn record_that_is_never_delivered_is_found() {
        let history =
            History { produced: [0, 1].into(), deliveries: vec![delivery(1, 0, 1, None)] };
        assert!(check(&history)[0].contains("offset 0 was never delivered"));
    }
}
