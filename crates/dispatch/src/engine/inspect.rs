//! Operators' queries and changes.

use base::Offset;
use thiserror::Error;

use super::Dispatch;
use crate::consumers::Pools;
use crate::partition::{Partition, ReadyRecords};
use crate::policy::Ordering;
use crate::record::{Delayed, LeaseView, RecordInfo, RecordState};
use crate::steps::{Step, StepKind};
use crate::wheel::{Entry, Kind, WheelSubject};

/// Records of a group by state. `depth` is the sum of the other counts of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Unsettled offsets between the floors and the ends.
    pub depth: u64,
    /// Not read yet, or ready.
    pub ready: u64,
    /// Waiting for an earlier record of their key.
    pub blocked: u64,
    pub leased: u64,
    pub delayed: u64,
    /// Dead letters that are not in the log yet, and records that a pending entry settles.
    pub dead: u64,
    pub consumers: u32,
    /// Bytes of leased records.
    pub leased_bytes: u64,
    /// Ready records that are loaded: a window.
    pub loaded: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RemoveRefused {
    #[error("record {partition}/{offset} is settled, or was never written")]
    Absent { partition: u32, offset: Offset },
    #[error("record {partition}/{offset} is leased, or about to be dead-lettered")]
    Busy { partition: u32, offset: Offset },
    /// The request applies only to delayed records.
    #[error("record {partition}/{offset} is not delayed")]
    NotDelayed { partition: u32, offset: Offset },
}

/// State of a record, as far as cheap checks determine it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheapState {
    Absent,
    Leased,
    Ending,
    Ready,
    Blocked,
    Delayed,
    /// Not read yet.
    Unread,
}

impl Dispatch {
    pub fn counters(&self) -> Counters {
        let (leased, blocked) = (self.leases.len() as u64, self.lanes.blocked() as u64);
        let dead = self.ending as u64;
        Counters {
            depth: self.depth,
            ready: self.depth - leased - blocked - dead - self.delayed,
            blocked,
            leased,
            delayed: self.delayed,
            dead,
            consumers: self.consumers.len() as u32,
            leased_bytes: self.leases.bytes(),
            loaded: self.loaded as u64,
        }
    }

    /// Bytes of the values of all waiting records, and the sum of the offsets up to which they are
    /// known. Everything is read if [`crate::Policy::measured`]. Bytes of records that were removed
    /// without being read (by an operator, by retention) are estimated by the mean of the others.
    pub fn waiting_bytes(&self) -> (u64, Offset) {
        let sum = |(bytes, known), it: &Partition| (bytes + it.waiting_bytes, known + it.scan_next);
        self.partitions.iter().fold((0, 0), sum)
    }

    /// Its partitions, ascending.
    pub fn partitions(&self) -> impl Iterator<Item = u32> + use<> {
        self.partitions.numbers()
    }

    /// The known end of each partition, in order.
    pub fn ends(&self) -> impl Iterator<Item = Offset> {
        self.partitions.iter().map(|partition| partition.end)
    }

    /// The sum of [`Dispatch::ends`].
    pub fn ends_sum(&self) -> Offset {
        self.ends
    }

    /// Whether the best record below `ends` is known: always, unless there are priorities and
    /// unread records. It does not wait for a backlog beyond [`crate::Bounds::read_first`].
    pub fn knows(&self, ends: &[Offset]) -> bool {
        let known = |(index, (&end, partition)): (u32, (&Offset, &Partition))| {
            let unread = end.saturating_sub(partition.scan_next);
            unread == 0 || unread > self.bounds.read_first || !self.may_read_on(index)
        };
        let mut all = self.partitions.numbers().zip(ends.iter().zip(self.partitions.iter()));
        !self.policy.ranks() || all.all(known)
    }

    /// Number of newly arriving records that consumers would get at once, at most `enough`. 0 in
    /// ordered groups: a record may have to wait for another one.
    pub fn spare_credit(&self, pools: &Pools, enough: u64) -> u64 {
        match self.policy.ordering {
            Ordering::Free if self.is_awaited() => self.consumers.spare(pools, enough),
            _ => 0,
        }
    }

    pub fn floor(&self, partition: u32) -> Option<Offset> {
        self.partitions.get(partition).map(|found| found.floor)
    }

    /// The oldest unsettled record of a partition (or a hole before it), with its timestamp if it
    /// is loaded.
    pub fn oldest(&self, partition: u32) -> Option<(Offset, Option<i64>)> {
        let found = self.partitions.get(partition)?;
        let floor = (found.floor < found.end).then_some(found.floor)?;
        let leased = self.leases.find(partition, floor);
        let leased = leased.map(|slot| self.leases.get(slot).meta.timestamp);
        Some((floor, leased.or_else(|| found.ready.timestamp(floor))))
    }

