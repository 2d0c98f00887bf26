//! Groups with committed offsets, and the errors for clients where that is unknown, or an offset cannot be
//! committed.

use broker::{ExecuteError, Unavailable};
use consumer_groups::limits::GROUPS_PER_LOOK;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::GroupId;

use crate::errors::Fault;
use crate::state::Gateway;

/// Whether a group has committed offsets.
pub(crate) async fn has_offsets(gateway: &Gateway, name: &str) -> Result<bool, ResponseError> {
    gateway.broker.shards().has_offsets(name).await.map_err(coordinator_unavailable)
}

/// Whether each group of a list has committed offsets. Queries a part of the list at a time, and only on
/// demand.
#[derive(Debug, Default)]
pub(crate) struct WithOffsets {
    /// Place of the first group of the last query.
    from: usize,
    known: Vec<Result<bool, ResponseError>>,
}

impl WithOffsets {
    /// Whether the group at this place in `names` has committed offsets.
    pub(crate) async fn at(
        &mut self,
        gateway: &Gateway,
        names: &[GroupId],
        place: usize,
    ) -> Result<bool, ResponseError> {
        if let Some(known) = place.checked_sub(self.from).and_then(|at| self.known.get(at)) {
            return *known;
        }
        let asked = names[place..].iter().take(GROUPS_PER_LOOK).map(|name| name.as_str());
        let asked: Vec<&str> = asked.collect();
        self.from = place;
        self.known = match gateway.broker.shards().have_offsets(&asked).await {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(unavailable) => vec![Err(coordinator_unavailable(unavailable)); asked.len()],
        };
        self.known[0]
    }
}

/// Maps a failed command to an error that makes the client look for the coordinator again.
pub(crate) fn coordinator_error(error: ExecuteError) -> ResponseError {
    match error {
        ExecuteError::Refused(refusal) => Fault::from(refusal).error,
        ExecuteError::Unavailable(unavailable) => coordinator_unavailable(unavailable),
    }
}

pub(crate) fn coordinator_unavailable(unavailable: Unavailable) -> ResponseError {
    match unavailable {
        Unavailable::NotLeader => ResponseError::NotCoordinator,
        Unavailable::Stopping | Unavailable::Failed(_) | Unavailable::Unanswered => {
            ResponseError::CoordinatorNotAvailable
        }
    }
}
