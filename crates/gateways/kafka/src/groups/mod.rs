//! Groups: who consumes together, who gets which partitions, and how far they have come.
//!
//! Four protocols share the names: the classic one, in which a member of the group divides the
//! partitions; KIP-848's, in which the group does; and KIP-932's of share groups, whose members
//! settle records one by one ([`crate::share`]). Who the members are is volatile; what they
//! have committed is durable, in the log. Where Kafka persists membership, members here are
//! told after a restart that they are unknown, and join again.
//!
//! * `classic`: the classic protocol, a pure state machine
//! * `consumer`: KIP-848's protocol, another; `assignor`, `assignment`: how it divides partitions
//! * `subscription`: what members want to consume, and what of it exists
//! * `share`: share groups, a third
//! * `streams`: groups of Kafka Streams applications (KIP-1071), a fourth: topology, tasks
//! * `registry`: the shell around the machines: locks, deadlines, answers that come later
//! * `classic_requests`, `consumer_requests`, `share_requests`, `streams_requests`, `offset_requests`,
//!   `share_offset_requests`, `admin_requests`: from messages to events, and back
//! * `committed`: which groups have committed offsets
//! * `expiry`: offsets of groups that are no longer used

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::gateway::{Gateway, Session};
use crate::request::{Request, RequestError};
use crate::response::Response;

mod admin_requests;
mod assignment;
mod assignor;
mod classic;
mod classic_requests;
mod committed;
mod consumer;
mod consumer_requests;
mod expiry;
pub(crate) mod member;
mod offset_requests;
mod registry;
mod share;
mod share_offset_requests;
mod share_requests;
mod streams;
pub(crate) mod streams_requests;
mod subscription;

pub(crate) use registry::Groups;

/// Answers one group request.
pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    request: Request,
) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::FindCoordinator => admin_requests::find_coordinator(gateway, session, request),
        ApiKey::JoinGroup => classic_requests::join(gateway, session, request).await,
        ApiKey::SyncGroup => classic_requests::sync(gateway, request).await,
        ApiKey::Heartbeat => classic_requests::heartbeat(gateway, request),
        ApiKey::LeaveGroup => classic_requests::leave(gateway, request),
        ApiKey::ConsumerGroupHeartbeat => consumer_requests::heartbeat(gateway, session, request),
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
        ApiKey::OffsetDelete => offset_requests::delete(gateway, request).await,
        ApiKey::ListGroups => admin_requests::list(gateway, request).await,
        ApiKey::DescribeGroups => admin_requests::describe(gateway, request).await,
        ApiKey::DeleteGroups => admin_requests::delete(gateway, request).await,
        other => Err(RequestError::UnknownApi(other as i16)),
    }
}

/// The code of an outcome that has no message, 0 when it went well.
fn code_of<T>(result: Result<T, ResponseError>) -> i16 {
    result.err().map_or(0, |error| error.code())
}
