//! Damaged segments, rewritten from another member's copy of the same entries.
//!
//! ```text
//! member   finds damage in a read or a scrub: the segment is noted, and none of its damaged batches is served
//!          if its log ends in the segment: requests one more entry from the leader, which goes into the next segment
//!          the log releases the segment: a snapshot covers it, and the log begins behind it
//!          requests another member's copy of the entries that the segment covers       bulk lane
//! other    takes a snapshot first, if its newest one is older than they are
//! member   receives all, and has applied as much: the new file replaces the damaged one
//! ```
//! Log entries of a damaged segment are not kept for members that lack them: those receive a snapshot.

use std::sync::Arc;
use std::time::Duration;

use journal::Damage;
use journal::transfer::{CoveredEntries, Repair, RepairDeferral, Section};
use openraft::async_runtime::WatchReceiver;
use tasks::Task;
use tokio::time::{sleep, timeout};

use super::fetching::FetchError;
use crate::consensus::Consensus;
use crate::message::{CoveringRequest, Refusal, Reply, Request};
use crate::peers::MessageTarget;

/// Pause after a failed repair; it grows with each failure.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
const TRY_AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// Time limit for the log to release a segment, or to come as far as another member's.
const LOG_WITHIN: Duration = Duration::from_secs(30);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(50);

impl Consensus {
    /// Repairs all damage that is found. Does not return.
    pub(crate) async fn keep_repaired(self) {
        let mut pause = TRY_AGAIN_AFTER;
        loop {
            let damaged = self.journal.damaged();
            if damaged.is_empty() {
                pause = TRY_AGAIN_AFTER;
                self.set_can_read(true);
                self.journal.damage_found().await;
                continue;
            }
            tokio::select! {
                biased;
                next = self.repair_all(&damaged, pause) => pause = next,
                () = self.step_down_if_unreadable() => {}
            }
        }
    }

    /// Waits for the pause if damage is left. Returns the next pause.
    async fn repair_all(&self, damaged: &[Damage], mut pause: Duration) -> Duration {
        for damage in damaged {
            match self.repair(damage).await {
                Ok(()) => pause = TRY_AGAIN_AFTER,
                Err(error) => {
                    tracing::warn!(%damage, %error, "a damaged segment is not repaired yet");
                }
            }
        }
        if !self.journal.damaged().is_empty() {
            sleep(pause).await;
            pause = (pause * 2).min(TRY_AGAIN_AFTER_MAX);
        }
        pause
    }

