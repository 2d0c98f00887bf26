//! The order of ready records: a record's place, the lanes of ordered groups, and the heads of
//! partitions, the best of which is next.

use base::Offset;

use super::Dispatch;
use crate::partition::{FirstReady, Head, ReadyRecords, SortKey};
use crate::policy::{Ordering, Policy};
use crate::record::Meta;
use crate::wheel::{Entry, WheelSubject};

impl Dispatch {
    /// The ordering changed: rebuilds lanes and holders from the leases.
    pub(super) fn rebuild_order(&mut self) {
        let blocked = self.lanes.dissolve();
        for partition in self.partitions.iter_mut().filter(|it| it.ready.holder.is_some()) {
            partition.ready.holder = None;
        }
        let all = self.leases.iter();
        let mut leased: Vec<_> =
            all.map(|(_, it)| (it.partition, it.offset, it.meta.key)).collect();
        leased.sort_unstable();
        for (partition, offset, key) in leased {
            self.hold(partition, offset, key);
        }
        for (partition, offset, meta) in blocked {
            self.make_ready(partition, offset, meta);
        }
    }

    pub(super) fn rearrange(&mut self) {
        let (window, now_ms) = (self.bounds.loaded_per_partition * 2, self.now_ms);
        let policy = self.policy.clone();
        for partition in self.partitions.numbers() {
            if self.partitions[partition].ready.is_empty() {
                continue;
            }
            self.with_ready(partition, |ready| {
                ready.rearrange(window, |meta, since_ms| {
                    sort_key(&policy, meta, since_ms.unwrap_or(meta.timestamp.min(now_ms)))
                });
            });
        }
    }

    /// The record holds its key or partition: no other record of it may be delivered.
    pub(super) fn hold(&mut self, partition: u32, offset: Offset, key: u64) {
        match self.policy.ordering {
            Ordering::Free => {}
            Ordering::Key if key == 0 => {}
            Ordering::Key => self.lanes.hold(partition, key, offset),
            Ordering::Partition => {
                let holder = *self.partitions[partition].ready.holder.get_or_insert(offset);
                if holder != offset {
                    self.lanes.add_further(partition, 0, offset);
                }
            }
        }
    }

    /// The record no longer holds its key or partition: the next one may be delivered.
    pub(super) fn free(&mut self, partition: u32, offset: Offset, key: u64) {
        match self.policy.ordering {
            Ordering::Free => {}
            Ordering::Key if key == 0 => {}
            Ordering::Key => {
                if let Some((next, meta)) = self.lanes.release(partition, key, offset) {
                    self.make_ready(partition, next, meta);
                }
            }
            Ordering::Partition => {
                if self.partitions[partition].ready.holder == Some(offset) {
                    let next = self.lanes.next_further(partition, 0);
                    self.partitions[partition].ready.holder = next;
                    self.refresh_head(partition);
                    if self.partitions[partition].ready.holder_to_look_up().is_some() {
                        self.list(partition);
                    }
                } else {
                    self.lanes.remove_further(partition, 0, offset);
                }
            }
        }
    }

    /// As [`Dispatch::free`], for records with unknown keys.
    pub(super) fn free_range(&mut self, partition: u32, first: Offset, end: Offset) {
        let gone = |offset: &Offset| (first..end).contains(offset);
        self.lanes.forget_further(partition, first, end);
        match self.policy.ordering {
            Ordering::Free => {}
            Ordering::Key => {
                for (holder, key) in self.lanes.holders(partition) {
                    if gone(&holder) {
                        self.free(partition, holder, key);
                    }
                }
            }
            Ordering::Partition => {
                let holder = self.partitions[partition].ready.holder.filter(gone);
                if let Some(holder) = holder {
                    self.free(partition, holder, 0);
                }
            }
        }
    }

