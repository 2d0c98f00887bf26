//! The members of a group: founding it, changing its members, transferring leadership.
//!
//! A change adds learners first: a future voter has the log before its vote counts, so that a change never makes a
//! group wait for a copy. Voters change through a joint configuration, which needs a majority of the old and one
//! of the new ones. Every step examines the current state, so that it can be retried after any interruption. A
//! joint configuration that a leader left behind is finished by the next leader automatically.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::limits::APPEND_ENTRIES_MAX;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{
    ChangeMembershipError, ClientWriteError, ForwardToLeader, InitializeError, RaftError,
};
use openraft::{BasicNode, ChangeMembers};
use tokio::time::{Instant, timeout};

use crate::consensus::Consensus;
use crate::engine::settings::LEASE;
use crate::engine::{LogId, Membership, TypeConfig};
use crate::error::{ChangeError, FoundingError, ProposeError, TransferError};
use crate::group::Members;
use crate::leadership::not_leader;
use crate::retention::CatchUp;
use crate::role::depose;

/// Voters that receive the log of a round within this time keep up with the leader.
const SHORT_ROUND: Duration = Duration::from_millis(20);

type MembershipError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;
type Change = ChangeMembers<u64, BasicNode>;

/// Replication of the log, as its leader knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The index of the last entry.
    pub last: u64,
    /// The last index that each of the other voters has.
    pub matched: BTreeMap<u64, u64>,
}

impl Consensus {
    /// Founds the group, with this node among its voters; the others learn of it from the first leader. To be
    /// called on exactly one of them, once, while it is empty.
    pub async fn found(&self, members: Members) -> Result<(), FoundingError> {
        if !members.learners.is_empty() {
            return Err(FoundingError::Learners);
        }
        self.raft.initialize(members.nodes()).await.map_err(|error| match error {
            RaftError::APIError(InitializeError::NotAllowed(_)) => FoundingError::Founded,
            RaftError::APIError(InitializeError::NotInMembers(_)) => FoundingError::NotAVoter,
            RaftError::Fatal(fatal) => FoundingError::Failed(fatal.into()),
        })
    }

    /// The newest members in this node's log: committed, or about to be.
    pub fn members(&self) -> Members {
        Members::of(self.server.borrow_watched().membership_config.membership())
    }

    /// Whether a node votes, by the newest members in this node's log.
    pub fn has_voter(&self, node: u64) -> bool {
        let seen = self.server.borrow_watched();
        seen.membership_config.membership().voter_ids().any(|voter| voter == node)
    }

    /// Whether a node votes or learns, by the newest members in this node's log.
    pub fn has_member(&self, node: u64) -> bool {
        let seen = self.server.borrow_watched();
        seen.membership_config.membership().get_node(&node).is_some()
    }

    /// Whether the newest change of voters is unfinished: majorities of the old and of the new are needed.
    pub fn is_changing_voters(&self) -> bool {
        self.membership().get_joint_config().len() > 1
    }

    /// The members of the last committed configuration, which no later leader reverts.
    #[tasks::boxed]
    pub async fn committed_members(&self) -> Result<Members, ProposeError> {
        let committed = self
            .raft
            .with_raft_state(|raft| Members::of(raft.membership_state.committed().membership()));
        committed.await.map_err(|fatal| self.state.refusal(Some(fatal)))
    }

    /// Number of entries of this node's log that each other member is not known to have; known to the leader, and
    /// empty elsewhere.
    pub fn lags(&self) -> BTreeMap<u64, u64> {
        let data = self.raft.data_metrics();
        let seen = data.borrow_watched();
        let Some(matched) = &seen.replication else { return BTreeMap::new() };
        let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
        let end = next(seen.last_log.map(|id| id.index));
        let others = matched.iter().filter(|(node, _)| **node != self.state.node);
        let lag = |has: &Option<LogId>| end.saturating_sub(next(has.map(|id| id.index)));
        others.map(|(node, has)| (*node, lag(has))).collect()
    }

