//! A leader steps down if unapplied entries of its log are damaged.
//!
//! It cannot send them to members that lack them, and cannot apply them, so its term never begins and no snapshot
//! covers the damage: it would lead for ever, and no entry would be committed. Another member has these entries if
//! they may have been committed.

use std::time::Duration;

use journal::Journal;
use tasks::Task;
use tokio::time::sleep;

use crate::consensus::Consensus;
use crate::role::depose;

const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// Bytes of the log that are read at once.
const READ_BYTES_MAX: usize = 1 << 20;

impl Consensus {
    /// Checks for such damage while it is polled, which is while damage exists. Does not return.
    pub(super) async fn step_down_if_unreadable(&self) {
        loop {
            sleep(LOOKED_AT_EVERY).await;
            let leads = self.led_term();
            if leads.is_some_and(|term| self.begun.borrow().term == term) {
                // All entries before the term are applied.
                continue;
            }
            let is_readable = self.unapplied_is_readable().await;
            self.set_can_read(is_readable);
            match leads {
                Some(term) if !is_readable && self.led_term() == leads => {
                    self.step_down(term).await
                }
                _ => {}
            }
        }
    }

    /// Ends the term. A member whose log has as much as a majority's is elected next, or this one again once it
    /// may campaign.
    async fn step_down(&self, term: u64) {
        tracing::warn!(
            term,
            "entries that are not applied are damaged here: this node leads no more"
        );
        self.roles.step_down(term);
        // It fails only if the engine has ended, which is reported separately.
        let _ = depose(&self.raft, term + 1).await;
    }

    async fn unapplied_is_readable(&self) -> bool {
        let (journal, applied) = (self.journal.clone(), self.applied().unwrap_or_default());
        let look = move || is_readable(&journal, applied + 1);
        // A worker that is gone is reported separately.
        self.workers.blocking(Task::ConsensusDisk, look).await.unwrap_or(true)
    }
}

/// Whether no entry from this one on is damaged.
fn is_readable(journal: &Journal, from: u64) -> bool {
    let end = journal.last_id().map_or(0, |id| id.index + 1);
    let mut next = from;
    while next < end {
        match journal.entries(next..end, READ_BYTES_MAX) {
            Ok(read) => match read.last() {
                Some(last) => next = last.id.index + 1,
                None => return true,
            },
            Err(error) => return !error.is_loss(),
        }
    }
    true
}
