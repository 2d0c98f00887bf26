//! Part of the log that stays although consensus has purged it.

use std::collections::BTreeMap;

use super::LogState;
use crate::entry::EntryId;

#[derive(Debug, Default)]
pub(super) struct Pins {
    next: u64,
    /// The first index that each pin retains.
    kept: BTreeMap<u64, u64>,
    /// Entry up to which consensus purged the log; pins may delay it.
    wanted: Option<EntryId>,
}

impl LogState {
    pub(crate) fn pin(&mut self) -> u64 {
        let number = self.pins.next;
        self.pins.next += 1;
        self.pins.kept.insert(number, self.first);
        number
    }

    pub(crate) fn advance_pin(&mut self, number: u64, index: u64) {
        if let Some(kept) = self.pins.kept.get_mut(&number) {
            *kept = index.max(*kept);
        }
        self.purge_wanted();
    }

    pub(crate) fn unpin(&mut self, number: u64) {
        self.pins.kept.remove(&number);
        self.purge_wanted();
    }

    pub(crate) fn is_pinned(&self) -> bool {
        !self.pins.kept.is_empty()
    }

    /// Consensus purges the log up to this entry.
    pub(crate) fn purge_when_unpinned(&mut self, id: EntryId) {
        if self.pins.wanted.is_none_or(|wanted| wanted.index < id.index) {
            self.pins.wanted = Some(id);
        }
        self.purge_wanted();
    }

    /// The log continues behind this entry; pins do not delay it.
    pub(crate) fn purge_despite_pins(&mut self, id: EntryId) {
        self.pins.kept.clear();
        self.pins.wanted = None;
        self.purge(id);
    }

    fn purge_wanted(&mut self) {
        let Some(wanted) = self.pins.wanted else { return };
        match self.pins.kept.values().min() {
            Some(&kept) if kept <= wanted.index => {
                let before = kept.checked_sub(1).and_then(|before| self.entry_id(before));
                if let Some(before) = before {
                    self.purge(before);
                }
            }
            _ => {
                self.pins.wanted = None;
                self.purge(wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::entry::{Entry, EntryKind};
    use crate::frame::EncodedEntry;
    use crate::log::LogPosition;

    fn id(index: u64) -> EntryId {
        EntryId { term: 1, leader: 1, index }
    }

    fn log(entries: u64) -> LogState {
        let mut log = LogState::new(None, LogPosition::START, 1 << 20);
        for index in 0..entries {
            let (head, bodies) = (Default::default(), Vec::new());
            let entry = Entry { id: id(index), kind: EntryKind::Blank, head, bodies };
            log.append(&Arc::new(EncodedEntry::new(entry)));
        }
        log
    }

    #[test]
    fn pinned_entries_stay_until_the_last_pin_advances() {
        let mut log = log(20);
        log.purge_when_unpinned(id(3));
        let (one, other) = (log.pin(), log.pin());
        log.purge_when_unpinned(id(12));
        assert_eq!(log.purged, Some(id(3)));
        log.advance_pin(one, 8);
        assert_eq!(log.purged, Some(id(3)), "the other one wants it");
        log.advance_pin(other, 6);
        assert_eq!(log.purged, Some(id(5)));
        log.advance_pin(other, 5);
        log.unpin(other);
        assert_eq!(log.purged, Some(id(7)));
        log.unpin(one);
        assert_eq!(log.purged, Some(id(12)));
        assert!(!log.is_pinned() && log.entry_id(13).is_some());
    }

    #[test]
    fn a_pin_of_a_whole_log_keeps_its_first_entry() {
        let mut log = log(5);
        let pin = log.pin();
        log.purge_when_unpinned(id(4));
        assert_eq!((log.purged, log.entry_id(0)), (None, Some(id(0))));
        log.unpin(pin);
        assert_eq!(log.purged, Some(id(4)));
    }

    #[test]
    fn another_nodes_snapshot_ends_pins() {
        let mut log = log(5);
        let pin = log.pin();
        log.purge_despite_pins(id(9));
        assert_eq!((log.purged, log.is_pinned()), (Some(id(9)), false));
        log.advance_pin(pin, 3);
        log.unpin(pin);
        assert_eq!(log.purged, Some(id(9)));
    }
}