    /// Unsettled records of a partition from `from`, without changing anything. Unread records
    /// count as ready; they may turn out to be holes.
    pub fn peek(&self, partition: u32, from: Offset, records_max: usize) -> Vec<RecordInfo> {
        let Some(found) = self.partitions.get(partition) else { return Vec::new() };
        let blocked = self.lanes.blocked_of(partition);
        let mut peeked = Vec::new();
        let mut delayed = Vec::new();
        let mut offset = from.max(found.floor);
        while offset < found.end && peeked.len() < records_max {
            if let Some(end) = found.settled.end_of(offset) {
                offset = end;
                continue;
            }
            let is = self.whereabouts(partition, found, offset, &blocked);
            if is == CheapState::Delayed {
                delayed.push(offset);
            }
            let state = self.state(partition, found, offset, is);
            let attempts = found.deliveries(offset);
            peeked.push(RecordInfo { partition, offset, state, attempts });
            offset += 1;
        }
        self.set_due_times(partition, found, &delayed, &mut peeked);
        peeked
    }

    /// State of a record, and the record that blocks it, without changing anything. `None`:
    /// settled, or not there yet.
    pub fn standing(&self, partition: u32, offset: Offset) -> Option<(RecordInfo, Option<Offset>)> {
        let found = self.peek(partition, offset, 1).into_iter().next();
        let found = found.filter(|found| found.offset == offset)?;
        let behind = match found.state {
            RecordState::Blocked => self.lanes.holder_before(partition, offset),
            _ => None,
        };
        Some((found, behind))
    }

    fn whereabouts(
        &self,
        partition: u32,
        found: &Partition,
        offset: Offset,
        blocked: &[Offset],
    ) -> CheapState {
        if offset >= found.end || found.is_settled(offset) {
            CheapState::Absent
        } else if self.leases.find(partition, offset).is_some() {
            CheapState::Leased
        } else if found.ending.contains_key(&offset) {
            CheapState::Ending
        } else if offset >= found.scan_next {
            CheapState::Unread
        } else if blocked.binary_search(&offset).is_ok() {
            CheapState::Blocked
        } else if found.ready.contains(offset) {
            CheapState::Ready
        } else {
            CheapState::Delayed
        }
    }

    fn state(
        &self,
        partition: u32,
        found: &Partition,
        offset: Offset,
        is: CheapState,
    ) -> RecordState {
        match is {
            CheapState::Leased => match self.leases.find(partition, offset) {
                Some(slot) => {
                    let lease = self.leases.get(slot);
                    RecordState::Leased {
                        consumer: lease.consumer,
                        session: lease.session,
                        token: lease.token,
                        expires_ms: lease.deadline_ms,
                    }
                }
                None => RecordState::Ready,
            },
            CheapState::Ending => match found.ending.get(&offset).map(|ending| ending.reason) {
                Some(Some(reason)) => RecordState::Dead { reason },
                Some(None) => RecordState::Settling,
                None => RecordState::Ready,
            },
            CheapState::Blocked => RecordState::Blocked,
            // The caller determines the due times of all of them at once.
            CheapState::Delayed => RecordState::Delayed { due_ms: 0 },
            CheapState::Ready | CheapState::Unread | CheapState::Absent => RecordState::Ready,
        }
    }

    /// Sets the due times in one pass over the wheel, which has no index.
    fn set_due_times(
        &self,
        partition: u32,
        found: &Partition,
        delayed: &[Offset],
        peeked: &mut [RecordInfo],
    ) {
        if delayed.is_empty() {
            return;
        }
        let place = WheelSubject::record(partition, found.epoch).pack();
        for entry in self.wheel.entries().filter(|entry| entry.place == place) {
            if delayed.binary_search(&entry.what()).is_ok()
                && let Ok(at) = peeked.binary_search_by_key(&entry.what(), |peeked| peeked.offset)
            {
                peeked[at].state = RecordState::Delayed { due_ms: entry.due_ms() };
            }
        }
    }

    /// Leases by partition and offset, after the given one.
    pub fn leases(&self, after: Option<(u32, Offset)>, records_max: usize) -> Vec<LeaseView> {
        let all = self.leases.iter();
        let mut places: Vec<_> = all
            .map(|(slot, lease)| ((lease.partition, lease.offset), slot))
            .filter(|(place, _)| after.is_none_or(|after| *place > after))
            .collect();
        places.sort_unstable();
        let first = places.into_iter().take(records_max);
        first
            .map(|(_, slot)| {
                let lease = self.leases.get(slot);
                LeaseView {
                    partition: lease.partition,
                    offset: lease.offset,
                    token: lease.token,
                    session: lease.session,
                    consumer: lease.consumer,
                    attempt: lease.attempt,
                    bytes: lease.meta.bytes,
                    timestamp: lease.meta.timestamp,
                    expires_ms: lease.deadline_ms,
                }
            })
            .collect()
    }

