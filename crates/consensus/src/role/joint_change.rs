//! Finishes a joint configuration that a former leader left behind.

use openraft::async_runtime::WatchReceiver;
use openraft::errors::RaftError;
use openraft::{ChangeMembers, Raft};
use tokio::sync::watch;

use crate::engine::TypeConfig;
use crate::error::Failure;
use crate::replica::{FirstEntry, Replica};

/// Finishes a change that a former leader left half done, once this node's term has begun.
pub(crate) async fn finish_change(
    raft: Raft<TypeConfig, Replica>,
    mut begun: watch::Receiver<FirstEntry>,
    term: u64,
) {
    // Before that the engine accepts no change.
    if begun.wait_for(|first| first.term >= term).await.is_err() {
        return;
    }
    let voters = {
        let server = raft.server_metrics();
        let seen = server.borrow_watched();
        let members = &seen.membership_config;
        let former = members.log_id().is_some_and(|id| id.leader_id.term < term);
        let joint = members.membership().get_joint_config();
        match joint.last() {
            Some(last) if former && joint.len() > 1 => last.clone(),
            _ => return,
        }
    };
    tracing::info!(?voters, "finishing a change of voters that a former leader began");
    let finished = raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), true).await;
    if let Err(error) = finished.map_err(|error| match error {
        RaftError::Fatal(fatal) => Failure::from(fatal).to_string(),
        RaftError::APIError(error) => error.to_string(),
    }) {
        tracing::warn!(error, "the change of voters is not finished; the next leader tries again");
    }
}