    /// Number of entries of this node's log that another member is not known to have. `None`: this node does not
    /// lead, or the other one is no member, or receives a snapshot.
    pub fn lag_of(&self, node: u64) -> Option<u64> {
        let data = self.raft.data_metrics();
        let seen = data.borrow_watched();
        let has = seen.replication.as_ref()?.get(&node)?;
        let next = |id: &Option<LogId>| id.as_ref().map_or(0, |id| id.index + 1);
        let lag = next(&seen.last_log).saturating_sub(next(has));
        (!self.retention.is_catching_up(node)).then_some(lag)
    }

    /// Number of committed entries that are not applied here, as far as this member knows.
    pub fn behind(&self) -> u64 {
        let data = self.raft.data_metrics();
        let seen = data.borrow_watched();
        let next = |id: &Option<LogId>| id.as_ref().map_or(0, |id| id.index + 1);
        next(&seen.cluster_committed).saturating_sub(next(&seen.last_applied))
    }

    /// Members that lack entries that the log no longer has, and the progress of their snapshots; known to the
    /// leader.
    pub fn catching_up(&self) -> BTreeMap<u64, CatchUp> {
        self.retention.catching_up()
    }

    /// The last entry that all members have, by the leader's last message. `None`: there is none, or it is not
    /// known.
    pub fn all_have(&self) -> Option<u64> {
        self.retention.with_all()
    }

    /// `None`: this node does not lead.
    pub fn progress(&self) -> Option<Progress> {
        let voters: BTreeSet<u64> = self.membership().voter_ids().collect();
        let data = self.raft.data_metrics();
        let seen = data.borrow_watched();
        let others = |node: &u64| *node != self.state.node && voters.contains(node);
        let matched = seen.replication.as_ref()?.iter().filter(|(node, _)| others(node));
        let index = |id: &Option<LogId>| id.as_ref().map_or(0, |id| id.index);
        Some(Progress {
            last: index(&seen.last_log),
            matched: matched.map(|(node, id)| (*node, index(id))).collect(),
        })
    }

    /// Whether another node's appends have arrived within this time, whatever their outcome: a silent leader stays
    /// this node's leader until another one is elected.
    pub fn has_recent_leader(&self, within: Duration) -> bool {
        self.state.heard.lock().is_some_and(|heard| heard.elapsed() < within)
    }

    pub(crate) fn note_leader(&self, term: u64) {
        // A deposed leader may continue to send for a while.
        if term >= self.server.borrow_watched().vote.leader_id.term {
            *self.state.heard.lock() = Some(Instant::now());
        }
    }

    /// Makes these the members; for the leader. Waits until new voters have the log. May be dropped or fail at any
    /// point, and retried.
    #[tasks::boxed]
    pub async fn change_members(&self, to: Members) -> Result<(), ChangeError> {
        if to.voters.is_empty() {
            return Err(ChangeError::NoVoters);
        }
        let nodes = to.nodes();
        let absent: BTreeMap<u64, BasicNode> = {
            let now = self.membership();
            let known = |id: &u64| now.get_node(id).is_some();
            nodes.iter().filter(|(id, _)| !known(id)).map(|(id, it)| (*id, it.clone())).collect()
        };
        if !absent.is_empty() {
            let newcomers: Vec<u64> = absent.keys().copied().collect();
            self.change(ChangeMembers::AddNodes(absent)).await?;
            // A former member may have acknowledged a log that it deletes when it restarts.
            self.may_revert(newcomers, true).await?;
        }
        let voters: BTreeSet<u64> = to.voters.keys().copied().collect();
        // A node that votes already stays a voter, also if it is gone.
        let comes = |id: &u64| !self.membership().voter_ids().any(|voter| voter == *id);
        let coming: BTreeSet<u64> = voters.iter().copied().filter(comes).collect();
        self.caught_up(&coming).await?;
        // A voter keeps the entries that it has acknowledged.
        self.may_revert(coming, false).await?;
        if self.membership().get_joint_config() != &vec![voters.clone()] {
            self.change(ChangeMembers::ReplaceAllVoters(voters)).await?;
        }
        let gone: BTreeSet<u64> = {
            let now = self.membership();
            now.nodes().map(|(id, _)| *id).filter(|id| !nodes.contains_key(id)).collect()
        };
        if !gone.is_empty() {
            self.change(ChangeMembers::RemoveNodes(gone)).await?;
        }
        Ok(())
    }

