//! Entries that a member acknowledged to this leader, to detect a log that was set back.
//!
//! Within one term a member never loses an entry that it acknowledged to the leader of that term. A member has
//! lost entries if it conflicts at or below an entry that it had acknowledged before the append was sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::LogId;

/// By member, shared by the links to it: heartbeats and entries have one each. A removed member starts over.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfirmedBy(Arc<Mutex<BTreeMap<u64, Weak<AcknowledgedIndex>>>>);

impl ConfirmedBy {
    pub(crate) fn of(&self, node: u64) -> Arc<AcknowledgedIndex> {
        let mut members = self.0.lock();
        if let Some(known) = members.get(&node).and_then(Weak::upgrade) {
            return known;
        }
        members.retain(|_, member| member.strong_count() > 0);
        let new = Arc::<AcknowledgedIndex>::default();
        members.insert(node, Arc::downgrade(&new));
        new
    }
}

#[derive(Debug, Default)]
pub(crate) struct AcknowledgedIndex(Mutex<LastAcknowledged>);

#[derive(Clone, Copy, Debug, Default)]
struct LastAcknowledged {
    term: u64,
    index: Option<u64>,
}

impl AcknowledgedIndex {
    /// Index of the last entry that was acknowledged in this term.
    pub(crate) fn at(&self, term: u64) -> Option<u64> {
        let last = *self.0.lock();
        last.index.filter(|_| last.term == term)
    }

    /// The member has the log up to this entry, durably.
    pub(crate) fn advance(&self, last: Option<LogId>, term: u64) {
        let index = last.map(|id| id.index);
        let mut known = self.0.lock();
        if known.term < term {
            *known = LastAcknowledged { term, index };
        } else if known.term == term {
            known.index = known.index.max(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::log_id;

    #[test]
    fn links_share_a_members_acknowledgements_until_its_removal() {
        let all = ConfirmedBy::default();
        let (entries, heartbeats) = (all.of(2), all.of(2));
        entries.advance(Some(log_id(1, 7)), 1);
        assert_eq!(heartbeats.at(1), Some(7));
        assert_eq!(all.of(3).at(1), None);
        drop((entries, heartbeats));
        assert_eq!(all.of(2).at(1), None);
    }

    #[test]
    fn acknowledgements_count_in_their_term_and_never_decrease() {
        let confirmed = AcknowledgedIndex::default();
        assert_eq!(confirmed.at(0), None);
        confirmed.advance(Some(log_id(2, 7)), 3);
        assert_eq!((confirmed.at(3), confirmed.at(2), confirmed.at(4)), (Some(7), None, None));
        confirmed.advance(Some(log_id(2, 5)), 3);
        confirmed.advance(Some(log_id(2, 9)), 2);
        assert_eq!(confirmed.at(3), Some(7));
        confirmed.advance(None, 4);
        assert_eq!((confirmed.at(3), confirmed.at(4)), (None, None));
    }
}
