//! Times of acknowledgements by sender, from which pauses of writes are read. Kept only where a
//! plan requests it, since it costs 16 bytes a message.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Ledger, SenderAccount};

/// One confirmation, by the clock that stamps carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// When the message was sent.
    pub sent_ns: u64,
    /// When its sender received the confirmation.
    pub at_ns: u64,
}

/// Acknowledgements of one sender.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// In order of time; `None` if they are not kept.
    pub(super) log: Option<Vec<Acknowledged>>,
    /// Send time of the newest confirmed message.
    pub(super) newest_ns: u64,
}

impl Acknowledgements {
    pub(super) fn add(&mut self, acknowledged: Acknowledged) {
        self.newest_ns = self.newest_ns.max(acknowledged.sent_ns);
        if let Some(log) = &mut self.log {
            log.push(acknowledged);
        }
    }
}

impl Ledger {
    pub(crate) fn keep_acknowledgements(&self) {
        for sender in &self.senders {
            sender.state().acknowledgements.log = Some(Vec::new());
        }
    }

    /// Takes the kept acknowledgements, by sender, and stops keeping them.
    pub(crate) fn take_acknowledgements(&self) -> Vec<Vec<Acknowledged>> {
        let kept = |sender: &Arc<SenderAccount>| sender.state().acknowledgements.log.take();
        self.senders.iter().filter_map(kept).collect()
    }

    /// Every sender has a confirmation for a message that it sent at this time or later.
    pub(crate) fn confirmed_to_all_ns(&self) -> u64 {
        let newest = self.senders.iter().map(|sender| sender.state().acknowledgements.newest_ns);
        newest.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use driver::{Confirmed, Failure};

    use super::*;

    #[test]
    fn newest_confirmation_is_tracked_with_and_without_a_log() {
        for log in [None, Some(Vec::new())] {
            let keeps = log.is_some();
            let mut acknowledgements = Acknowledgements { log, newest_ns: 0 };
            // A retry may be confirmed after a message that was sent later.
            for (sent_ns, at_ns) in [(5, 8), (7, 9), (6, 10)] {
                acknowledgements.add(Acknowledged { sent_ns, at_ns });
            }
            assert_eq!(acknowledgements.newest_ns, 7);
            assert_eq!(acknowledgements.log.map(|log| log.len()), keeps.then_some(3));
        }
    }

    #[test]
    fn confirmed_to_all_waits_for_every_sender() {
        let ledger = Ledger::new(2, 1, 4, true);
        let send = |sender: usize| {
            let stamp = ledger.senders[sender].next(0, None);
            ledger.senders[sender].resolve(stamp.sequence, Ok(()));
            stamp
        };
        ledger.keep_acknowledgements();
        assert_eq!(ledger.confirmed_to_all_ns(), 0);
        send(0);
        assert_eq!(ledger.confirmed_to_all_ns(), 0, "the other one was told of nothing yet");
        let (last, refused) = (send(1), ledger.senders[0].next(0, None));
        ledger.senders[0].resolve(refused.sequence, Err(Failure::unknown("broke")));
        assert!(ledger.confirmed_to_all_ns() < last.due_ns);
        let kept = ledger.take_acknowledgements();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert!(kept.iter().flatten().all(|one| one.at_ns >= one.sent_ns));
    }
}
