//! The log, and its reader for the engine.

use super::*;

impl World {
    pub(super) fn append(&mut self, partition: usize, a: u16, b: u16) {
        let awaited = !self.paused && !self.consumers.is_empty();
        for number in 0..u64::from(a % 7) {
            let log = &mut self.logs[partition];
            let bits = (u64::from(a) << 16 | u64::from(b)).wrapping_mul(0x9E37_79B9 + number) >> 7;
            let pick = |shift: u32, of: u64| (bits >> shift) % of;
            let record = ScannedRecord {
                offset: log.len() as u64,
                bytes: 1 + pick(0, 50) as u32,
                value_bytes: pick(0, 50) as u32,
                timestamp: self.now_ms - pick(3, 40) as i64,
                key: (pick(6, 5) > 0).then(|| 1 + pick(9, 4)),
                priority: pick(12, 5) as u8,
                due_ms: match pick(15, 6) {
                    0 => self.now_ms + pick(18, 2_000) as i64,
                    _ => i64::MIN,
                },
                expires_ms: match pick(21, 8) {
                    0 => self.now_ms + pick(23, 3_000) as i64,
                    _ => i64::MAX,
                },
            };
            let record = Record::new((pick(26, 9) > 0).then_some(record));
            log.push(Record { awaited, ..record });
        }
        self.engine.extended(partition as u32, self.logs[partition].len() as u64);
    }

    /// Requests reads; completes those in flight except the last few.
    pub(super) fn read(&mut self, leave: usize, b: u16) {
        while let Some(want) = self.engine.wants() {
            let end = self.logs[want.partition as usize].len() as u64;
            assert!(want.from < want.up_to && want.up_to <= end, "{want:?} of {end}");
            self.reads.push_back(want);
            if self.reads.len() > 8 {
                break;
            }
        }
        while self.reads.len() > leave {
            let Some(want) = self.reads.pop_front() else { break };
            self.answer(want, b);
        }
    }

    pub(super) fn answer(&mut self, want: ReadRange, b: u16) {
        let log = &self.logs[want.partition as usize];
        // A reader may stop early, and may read beyond.
        let up_to = match b % 3 {
            0 => want.up_to,
            1 => (want.from + 1 + u64::from(b / 3 % 9)).min(log.len() as u64),
            _ => (want.up_to + u64::from(b / 3 % 9)).min(log.len() as u64),
        };
        let start = self.log_starts[want.partition as usize];
        let stored = log.iter().filter(|it| it.is_stored()).filter_map(|it| it.stored);
        let within = |it: &ScannedRecord| (want.from.max(start)..up_to).contains(&it.offset);
        let records: Vec<ScannedRecord> = stored.filter(within).collect();
        self.engine.scanned(want.partition, want.from, up_to, records, self.now_ms);
    }

    pub(super) fn read_all(&mut self) {
        for _ in 0..10_000 {
            self.read(0, 0);
            match self.engine.wants() {
                Some(want) => self.reads.push_back(want),
                None => return,
            }
        }
        panic!("the engine wants without end");
    }

    pub(super) fn fail_read(&mut self) {
        if let Some(want) = self.reads.pop_front() {
            self.engine.scan_failed(want.partition);
        }
    }

    pub(super) fn compact(&mut self, partition: usize, a: u16) {
        let log = &mut self.logs[partition];
        for record in log.iter_mut().skip(usize::from(a % 5)).step_by(4) {
            record.gone |= record.state == State::Idle;
        }
        self.compacted = true;
    }
}
