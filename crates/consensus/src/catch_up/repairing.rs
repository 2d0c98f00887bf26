//! Damaged segments, written anew from what another member has of the same entries.
//!
//! ```text
//! member   reads, or looks through what it has, and finds damage: the segment is noted, nothing of it that is
//!          damaged is served
//!          if its log ends in the segment: asks the leader for one entry more, which goes into the next
//!          the log lets go of the segment: a snapshot covers it, and the log begins behind it
//!          asks for what another member has of the entries that the segment covers       bulk lane
//! other    takes a snapshot first, if its newest one is older than they are
//! member   takes all, and what it has applied is as new: the new file takes the damaged one's place
//! ```
//! What a damaged segment held of the log is not kept for members that lack it: they are sent a snapshot.

use std::sync::Arc;
use std::time::Duration;

use journal::Damage;
use journal::transfer::{Covered, NotYet, Repair, Section};
use openraft::async_runtime::WatchReceiver;
use tasks::Task;
use tokio::time::{sleep, timeout};

use super::fetching::FetchError;
use crate::consensus::Consensus;
use crate::message::{CoveringAsked, Refusal, Reply, Request};
use crate::peers::Target;

/// What could not be repaired is tried again, after longer each time.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
const TRY_AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// For how long the log is waited for that is to let go of a segment, or to come as far as another member's.
const LOG_WITHIN: Duration = Duration::from_secs(30);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(50);

impl Consensus {
    /// Repairs whatever is found damaged. Does not return.
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

    /// Waits for the pause if something is left then. Answers with the next one.
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
        // A member sends another one a single thing at a time; and the snapshot may replace what is damaged.
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

    /// The other members, the leader first: it has all that is committed.
    fn others(&self) -> Vec<Target> {
        let (members, leader) = (self.members(), self.server.borrow_watched().current_leader);
        let all = members.voters.into_iter().chain(members.learners);
        let others = all.filter(|(node, _)| *node != self.state.node);
        let mut others: Vec<Target> =
            others.map(|(node, address)| Target { node, address }).collect();
        others.sort_by_key(|member| Some(member.node) != leader);
        others
    }

    /// `None`: there is nothing to repair any more.
    async fn begin_repair(&self, segment: u32) -> Result<Option<Repair>, FetchError> {
        if self.journal.is_claimed(segment) {
            let let_go = timeout(LOG_WITHIN, self.let_go_of(segment)).await;
            let_go.unwrap_or(Err(FetchError::InUse(NotYet::Claimed)))?;
        }
        let journal = self.journal.clone();
        let begin = move || journal.repair(segment);
        let begun = self.workers.blocking(Task::ConsensusDisk, begin).await;
        match begun.map_err(|_| FetchError::Stopped)?? {
            Ok(repair) => Ok(Some(repair)),
            Err(NotYet::Gone) => Ok(None),
            Err(why) => Err(FetchError::InUse(why)),
        }
    }

    /// Has the log leave the segment, and recovery begin behind it.
    async fn let_go_of(&self, segment: u32) -> Result<(), FetchError> {
        if self.journal.is_written_to(segment) {
            self.journal.roll();
            // The log is in another segment once something is in that one.
            if self.led_term().is_some() {
                let blank = self.raft.write_blank().await;
                blank.map_err(|_| FetchError::Stopped)?;
            } else {
                self.ask_for_an_entry().await?;
            }
            while self.journal.is_written_to(segment) {
                sleep(LOOKED_AT_EVERY).await;
            }
        }
        self.snapshots.take(&self.raft).await?;
        if let Some(covered) = self.snapshots.newest().and_then(|meta| meta.last_log_id) {
            while self.journal.purged_id().map(|id| id.index) < Some(covered.index) {
                // The engine refuses it until it has heard of the snapshot.
                let purged = self.snapshots.purge(&self.raft, covered.index).await;
                purged.map_err(|_| FetchError::Stopped)?;
                sleep(LOOKED_AT_EVERY).await;
            }
        }
        // The log begins later by now, and this one says so.
        self.snapshots.take_anew(&self.raft).await?;
        while !self.journal.is_sealed(segment) {
            sleep(LOOKED_AT_EVERY).await;
        }
        Ok(())
    }

    /// Has the leader append an entry, unless it has one that this member lacks: in an idle group none may come for hours.
    async fn ask_for_an_entry(&self) -> Result<(), FetchError> {
        let leader = self.server.borrow_watched().current_leader;
        let leader = self.others().into_iter().find(|member| Some(member.node) == leader);
        let leader = leader.ok_or(FetchError::NobodyElse)?;
        let last = self.applied().unwrap_or(0);
        let asked = CoveringAsked { have: last, up_to: last };
        // The manifest that it answers with is not used.
        self.ask(&leader, Request::Covering(asked)).await.map(|_| ())
    }

    async fn repair_from(&self, from: &Target, mut repair: Repair) -> Result<(), FetchError> {
        let Covered { first, last } = repair.covers();
        let asked = CoveringAsked { have: first.saturating_sub(1), up_to: last };
        let (reply, _) = self.ask(from, Request::Covering(asked)).await?;
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

    /// Sees to it that this member's newest snapshot covers the log up to here, and that the log goes on behind it: the
    /// segment that is repaired may be the one that the other member's log is to leave.
    pub(super) async fn cover(&self, up_to: u64) -> Result<(), Refusal> {
        if self.led_term().is_some() && self.applied() <= Some(up_to) {
            self.raft.write_blank().await.map_err(|_| Refusal::Stopped)?;
        }
        let covered = |snapshots: &Arc<crate::snapshot::Snapshots>| {
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
