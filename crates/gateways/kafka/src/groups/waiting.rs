//! Requests that wait for a group: for its reply, or until its change is stored.

use coordinator::GroupAccess;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;

use crate::state::Gateway;

/// Applies an event to a group, and returns once its result is stored: no member knows more than the next
/// coordinator will.
pub(crate) async fn visit_to_store<R>(
    gateway: &Gateway,
    group: &str,
    event: impl FnOnce(GroupAccess<'_>) -> R,
) -> Result<R, ResponseError> {
    let (result, stored) = gateway.coordinator(group)?.visit_to_store(group, event);
    if let Some(mut stored) = stored {
        answer_or_drain(gateway, &mut stored).await?;
    }
    Ok(result)
}

/// Waits for a reply. The client looks for another coordinator if the node shuts down first, or no longer
/// coordinates the group: then the group is dropped with the sender.
pub(crate) async fn answer_or_drain<T>(
    gateway: &Gateway,
    answer: &mut oneshot::Receiver<T>,
) -> Result<T, ResponseError> {
    tokio::select! {
        biased;
        reply = answer => reply.map_err(|_| ResponseError::NotCoordinator),
        () = gateway.draining() => Err(ResponseError::CoordinatorNotAvailable),
    }
}
