//! Groups: their members, assignments and committed offsets.
//!
//! Commits are durable before the response, and so are membership and assignments.
//!
//! The group protocols are in [`coordinator`], and the groups of this node in [`consumer_groups`]: both are independent
//! of messages and error codes.
//!
//! * `waiting`: requests that wait for a group
//! * `topics`: the catalog as groups need it
//! * `classic_requests`, `consumer_requests`, `share_requests`, `streams_requests`, `offset_requests`,
//!   `offset_delete_requests`, `share_offset_requests`, `admin_requests`: convert messages to events, and
//!   back
//! * `committed`: groups with committed offsets

use consumer_groups::tenants;
use coordinator::Group;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::authorization::Caller;
use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};

mod admin_requests;
mod classic_requests;
pub(crate) mod committed;
mod consumer_requests;
mod offset_delete_requests;
pub(crate) mod offset_requests;
mod share_offset_requests;
mod share_requests;
pub(crate) mod streams_requests;
pub(crate) mod text;
mod topics;
mod waiting;

/// Handles one group request.
pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    request: Request,
) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::FindCoordinator => {
            admin_requests::find_coordinator(gateway, session, request).await
        }
        ApiKey::JoinGroup => classic_requests::join(gateway, session, request).await,
        ApiKey::SyncGroup => classic_requests::sync(gateway, request).await,
        ApiKey::Heartbeat => classic_requests::heartbeat(gateway, request),
        ApiKey::LeaveGroup => classic_requests::leave(gateway, request).await,
        ApiKey::ConsumerGroupHeartbeat => {
            consumer_requests::heartbeat(gateway, session, request).await
        }
        ApiKey::ConsumerGroupDescribe => consumer_requests::describe(gateway, request).await,
        ApiKey::ShareGroupHeartbeat => share_requests::heartbeat(gateway, session, request).await,
        ApiKey::ShareGroupDescribe => share_requests::describe(gateway, request).await,
        ApiKey::DescribeShareGroupOffsets => {
            share_offset_requests::describe(gateway, request).await
        }
        ApiKey::AlterShareGroupOffsets => share_offset_requests::alter(gateway, request).await,
        ApiKey::DeleteShareGroupOffsets => share_offset_requests::delete(gateway, request).await,
        ApiKey::OffsetCommit => offset_requests::commit(gateway, request).await,
        ApiKey::OffsetFetch => offset_requests::fetch(gateway, request).await,
        ApiKey::OffsetDelete => offset_delete_requests::delete(gateway, request).await,
        ApiKey::ListGroups => admin_requests::list(gateway, request).await,
        ApiKey::DescribeGroups => admin_requests::describe(gateway, request).await,
        ApiKey::DeleteGroups => admin_requests::delete(gateway, request).await,
        other => Err(RequestError::UnknownApi(other as i16)),
    }
}

/// Refuses to describe a group if the caller may not see one of its topics, as Kafka does.
fn check_described(gateway: &Gateway, caller: &Caller, group: &Group) -> Result<(), Fault> {
    match tenants::may_be_described(&gateway.broker, caller.rights(), group) {
        true => Ok(()),
        false => Err(Fault::new(
            ResponseError::TopicAuthorizationFailed,
            "this user may not see all topics of the group",
        )),
    }
}

/// Code of a result without a message; 0 on success.
fn code_of<T>(result: Result<T, ResponseError>) -> i16 {
    result.err().map_or(0, |error| error.code())
}
