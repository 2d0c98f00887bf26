//! Live leases: a slab, two indexes into it, and two kinds of lists through it.
//!
//! Nearly every lease ends before its deadline. It is therefore linked into the list of leases with
//! the same deadline, from which it is removed in constant time. An entry of the wheel could not be
//! removed.

use std::collections::BTreeMap;

use base::{HashMap, Offset};
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::record::Meta;
use crate::{ConsumerId, SessionId, Token};

/// A slot number of the slab.
pub(crate) type Slot = u32;
const NONE: Slot = Slot::MAX;
/// Not used by a live lease.
const FREE: Token = 0;
/// Number of slots that an empty slab may retain.
const SLOTS_KEPT: usize = 1_024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) token: Token,
    pub(crate) offset: Offset,
    pub(crate) meta: Meta,
    /// `i64::MAX` = until the session ends.
    pub(crate) deadline_ms: i64,
    pub(crate) session: SessionId,
    pub(crate) consumer: ConsumerId,
    pub(crate) partition: u32,
    pub(crate) attempt: u16,
    /// It uses credit of its consumer.
    pub(crate) credit: bool,
    /// It uses its session's pool.
    pub(crate) pooled: bool,
}

impl Lease {
    fn is_of(&self, session: SessionId) -> bool {
        self.token != FREE && self.session == session
    }

    fn ends_at(&self, deadline_ms: i64) -> bool {
        self.token != FREE && self.deadline_ms == deadline_ms
    }
}

#[derive(Clone, Copy, Debug)]
struct Links {
    previous: Slot,
    next: Slot,
}

impl Links {
    const ALONE: Self = Self { previous: NONE, next: NONE };
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    lease: Lease,
    of_session: Links,
    of_deadline: Links,
}

/// Selects one of an entry's links.
type Field = fn(&mut Entry) -> &mut Links;

#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    slab: Vec<Entry>,
    free: Vec<Slot>,
    by_token: HashTable<Slot>,
    by_offset: HashTable<Slot>,
    /// Heads of the lists. A new lease is linked behind one that is already in the list, so that
    /// the maps rarely change.
    by_session: HashMap<SessionId, Slot>,
    by_deadline: BTreeMap<i64, Slot>,
    /// The slot that was filled last: the next lease mostly belongs to the same lists.
    recent: Slot,
    bytes: u64,
}

impl LeaseTable {
    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, slot: Slot) -> &Lease {
        &self.slab[slot as usize].lease
    }

    pub(crate) fn find_token(&self, token: Token) -> Option<Slot> {
        self.by_token
            .find(hash(token), |&slot| self.slab[slot as usize].lease.token == token)
            .copied()
    }

    pub(crate) fn find(&self, partition: u32, offset: Offset) -> Option<Slot> {
        let same = |&slot: &Slot| {
            let lease = &self.slab[slot as usize].lease;
            lease.offset == offset && lease.partition == partition
        };
        self.by_offset.find(hash_place(partition, offset), same).copied()
    }

    pub(crate) fn insert(&mut self, lease: Lease) -> Slot {
        debug_assert!(lease.token != FREE);
        let entry = Entry { lease, of_session: Links::ALONE, of_deadline: Links::ALONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = entry;
                slot
            }
            None => {
                self.slab.push(entry);
                self.slab.len() as Slot - 1
            }
        };
        let Self { slab, by_token, by_offset, .. } = self;
        let token_of = |&slot: &Slot| hash(slab[slot as usize].lease.token);
        by_token.insert_unique(hash(lease.token), slot, token_of);
        let place_of = |&slot: &Slot| {
            let lease = &slab[slot as usize].lease;
            hash_place(lease.partition, lease.offset)
        };
        by_offset.insert_unique(hash_place(lease.partition, lease.offset), slot, place_of);
        // Any lease that is in the list now can be linked behind.
        let head = match self.slab.get(self.recent as usize) {
            Some(recent) if self.recent != slot && recent.lease.is_of(lease.session) => self.recent,
            _ => *self.by_session.entry(lease.session).or_insert(slot),
        };
        link(&mut self.slab, session_links, head, slot);
        self.link_deadline(slot, lease.deadline_ms);
        self.bytes += u64::from(lease.meta.bytes);
        self.recent = slot;
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Lease {
        let lease = self.slab[slot as usize].lease;
        self.unlink_deadline(slot, lease.deadline_ms);
        let links = unlink(&mut self.slab, session_links, slot);
        if links.previous == NONE {
            if links.next == NONE {
                self.by_session.remove(&lease.session);
            } else {
                self.by_session.insert(lease.session, links.next);
            }
        }
        let place = hash_place(lease.partition, lease.offset);
        if let Ok(found) = self.by_offset.find_entry(place, |&other| other == slot) {
            found.remove();
        }
        if let Ok(found) = self.by_token.find_entry(hash(lease.token), |&other| other == slot) {
            found.remove();
        }
        self.bytes -= u64::from(lease.meta.bytes);
        self.slab[slot as usize].lease.token = FREE;
        self.free.push(slot);
        if self.by_token.is_empty() && self.slab.len() > SLOTS_KEPT {
            *self = Self::default();
        }
        lease
    }

    pub(crate) fn renew(&mut self, slot: Slot, deadline_ms: i64) {
        let before = self.slab[slot as usize].lease.deadline_ms;
        self.unlink_deadline(slot, before);
        self.slab[slot as usize].lease.deadline_ms = deadline_ms;
        self.link_deadline(slot, deadline_ms);
    }

    fn link_deadline(&mut self, slot: Slot, deadline_ms: i64) {
        if deadline_ms < i64::MAX {
            let head = match self.slab.get(self.recent as usize) {
                Some(recent) if self.recent != slot && recent.lease.ends_at(deadline_ms) => {
                    self.recent
                }
                _ => *self.by_deadline.entry(deadline_ms).or_insert(slot),
            };
            link(&mut self.slab, deadline_links, head, slot);
        }
    }

    fn unlink_deadline(&mut self, slot: Slot, deadline_ms: i64) {
        if deadline_ms == i64::MAX {
            return;
        }
        let links = unlink(&mut self.slab, deadline_links, slot);
        if links.previous == NONE {
            if links.next == NONE {
                self.by_deadline.remove(&deadline_ms);
            } else {
                self.by_deadline.insert(deadline_ms, links.next);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.by_deadline.first_key_value().map(|(&deadline_ms, _)| deadline_ms)
    }

    /// A lease past its deadline.
    pub(crate) fn overdue(&self, now_ms: i64) -> Option<Slot> {
        let (&deadline_ms, &slot) = self.by_deadline.first_key_value()?;
        (deadline_ms <= now_ms).then_some(slot)
    }

    pub(crate) fn first_of(&self, session: SessionId) -> Option<Slot> {
        self.by_session.get(&session).copied()
    }

    pub(crate) fn in_session(&self, session: SessionId) -> impl Iterator<Item = Slot> + '_ {
        let mut at = self.first_of(session).unwrap_or(NONE);
        std::iter::from_fn(move || {
            let slot = (at != NONE).then_some(at)?;
            at = self.slab[slot as usize].of_session.next;
            Some(slot)
        })
    }

    /// All leases, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Lease)> {
        let numbered = self.slab.iter().enumerate();
        numbered
            .filter(|(_, entry)| entry.lease.token != FREE)
            .map(|(slot, entry)| (slot as Slot, &entry.lease))
    }
}

