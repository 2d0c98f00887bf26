//! The role of a node in its group: observed, and given up in time.
//!
//! The engine considers itself leader until it receives a later term, which a leader that is cut off never does.
//! So a term has another end: no majority replied for the election timeout of the others. On a starved machine it
//! is somewhat longer ([`Starvation`]). That end is final. If the connections return before another node was
//! elected, the engine would continue in the same term. But the drivers of that term have ended, and new ones must
//! not reuse its tokens. So the node then gives its vote to a later term in which it does not lead, and is elected
//! again like any other.
//!
//! A node that is no member does not learn its leader from the engine. A leader reported otherwise
//! ([`ReportedLeader`]) applies if the engine knows no leader, or one of an older term. It never ends a leadership of
//! this node: only the engine does that, or the end of the term.
//!
//! * `deposition`: ends a term by a vote in a later one
//! * `joint_change`: finishes a change of members that a former leader left behind
//!
//! It depends on `group` and `replica`.

mod deposition;
mod joint_change;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use openraft::async_runtime::{Instant as _, WatchReceiver};
use openraft::{Raft, ServerState};
use tasks::Task;
use tokio::sync::watch;
use tokio::time::sleep_until;
use world::Instant;

use crate::engine::settings::LEASE;
use crate::engine::{ServerMetrics, TypeConfig};
use crate::group::Group;
use crate::replica::{FirstEntry, Replica};
use crate::starvation::Starvation;

use joint_change::finish_change;

pub(crate) use deposition::depose;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Role {
    /// Neither leader nor follower: an election is in progress, or due. Or the group was not founded, or this node
    /// is no member.
    #[default]
    None,
    /// Elected for the term, with recent replies of a majority. Proposing needs the
    /// [`Leadership`](crate::Leadership) of the term.
    Leader {
        term: u64,
    },
    Follower {
        leader: u64,
        term: u64,
    },
    /// Has the log and no vote.
    Learner {
        leader: Option<u64>,
    },
}

/// A leader that was reported to this node by other means than Raft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportedLeader {
    pub node: u64,
    pub term: u64,
}

impl Role {
    /// The other node that leads, as far as this one knows.
    pub fn other_leader(self) -> Option<u64> {
        match self {
            Self::Follower { leader, .. } => Some(leader),
            Self::Learner { leader } => leader,
            Self::None | Self::Leader { .. } => None,
        }
    }
}

/// The state that [`watch`] publishes.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    pub(crate) role: watch::Receiver<Role>,
    /// Terms up to this one are over for this node, whatever the engine reports.
    pub(crate) ended_terms: watch::Receiver<u64>,
    ending_terms: Arc<watch::Sender<u64>>,
    told: Arc<watch::Sender<Option<ReportedLeader>>>,
}

impl Roles {
    pub(crate) fn report_leader(&self, told: Option<ReportedLeader>) {
        self.told.send_if_modified(|last| std::mem::replace(last, told) != told);
    }

    pub(crate) fn step_down(&self, term: u64) {
        step_down(&self.ending_terms, term);
    }
}

fn step_down(ended_terms: &watch::Sender<u64>, term: u64) {
    ended_terms.send_if_modified(|last| std::mem::replace(last, term.max(*last)) < term);
}

struct Watcher {
    raft: Raft<TypeConfig, Replica>,
    node: u64,
    begun: watch::Receiver<FirstEntry>,
    role: watch::Sender<Role>,
    ended_terms: Arc<watch::Sender<u64>>,
    told: watch::Receiver<Option<ReportedLeader>>,
    starvation: Starvation,
    /// The last term that this node led in, and when it began.
    led: Option<(u64, Instant)>,
}

/// The role of a node, and the task that observes it: it ends with the engine.
pub(crate) fn watch(
    raft: Raft<TypeConfig, Replica>,
    node: u64,
    begun: watch::Receiver<FirstEntry>,
    group: Option<&Group>,
) -> (impl Future<Output = ()> + use<>, Roles) {
    let starvation = group.map(|group| group.starvation.clone()).unwrap_or_default();
    let (role, ended_terms) = (watch::Sender::default(), Arc::new(watch::Sender::default()));
    let ending_terms = Arc::clone(&ended_terms);
    let told = Arc::new(watch::Sender::default());
    let hearing = told.subscribe();
    let roles =
        Roles { role: role.subscribe(), ended_terms: ended_terms.subscribe(), ending_terms, told };
    let (told, led) = (hearing, None);
    let watcher = Watcher { raft, node, begun, role, ended_terms, told, starvation, led };
    (watcher.run(), roles)
}

