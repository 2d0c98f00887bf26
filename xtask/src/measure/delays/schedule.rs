//! Due times of the records, and storing them.

use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use client::records::NewRecord;

use super::{DelaysOptions, QUEUE};
use crate::failure::{Failure, Outcome};
use crate::measure::load::Load;
use crate::random::Random;
use crate::records::now_ms;
use crate::server::Server;

const DELIVER_AT: &str = "postroad.deliver-at";

/// Due times as a function of the record's number, so that none has to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) first_ms: i64,
    pub(super) spread_ms: u64,
}

impl Schedule {
    pub(super) fn due_ms(&self, number: u64) -> i64 {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9E37_79B9));
        self.first_ms + random.between(0, self.spread_ms) as i64
    }

    pub(super) fn last_ms(&self) -> i64 {
        self.first_ms + self.spread_ms as i64
    }
}

fn value(number: u64) -> Bytes {
    const FILLER: &[u8] = &[b'.'; 56];
    let mut value = BytesMut::with_capacity(8 + FILLER.len());
    value.put_u64(number);
    value.put_slice(FILLER);
    value.freeze()
}

/// Stores all records. Returns the number per second.
pub(super) fn load(options: &DelaysOptions, server: &Server, schedule: &Schedule) -> Outcome<f64> {
    let mut load = Load::new(server.address, QUEUE, options.partitions)?;
    let begun = Instant::now();
    let mut number = 0;
    load.fill(options.records, options.batch, || {
        let due_ms = schedule.due_ms(number);
        number += 1;
        NewRecord {
            key: None,
            value: value(number - 1),
            headers: vec![(DELIVER_AT, due_ms.to_string())],
        }
    })?;
    if now_ms() > schedule.first_ms {
        let late = (now_ms() - schedule.first_ms) / 1000;
        return Err(Failure::new(format!(
            "the first records were due {late} s before the last ones were stored"
        ))
        .remedy("give it more time to store them, with --lead"));
    }
    Ok(options.records as f64 / begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_within_the_spread_and_repeatable() {
        let schedule = Schedule { seed: 3, first_ms: 1_000, spread_ms: 50 };
        let dues: Vec<i64> = (0..1_000).map(|number| schedule.due_ms(number)).collect();
        assert!(dues.iter().all(|due| (1_000..=schedule.last_ms()).contains(due)));
        assert_eq!(dues[7], schedule.due_ms(7));
        assert!(dues.iter().any(|&due| due < 1_010) && dues.iter().any(|&due| due > 1_040));
    }
}
