//! The proposals of this node that are on their way, and who waits for each.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::Unavailable;
use crate::pending::Pending;

#[derive(Debug)]
pub(crate) struct PendingProposals {
    by_ticket: Mutex<HashMap<u64, Pending>>,
    next_ticket: AtomicU64,
    /// Requests that are answered when they are written, without the sync.
    early: AtomicUsize,
    /// The ticket of the last proposal of which something was answered so.
    answered_early: AtomicU64,
}

impl Default for PendingProposals {
    fn default() -> Self {
        Self {
            by_ticket: Mutex::default(),
            // Ticket 0 means "nobody here waits": an entry that is replayed or someone else's.
            next_ticket: AtomicU64::new(1),
            early: AtomicUsize::new(0),
            answered_early: AtomicU64::new(0),
        }
    }
}

impl PendingProposals {
    /// A number for a proposal of this node, never given twice.
    pub(crate) fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers who waits, before the proposal can possibly be applied.
    pub(crate) fn expect(&self, ticket: u64, pending: Pending) {
        self.early.fetch_add(pending.early(), Ordering::AcqRel);
        self.by_ticket.lock().insert(ticket, pending);
    }

    /// Who waits for a proposal that is applied.
    pub(crate) fn take(&self, ticket: u64) -> Option<Pending> {
        let pending = self.by_ticket.lock().remove(&ticket)?;
        self.early.fetch_sub(pending.early(), Ordering::AcqRel);
        Some(pending)
    }

    /// A proposal is written. `answer` answers what waits for no more, and counts it.
    pub(crate) fn written(&self, ticket: u64, answer: impl FnOnce(&mut Pending) -> usize) {
        if self.early.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(pending) = self.by_ticket.lock().get_mut(&ticket) {
            // Before the answers: a client that has one may send another client to read.
            if pending.early() > 0 {
                self.answered_early.fetch_max(ticket, Ordering::AcqRel);
            }
            self.early.fetch_sub(answer(pending), Ordering::AcqRel);
        }
    }

    /// Waits until all that was answered before it was applied is applied, so that a
    /// reader sees it from then on. Proposals are applied in the order of their tickets.
    pub(crate) async fn apply_answered(&self) {
        let ticket = self.answered_early.load(Ordering::Acquire);
        let applied = {
            let mut pending = self.by_ticket.lock();
            let Some(pending) = pending.get_mut(&ticket) else { return };
            let (reader, applied) = oneshot::channel();
            pending.readers.push(reader);
            applied
        };
        // Nothing is ever sent: its end is the message.
        let _ = applied.await;
    }

    /// Drops these once all that is proposed by now is applied, or failed.
    pub(crate) fn drop_after_all(&self, waiting: Vec<oneshot::Sender<()>>) {
        if waiting.is_empty() {
            return;
        }
        let mut pending = self.by_ticket.lock();
        if let Some((_, last)) = pending.iter_mut().max_by_key(|(ticket, _)| **ticket) {
            last.readers.extend(waiting);
        }
    }

    /// The proposal will not be applied, or nobody can know whether it will.
    pub(crate) fn fail(&self, ticket: u64, why: &Unavailable) {
        let Some(pending) = self.take(ticket) else { return };
        pending.fail(why);
    }
}