    async fn repair(&self, damage: &Damage) -> Result<(), FetchError> {
        // A member receives one transfer at a time; and the snapshot may replace the damaged segment.
        if self.reception.is_fetching() {
            return Err(FetchError::CatchingUp);
        }
        let mut last = FetchError::NobodyElse;
        for member in self.others() {
            let Some(repair) = self.begin_repair(damage.segment).await? else { return Ok(()) };
            let node = member.node;
            match self.repair_from(&member, repair).await {
                Ok(()) => {
                    tracing::info!(%damage, node, "a damaged segment is repaired from another member");
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The other members, the leader first: it has all committed entries.
    fn others(&self) -> Vec<MessageTarget> {
        let (members, leader) = (self.members(), self.server.borrow_watched().current_leader);
        let all = members.voters.into_iter().chain(members.learners);
        let others = all.filter(|(node, _)| *node != self.state.node);
        let mut others: Vec<MessageTarget> =
            others.map(|(node, address)| MessageTarget { node, address }).collect();
        others.sort_by_key(|member| Some(member.node) != leader);
        others
    }

    /// `None`: there is nothing left to repair.
    async fn begin_repair(&self, segment: u32) -> Result<Option<Repair>, FetchError> {
        if self.journal.is_claimed(segment) {
            let let_go = timeout(LOG_WITHIN, self.release_segment(segment)).await;
            let_go.unwrap_or(Err(FetchError::InUse(RepairDeferral::Claimed)))?;
        }
        let journal = self.journal.clone();
        let begin = move || journal.repair(segment);
        let begun = self.workers.blocking(Task::ConsensusDisk, begin).await;
        match begun.map_err(|_| FetchError::Stopped)?? {
            Ok(repair) => Ok(Some(repair)),
            Err(RepairDeferral::Gone) => Ok(None),
            Err(why) => Err(FetchError::InUse(why)),
        }
    }

    /// Makes the log leave the segment, so that recovery begins behind it.
    async fn release_segment(&self, segment: u32) -> Result<(), FetchError> {
        if self.journal.is_written_to(segment) {
            self.journal.roll();
            // The log has moved to another segment once that one has an entry.
            if self.led_term().is_some() {
                let blank = self.raft.write_blank().await;
                blank.map_err(|_| FetchError::Stopped)?;
            } else {
                self.request_an_entry().await?;
            }
            while self.journal.is_written_to(segment) {
                sleep(LOOKED_AT_EVERY).await;
            }
        }
        self.snapshots.take(&self.raft).await?;
        if let Some(covered) = self.snapshots.newest().and_then(|meta| meta.last_log_id) {
            while self.journal.purged_id().map(|id| id.index) < Some(covered.index) {
                // The engine refuses it until it knows of the snapshot.
                let purged = self.snapshots.purge(&self.raft, covered.index).await;
                purged.map_err(|_| FetchError::Stopped)?;
                sleep(LOOKED_AT_EVERY).await;
            }
        }
        // The log begins later by now, which this snapshot records.
        self.snapshots.take_forced(&self.raft).await?;
        while !self.journal.is_sealed(segment) {
            sleep(LOOKED_AT_EVERY).await;
        }
        Ok(())
    }

    /// Makes the leader append an entry, unless it has one that this member lacks: an idle group may append none
    /// for hours.
    async fn request_an_entry(&self) -> Result<(), FetchError> {
        let leader = self.server.borrow_watched().current_leader;
        let leader = self.others().into_iter().find(|member| Some(member.node) == leader);
        let leader = leader.ok_or(FetchError::NobodyElse)?;
        let last = self.applied().unwrap_or(0);
        let asked = CoveringRequest { have: last, up_to: last };
        // The manifest in its reply is not used.
        self.request(&leader, Request::Covering(asked)).await.map(|_| ())
    }

    async fn repair_from(
        &self,
        from: &MessageTarget,
        mut repair: Repair,
    ) -> Result<(), FetchError> {
        let CoveredEntries { first, last } = repair.covers();
        let asked = CoveringRequest { have: first.saturating_sub(1), up_to: last };
        let (reply, _) = self.request(from, Request::Covering(asked)).await?;
        let Reply::Manifest(manifest) = reply else { return Err(FetchError::Wrong("no manifest")) };
        let id = manifest.id();
        if id.index < last {
            return Err(FetchError::Wrong("a snapshot that ends before the segment"));
        }
        let segments = self.section(from, &manifest, Section::Segments).await?;
        repair.expect(&segments)?;
        while let Some(segment) = repair.next_segment() {
            let taken;
            (repair, taken) = self.segment(from, repair, manifest.sending, segment).await?;
            taken?;
        }
        let applied = async {
            while self.applied() < Some(id.index) {
                sleep(LOOKED_AT_EVERY).await;
            }
        };
        timeout(LOG_WITHIN, applied).await.map_err(|_| FetchError::Behind)?;
        let finish = move || repair.finish();
        let finished = self.workers.blocking(Task::ConsensusDisk, finish).await;
        Ok(finished.map_err(|_| FetchError::Stopped)??)
    }

    /// Makes this member's newest snapshot cover the log up to here, with at least one entry behind it: the
    /// repaired segment may be the one that the other member's log has to leave.
    pub(super) async fn cover(&self, up_to: u64) -> Result<(), Refusal> {
        if self.led_term().is_some() && self.applied() <= Some(up_to) {
            self.raft.write_blank().await.map_err(|_| Refusal::Stopped)?;
        }
        let covered = |snapshots: &Arc<crate::replica::Snapshots>| {
            snapshots.newest().and_then(|meta| meta.last_log_id).map(|id| id.index) >= Some(up_to)
        };
        if covered(&self.snapshots) {
            return Ok(());
        }
        if self.applied() < Some(up_to) {
            return Err(Refusal::Behind);
        }
        self.snapshots.take(&self.raft).await.map_err(|error| {
            let mut what = error.to_string();
            what.truncate(what.floor_char_boundary(200));
            Refusal::Disk(what)
        })
    }
}