    /// Sets whether these members may once have less of the log than they have acknowledged.
    async fn may_revert(
        &self,
        members: impl IntoIterator<Item = u64>,
        may: bool,
    ) -> Result<(), ChangeError> {
        for member in members {
            let said = self.raft.trigger().allow_next_revert(&member, may).await;
            let said = said.map_err(|fatal| self.state.refusal(Some(fatal)));
            // A node that no longer leads, or has no such member, sends it nothing.
            let _ = said.map_err(ChangeError::NotDone)?;
        }
        Ok(())
    }

    async fn change(&self, change: Change) -> Result<(), ChangeError> {
        // Former voters stay as learners until they are removed separately.
        let changed = self.raft.change_membership(change, true).await;
        changed.map(|_| ()).map_err(|refused| self.change_refused(refused))
    }

    fn change_refused(&self, refused: MembershipError) -> ChangeError {
        match refused {
            RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
                ChangeMembershipError::InProgress(_) => ChangeError::UnderWay,
                error => ChangeError::Refused(error.to_string()),
            },
            RaftError::APIError(error) => ChangeError::NotDone(not_leader(error)),
            RaftError::Fatal(fatal) => ChangeError::NotDone(self.state.refusal(Some(fatal))),
        }
    }

    /// Waits until these members have the present log, or nearly.
    async fn caught_up(&self, members: &BTreeSet<u64>) -> Result<(), ChangeError> {
        self.have(members, members.len()).await.map_err(ChangeError::NotDone)
    }

    /// Waits until this many of these members have the present log; for the leader. This node counts as one that
    /// has it.
    async fn have(&self, members: &BTreeSet<u64>, count: usize) -> Result<(), ProposeError> {
        let here = self.state.node;
        let mut data = self.raft.data_metrics();
        let wanted = data.borrow_watched().last_log.map_or(0, |id| id.index);
        loop {
            let having = {
                let seen = data.borrow_watched();
                let Some(matched) = &seen.replication else {
                    drop(seen);
                    let leader = self.server.borrow_watched().current_leader;
                    let leader = leader.filter(|leader| *leader != here);
                    return Err(ProposeError::NotLeader { leader });
                };
                let index = |node: &u64| matched.get(node).copied().flatten().map(|id| id.index);
                let has = |node: &&u64| **node == here || index(node) >= Some(wanted);
                members.iter().filter(has).count()
            };
            if having >= count {
                return Ok(());
            }
            if data.changed().await.is_err() {
                return Err(self.state.refusal(None));
            }
        }
    }

    /// Waits until the connected voters could continue without this node at once; for the leader, before it stops.
    /// Its successor commits nothing before a majority has caught up, and a voter that has just returned has not.
    ///
    /// Entries written meanwhile are missing again: each round waits for the log at its beginning, and the last
    /// round was short. `false`: they are too few, or too slow for `within`.
    pub async fn others_keep_up(&self, in_reach: &BTreeSet<u64>, within: Duration) -> bool {
        let voters: BTreeSet<u64> = self.membership().voter_ids().collect();
        let majority = voters.len() / 2 + 1;
        let others: BTreeSet<u64> =
            voters.intersection(in_reach).copied().filter(|id| *id != self.state.node).collect();
        if others.len() < majority {
            return false;
        }
        let rounds = async {
            loop {
                let began = Instant::now();
                self.have(&others, majority).await?;
                if began.elapsed() <= SHORT_ROUND {
                    return Ok::<(), ProposeError>(());
                }
            }
        };
        matches!(timeout(within, rounds).await, Ok(Ok(())))
    }

    fn membership(&self) -> Membership {
        self.server.borrow_watched().membership_config.membership().clone()
    }

    /// Transfers leadership to that voter, once it has the present log; for the leader, whose term ends here. A
    /// voter that is too slow is rejected, and this node continues to lead. If the other one does not take over in
    /// time, an election follows.
    #[tasks::boxed]
    pub async fn transfer_leadership(&self, to: u64) -> Result<(), TransferError> {
        let Some(term) = self.led_term() else {
            let leader = self.server.borrow_watched().current_leader;
            return Err(TransferError::NotLeader { leader });
        };
        if to == self.state.node {
            return Ok(());
        }
        if !self.membership().voter_ids().any(|voter| voter == to) {
            return Err(TransferError::NotAVoter { node: to });
        }
        let behind = || TransferError::Behind { node: to, entries: self.lacks(to) };
        if self.lacks(to) > APPEND_ENTRIES_MAX as u64 {
            return Err(behind());
        }
        // Nothing is written until it has caught up, and so many entries may be a gigabyte.
        match timeout(LEASE, self.have(&[to].into(), 1)).await {
            Ok(Ok(())) => {}
            Ok(Err(ProposeError::NotLeader { leader })) => {
                return Err(TransferError::NotLeader { leader });
            }
            Ok(Err(error)) => return Err(TransferError::Failed(error)),
            Err(_) => return Err(behind()),
        }
        // The engine accepts no more proposals in this term from here on.
        self.roles.step_down(term);
        let failed = |fatal| TransferError::Failed(self.state.refusal(Some(fatal)));
        self.raft.trigger().transfer_leader(to).await.map_err(failed)?;
        let mut server = self.server.clone();
        let taken_over = async {
            loop {
                let (now, leader) = {
                    let seen = server.borrow_watched();
                    (seen.vote.leader_id.term, seen.current_leader)
                };
                match leader {
                    Some(leader) if now > term && leader == to => return Ok(()),
                    Some(leader) if now > term => {
                        return Err(TransferError::NotLeader { leader: Some(leader) });
                    }
                    _ => {}
                }
                if server.changed().await.is_err() {
                    return Err(TransferError::Failed(self.state.refusal(None)));
                }
            }
        };
        match timeout(LEASE, taken_over).await {
            Ok(taken_over) => taken_over,
            Err(_) => {
                let deposed = depose(&self.raft, term + 1).await;
                deposed.map_err(|fatal| TransferError::Failed(self.state.refusal(fatal)))?;
                Err(TransferError::NotTaken { node: to })
            }
        }
    }

    /// Number of entries that this member is not known to have; for the leader.
    fn lacks(&self, member: u64) -> u64 {
        let data = self.raft.data_metrics();
        let seen = data.borrow_watched();
        let has = seen.replication.as_ref().and_then(|matched| *matched.get(&member)?);
        let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
        let last = next(seen.last_log.map(|id| id.index));
        last.saturating_sub(next(has.map(|id| id.index)))
    }

    /// Index of the last entry that is applied here, of any kind.
    pub fn applied(&self) -> Option<u64> {
        self.raft.data_metrics().borrow_watched().last_applied.map(|id| id.index)
    }

    /// Waits until this index or a later one is applied.
    pub async fn applied_to(&self, index: u64) -> Result<(), ProposeError> {
        let mut data = self.raft.data_metrics();
        loop {
            let applied = data.borrow_watched().last_applied;
            if applied.is_some_and(|id| id.index >= index) {
                return Ok(());
            }
            if data.changed().await.is_err() {
                return Err(self.state.refusal(None));
            }
        }
    }

    /// Waits until everything is applied here that was committed before the call, by any leader. For the leader,
    /// which confirms its leadership with a majority. Later reads are not stale.
    #[tasks::boxed]
    pub async fn read_index(&self) -> Result<u64, ProposeError> {
        let reading = self.raft.ensure_linearizable(openraft::ReadPolicy::ReadIndex);
        let read = tokio::select! {
            biased;
            read = reading => read,
            ended = self.ended() => return Err(ended),
        };
        use openraft::errors::LinearizableReadError as Refused;
        match read {
            Ok(read) => Ok(read.log_id().index),
            Err(RaftError::APIError(Refused::ForwardToLeader(ForwardToLeader {
                leader_id,
                ..
            }))) => Err(ProposeError::NotLeader { leader: leader_id }),
            Err(RaftError::APIError(_)) => Err(ProposeError::NotLeader { leader: None }),
            Err(RaftError::Fatal(fatal)) => Err(self.state.refusal(Some(fatal))),
        }
    }
}