impl Watcher {
    async fn run(mut self) {
        let mut server = self.raft.server_metrics();
        let mut ended_terms = self.ended_terms.subscribe();
        let mut told = self.told.clone();
        loop {
            let leader = told.borrow_and_update().filter(|told| told.node != self.node);
            let seen = server.borrow_and_update().clone();
            let until = self.leads_until(&seen);
            if until.is_some_and(|until| until <= Instant::now()) {
                self.step_down(seen.vote.leader_id.term).await;
                continue;
            }
            self.publish(self.role_in(&seen, leader));
            let over = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = server.changed() => if changed.is_err() {
                    // The engine's end is reported separately.
                    self.publish(Role::None);
                    return std::future::pending().await;
                },
                Ok(()) = ended_terms.changed() => {}
                Ok(()) = told.changed() => {}
                () = over => {}
            }
        }
    }

    fn publish(&self, role: Role) {
        self.role.send_if_modified(|last| std::mem::replace(last, role) != role);
    }

    fn role_in(&self, seen: &ServerMetrics, told: Option<ReportedLeader>) -> Role {
        let term = seen.vote.leader_id.term;
        let other = seen.current_leader.filter(|leader| *leader != self.node);
        let is_member = seen.membership_config.membership().get_node(&self.node).is_some();
        let own = match (seen.state, other) {
            (ServerState::Leader, _) if !self.stepped_down(term) => Role::Leader { term },
            (ServerState::Follower | ServerState::Candidate, Some(leader)) => {
                Role::Follower { leader, term }
            }
            (ServerState::Learner, leader) if is_member => Role::Learner { leader },
            _ => Role::None,
        };
        with_reported_leader(own, is_member.then_some(term), told)
    }

    fn stepped_down(&self, term: u64) -> bool {
        term <= *self.ended_terms.borrow()
    }

    /// When this node's leadership ends without replies of a majority. `None`: it does not lead, or it is alone.
    fn leads_until(&mut self, seen: &ServerMetrics) -> Option<Instant> {
        let term = seen.vote.leader_id.term;
        if seen.state != ServerState::Leader || self.stepped_down(term) {
            return None;
        }
        let since = match self.led {
            Some((led, since)) if led == term => since,
            _ => {
                let now = Instant::now();
                self.led = Some((term, now));
                let (raft, begun) = (self.raft.clone(), self.begun.clone());
                tasks::spawn(Task::ConsensusRole, finish_change(raft, begun, term));
                now
            }
        };
        let voters: BTreeSet<u64> = seen.membership_config.membership().voter_ids().collect();
        if voters == BTreeSet::from([self.node]) {
            // The others may have been members until now.
            self.led = Some((term, Instant::now()));
            return None;
        }
        let data = self.raft.data_metrics();
        let age = data.borrow_watched().last_quorum_acked.as_ref().map(|at| at.elapsed());
        let heard = age.and_then(|age| Instant::now().checked_sub(age));
        Some(since.max(heard.unwrap_or(since)) + LEASE + self.starvation.allowance())
    }

    async fn step_down(&self, term: u64) {
        tracing::warn!(term, "no majority answers: this node leads no more");
        step_down(&self.ended_terms, term);
        self.publish(Role::None);
        // It fails only if the engine has ended, which is reported separately.
        let _ = depose(&self.raft, term + 1).await;
    }
}

/// The role of a node, given the reported leader. `voted` is the term of a member's vote: a leader of an older one
/// has been replaced, or soon will be. The vote of a node that is no member has no meaning, since the group never
/// requests it.
fn with_reported_leader(own: Role, voted: Option<u64>, told: Option<ReportedLeader>) -> Role {
    let Some(ReportedLeader { node: leader, term }) = told else { return own };
    let follower = Role::Follower { leader, term };
    match own {
        Role::Leader { .. } => own,
        Role::Follower { term: of_own, .. } if of_own >= term => own,
        Role::Follower { .. } => follower,
        Role::Learner { leader: Some(_) } if voted >= Some(term) => own,
        Role::None | Role::Learner { .. } if voted.is_none_or(|voted| voted <= term) => follower,
        Role::None | Role::Learner { .. } => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Option<ReportedLeader> = Some(ReportedLeader { node: 3, term: 7 });
    const FOLLOWS: Role = Role::Follower { leader: 3, term: 7 };

    #[test]
    fn node_without_a_leader_follows_the_reported_one() {
        assert_eq!(with_reported_leader(Role::None, None, TOLD), FOLLOWS);
        assert_eq!(with_reported_leader(Role::None, Some(7), TOLD), FOLLOWS);
        assert_eq!(with_reported_leader(Role::Learner { leader: None }, Some(0), TOLD), FOLLOWS);
        assert_eq!(with_reported_leader(Role::None, None, None), Role::None);
    }

    #[test]
    fn reported_leader_counts_only_in_a_newer_term() {
        let own = |term| Role::Follower { leader: 2, term };
        assert_eq!(with_reported_leader(own(6), Some(6), TOLD), FOLLOWS);
        assert_eq!(with_reported_leader(own(7), Some(7), TOLD), own(7));
        assert_eq!(with_reported_leader(own(8), Some(8), TOLD), own(8));
        let learner = Role::Learner { leader: Some(2) };
        assert_eq!(with_reported_leader(learner, Some(6), TOLD), FOLLOWS);
        assert_eq!(with_reported_leader(learner, Some(7), TOLD), learner);
    }

    #[test]
    fn member_that_voted_in_a_newer_term_ignores_an_older_reported_leader() {
        assert_eq!(with_reported_leader(Role::None, Some(8), TOLD), Role::None);
        let learner = Role::Learner { leader: None };
        assert_eq!(with_reported_leader(learner, Some(8), TOLD), learner);
    }

    #[test]
    fn leader_ignores_reported_leaders() {
        for term in [6, 7, 8] {
            let own = Role::Leader { term };
            assert_eq!(with_reported_leader(own, Some(term), TOLD), own);
        }
    }
}