    /// Delayed records in the order of due time, after the given one.
    pub fn delayed(&self, after: Option<Delayed>, records_max: usize) -> Vec<Delayed> {
        self.wheel.first_by(records_max, after.as_ref(), |entry: Entry| {
            let WheelSubject { partition, kind } = WheelSubject::unpack(entry.place);
            let is_record = matches!(kind, Kind::Record { .. }) && self.is_live(entry);
            let (due_ms, offset) = (entry.due_ms(), entry.what());
            is_record.then_some((due_ms, Delayed { due_ms, partition, offset }))
        })
    }

    /// Settles a delayed record.
    pub fn cancel_delayed(&mut self, partition: u32, offset: Offset) -> Result<(), RemoveRefused> {
        match self.whereabouts_of(partition, offset) {
            CheapState::Absent => Err(RemoveRefused::Absent { partition, offset }),
            CheapState::Delayed => self.remove(partition, offset),
            _ => Err(RemoveRefused::NotDelayed { partition, offset }),
        }
    }

    fn whereabouts_of(&self, partition: u32, offset: Offset) -> CheapState {
        let Some(found) = self.partitions.get(partition) else {
            return CheapState::Absent;
        };
        self.whereabouts(partition, found, offset, &self.lanes.blocked_of(partition))
    }

    /// Settles one record in any state but leased.
    pub fn remove(&mut self, partition: u32, offset: Offset) -> Result<(), RemoveRefused> {
        match self.whereabouts_of(partition, offset) {
            CheapState::Absent => return Err(RemoveRefused::Absent { partition, offset }),
            CheapState::Leased | CheapState::Ending => {
                return Err(RemoveRefused::Busy { partition, offset });
            }
            CheapState::Unread => {}
            CheapState::Blocked => {
                self.lanes.remove_blocked(partition, offset);
            }
            CheapState::Ready => {
                self.with_ready(partition, |ready| ready.remove(offset));
            }
            CheapState::Delayed => {
                self.delayed -= 1;
                self.partitions[partition].delayed -= 1;
            }
        }
        self.steps.add(Step::of(StepKind::Removed, partition, offset));
        self.settle_range(partition, offset, offset + 1);
        self.subtract_waiting_estimate(partition, 1);
        self.free_range(partition, offset, offset + 1);
        self.refresh_head(partition);
        self.list(partition);
        self.sweep_wheel();
        Ok(())
    }

    /// Settles all records that are neither leased nor becoming dead letters. Returns their number.
    pub fn purge(&mut self) -> u64 {
        let all = self.leases.iter();
        let mut busy: Vec<(u32, Offset)> =
            all.map(|(_, lease)| (lease.partition, lease.offset)).collect();
        for (index, found) in self.partitions.numbers().zip(self.partitions.iter()) {
            busy.extend(found.ending.keys().map(|&offset| (index, offset)));
        }
        busy.sort_unstable();
        let mut purged = 0;
        let mut busy = &busy[..];
        for index in self.partitions.numbers() {
            let of_partition = busy.partition_point(|&(partition, _)| partition == index);
            purged += self.purge_partition(index, &busy[..of_partition]);
            busy = &busy[of_partition..];
        }
        self.sweep_wheel();
        purged
    }

    fn purge_partition(&mut self, partition: u32, busy: &[(u32, Offset)]) -> u64 {
        self.with_ready(partition, ReadyRecords::clear);
        let found = &mut self.partitions[partition];
        // Their entries in the wheel are settled, and so skipped.
        self.delayed -= std::mem::take(&mut found.delayed);
        found.waiting_bytes = 0;
        found.scan_next = found.end;
        self.claims.remove_range(partition, 0, Offset::MAX);
        let (floor, end) = (found.floor, found.end);
        self.lanes.drop_blocked_below(partition, end);
        let mut purged = 0;
        let mut at = floor;
        for next in busy.iter().map(|&(_, offset)| offset).chain([end]) {
            for (first, end) in self.partitions[partition].settled.gaps(at, next) {
                let count = u32::try_from(end - first).unwrap_or(u32::MAX);
                self.steps.add(Step { count, ..Step::of(StepKind::Removed, partition, first) });
            }
            purged += self.settle_range(partition, at, next);
            self.free_range(partition, at, next);
            at = next + 1;
        }
        self.refresh_head(partition);
        purged
    }
}
