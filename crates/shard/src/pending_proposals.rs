//! The pending proposals of this node, and the requests waiting for each.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::Unavailable;
use crate::pending::PendingRequests;

#[derive(Debug)]
pub struct PendingProposals {
    by_ticket: Mutex<HashMap<u64, PendingRequests>>,
    next_ticket: AtomicU64,
    /// Number of requests that get their reply when they are written, without the sync.
    early: AtomicUsize,
    /// The ticket of the last proposal with an early reply.
    answered_early: AtomicU64,
}

impl Default for PendingProposals {
    fn default() -> Self {
        Self {
            by_ticket: Mutex::default(),
            // Ticket 0 means that no request waits here: the entry is replayed, or another node's.
            next_ticket: AtomicU64::new(1),
            early: AtomicUsize::new(0),
            answered_early: AtomicU64::new(0),
        }
    }
}

impl PendingProposals {
    /// Returns a unique number for a proposal of this node.
    pub(crate) fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers the waiting requests, before the proposal can possibly be applied.
    pub(crate) fn expect(&self, ticket: u64, pending: PendingRequests) {
        self.early.fetch_add(pending.early(), Ordering::AcqRel);
        self.by_ticket.lock().insert(ticket, pending);
    }

    /// Removes and returns the requests that wait for an applied proposal.
    pub(crate) fn take(&self, ticket: u64) -> Option<PendingRequests> {
        let pending = self.by_ticket.lock().remove(&ticket)?;
        self.early.fetch_sub(pending.early(), Ordering::AcqRel);
        Some(pending)
    }

    /// Whether a proposal is neither applied nor has failed. To be asked while the state is locked, which then has the
    /// effects of all others.
    pub(crate) fn is_pending(&self, ticket: u64) -> bool {
        self.by_ticket.lock().contains_key(&ticket)
    }

    /// A proposal is written. `answer` sends the early replies, and returns their number.
    pub(crate) fn written(&self, ticket: u64, answer: impl FnOnce(&mut PendingRequests) -> usize) {
        if self.early.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(pending) = self.by_ticket.lock().get_mut(&ticket) {
            // Before the replies: a client that has one may trigger another client to read.
            if pending.early() > 0 {
                self.answered_early.fetch_max(ticket, Ordering::AcqRel);
            }
            self.early.fetch_sub(answer(pending), Ordering::AcqRel);
        }
    }

    /// Waits until all proposals with early replies are applied, so that a reader sees them from then on. Proposals
    /// are applied in the order of their tickets.
    pub async fn apply_answered(&self) {
        let ticket = self.answered_early.load(Ordering::Acquire);
        let applied = {
            let mut pending = self.by_ticket.lock();
            let Some(pending) = pending.get_mut(&ticket) else { return };
            let (reader, applied) = oneshot::channel();
            pending.readers.push(reader);
            applied
        };
        // No value is ever sent: the sender is dropped.
        let _ = applied.await;
    }

    /// Drops these senders once all present proposals are applied, or have failed.
    pub(crate) fn drop_after_all(&self, waiting: Vec<oneshot::Sender<()>>) {
        if waiting.is_empty() {
            return;
        }
        let mut pending = self.by_ticket.lock();
        if let Some((_, last)) = pending.iter_mut().max_by_key(|(ticket, _)| **ticket) {
            last.readers.extend(waiting);
        }
    }

    /// The proposal will not be applied, or its outcome is unknown.
    pub(crate) fn fail(&self, ticket: u64, why: &Unavailable) {
        let Some(pending) = self.take(ticket) else { return };
        pending.fail(why);
    }
}