fn session_links(entry: &mut Entry) -> &mut Links {
    &mut entry.of_session
}

fn deadline_links(entry: &mut Entry) -> &mut Links {
    &mut entry.of_deadline
}

/// Links `slot` behind `head`, a member of the list, unless they are equal.
fn link(slab: &mut [Entry], field: Field, head: Slot, slot: Slot) {
    if head == slot {
        *field(&mut slab[slot as usize]) = Links::ALONE;
        return;
    }
    let next = field(&mut slab[head as usize]).next;
    *field(&mut slab[slot as usize]) = Links { previous: head, next };
    field(&mut slab[head as usize]).next = slot;
    if next != NONE {
        field(&mut slab[next as usize]).previous = slot;
    }
}

/// Removes `slot` from its list; returns its former links.
fn unlink(slab: &mut [Entry], field: Field, slot: Slot) -> Links {
    let links = *field(&mut slab[slot as usize]);
    if links.previous != NONE {
        field(&mut slab[links.previous as usize]).next = links.next;
    }
    if links.next != NONE {
        field(&mut slab[links.next as usize]).previous = links.previous;
    }
    links
}

/// The broker assigns tokens and offsets, so that no client can make their hashes collide.
fn hash(value: u64) -> u64 {
    let mixed = value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 32
}

fn hash_place(partition: u32, offset: Offset) -> u64 {
    hash(offset.wrapping_add(u64::from(partition).wrapping_mul(0xD6E8_FEB8_6659_FD93)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(token: Token, session: SessionId, deadline_ms: i64) -> Lease {
        Lease {
            token,
            offset: token,
            meta: Meta { bytes: 10, ..Meta::default() },
            deadline_ms,
            session,
            consumer: 1,
            partition: 0,
            attempt: 1,
            credit: false,
            pooled: false,
        }
    }

    #[test]
    fn leases_are_found_by_token_offset_session_and_deadline() {
        let mut leases = LeaseTable::default();
        for token in 1..=1_000 {
            leases.insert(lease(token, token % 7, 100 + (token % 13) as i64));
        }
        assert_eq!(leases.len(), 1_000);
        assert_eq!(leases.bytes(), 10_000);
        let slot = leases.find_token(77).unwrap();
        assert_eq!(leases.find(0, 77), Some(slot));
        assert_eq!(leases.find(1, 77), None);
        assert_eq!(leases.in_session(3).count(), (1..=1_000).filter(|t| t % 7 == 3).count());
        assert_eq!(leases.next_deadline(), Some(100));
        assert_eq!(leases.overdue(99), None);
        while let Some(slot) = leases.overdue(106) {
            let gone = leases.remove(slot);
            assert!(gone.deadline_ms <= 106);
        }
        assert_eq!(leases.next_deadline(), Some(107));
        while let Some(slot) = leases.first_of(3) {
            assert_eq!(leases.remove(slot).session, 3);
        }
        assert!(leases.iter().all(|(_, lease)| lease.session != 3 && lease.deadline_ms > 106));
        let slots: Vec<Slot> = leases.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            leases.remove(slot);
        }
        assert_eq!((leases.len(), leases.bytes(), leases.next_deadline()), (0, 0, None));
        assert!(leases.slab.len() <= SLOTS_KEPT);
    }

    #[test]
    fn renewed_lease_expires_only_at_its_new_deadline() {
        let mut leases = LeaseTable::default();
        let slot = leases.insert(lease(1, 1, 100));
        leases.insert(lease(2, 1, 100));
        leases.renew(slot, 200);
        let first = leases.overdue(150).unwrap();
        assert_eq!(leases.remove(first).token, 2);
        assert_eq!(leases.overdue(150), None);
        leases.renew(slot, i64::MAX);
        assert_eq!(leases.next_deadline(), None);
    }
}