    /// Changes a partition's ready records, and updates the sums.
    pub(super) fn with_ready<R>(
        &mut self,
        partition: u32,
        change: impl FnOnce(&mut ReadyRecords) -> R,
    ) -> R {
        let ready = &mut self.partitions[partition].ready;
        let (loaded, due) = (ready.loaded(), ready.due.len());
        let result = change(ready);
        self.loaded = self.loaded + ready.loaded() - loaded;
        self.due = self.due + ready.due.len() - due;
        result
    }

    /// Makes the record ready again. A scheduled one counts as due since it was written, so that it
    /// precedes those that became due in the meantime.
    pub(super) fn make_ready(&mut self, partition: u32, offset: Offset, meta: Meta) {
        self.make_ready_since(partition, offset, meta, meta.timestamp.min(self.now_ms));
    }

    /// As [`Dispatch::make_ready`], for a record that became due at `since_ms`.
    pub(super) fn make_ready_since(
        &mut self,
        partition: u32,
        offset: Offset,
        meta: Meta,
        since_ms: i64,
    ) {
        let window = self.bounds.window(self.loaded) * 2;
        let sort_key = sort_key(&self.policy, &meta, since_ms);
        self.with_ready(partition, |ready| ready.insert(sort_key, offset, meta, window));
        self.refresh_head(partition);
        if self.partitions[partition].ready.has_ranges() {
            self.list(partition);
        }
    }

    /// Removes a record from the ready ones.
    pub(super) fn take_ready(&mut self, partition: u32, rank: u8, offset: Offset) -> Option<Meta> {
        let meta = self.with_ready(partition, |ready| ready.take(rank, offset))?;
        let found = &self.partitions[partition];
        if !found.listed && found.ready.loaded() < self.bounds.low(self.loaded) {
            self.list(partition);
        }
        Some(meta)
    }

    /// Moves the partition to its place among the heads.
    pub(super) fn refresh_head(&mut self, partition: u32) {
        let found = &mut self.partitions[partition];
        if found.is_empty() {
            return;
        }
        let first = match found.ready.holder {
            None => {
                let others = self.policy.is_turn_of_lower(found.handed_out);
                let first = others.then(|| found.ready.first_behind(self.policy.rank(u8::MAX)));
                first.flatten().or_else(|| found.ready.first())
            }
            Some(offset) => {
                let rank = self.policy.rank(0);
                let held = found.ready.get(rank, offset);
                held.map(|&meta| FirstReady { rank, offset, meta, since_ms: meta.timestamp })
            }
        };
        // Without room for another dead letter, the head is checked again in a second.
        let not_before = if self.ending < self.bounds.dead { 0 } else { self.now_ms + 1_000 };
        let mut reminder = None;
        let head = first.map(|FirstReady { rank, offset, meta, since_ms }| {
            found.head_offset = offset;
            let expires_ms =
                self.policy.expires_ms(meta.timestamp, meta.expires_ms).max(not_before);
            if expires_ms < found.head_timer_ms && !found.is_prompt(offset, &meta) {
                reminder = Some(expires_ms);
            }
            Head { rank, since_ms, partition }
        });
        if head != found.head {
            if let Some(before) = found.head {
                self.heads.remove(&before);
            }
            self.heads.extend(head);
            found.head = head;
        }
        if let Some(expires_ms) = reminder {
            found.head_timer_ms = expires_ms;
            // One timer for a partition, for any number of records.
            self.wheel.add(Entry::new(expires_ms, 0, WheelSubject::head(partition).pack()));
        }
    }

    /// Lists the partition as one that may have to be read.
    pub(super) fn list(&mut self, partition: u32) {
        let found = &mut self.partitions[partition];
        if !found.listed && !found.reading {
            found.listed = true;
            self.wanting.push_back(partition);
        }
    }
}

/// The place of a record that became due at `since_ms`. Ordered groups ignore the due time.
fn sort_key(policy: &Policy, meta: &Meta, since_ms: i64) -> SortKey {
    let by_time = meta.scheduled && policy.ordering == Ordering::Free;
    SortKey {
        rank: policy.rank(meta.priority),
        second: by_time.then(|| since_ms.div_euclid(1_000)),
    }
}
