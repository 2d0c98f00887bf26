//! Requests to nodes, apart from those about rows: state of groups, stored data, leadership, users of sessions.

use bytes::Bytes;
use dispatch::SessionId;
use links::Message;
use shard::delivery::history::{HistoryQuery, HistoryReply, SessionUser};
use shard::error::Unavailable;

use super::{RemoteReply, RemoteRequest, bytes_of};
use crate::group_status::GroupStatus;
use crate::stored_status::StoredStatus;

pub(crate) fn encode_groups_request() -> Message {
    Message { head: bytes_of(&RemoteRequest::Groups), body: Vec::new() }
}

pub fn encode_groups_reply(groups: Vec<GroupStatus>) -> Bytes {
    bytes_of(&RemoteReply::Groups(groups))
}

/// Decodes the node's reply.
pub(crate) fn groups(answer: &[u8]) -> Result<Vec<GroupStatus>, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::Groups(groups)) => Ok(groups),
        _ => Err(Unavailable::Unanswered),
    }
}

pub(crate) fn encode_stored_request() -> Message {
    Message { head: bytes_of(&RemoteRequest::Stored), body: Vec::new() }
}

pub fn encode_stored_reply(stored: StoredStatus) -> Bytes {
    bytes_of(&RemoteReply::Stored(stored))
}

/// Decodes the node's reply.
pub(crate) fn stored(answer: &[u8]) -> Result<StoredStatus, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::Stored(stored)) => Ok(stored),
        _ => Err(Unavailable::Unanswered),
    }
}

pub(crate) fn encode_follow_catalog_request(index: u64) -> Message {
    Message { head: bytes_of(&RemoteRequest::FollowCatalog { index }), body: Vec::new() }
}

pub fn encode_follows_catalog_reply(follows: bool) -> Bytes {
    bytes_of(&RemoteReply::FollowsCatalog(follows))
}

/// Whether the reply ends the wait for the node: it follows the catalog, or knows that it is behind.
pub(crate) fn follows_catalog(answer: &[u8]) -> bool {
    matches!(postcard::from_bytes(answer), Ok(RemoteReply::FollowsCatalog(_)))
}

pub(crate) fn encode_hand_over_request(to: u64) -> Message {
    Message { head: bytes_of(&RemoteRequest::HandOver { to }), body: Vec::new() }
}

pub fn encode_hand_over_reply(done: Result<(), String>) -> Bytes {
    bytes_of(&RemoteReply::HandOver(done))
}

/// Decodes the leader's reply; `None` if it is unknown.
pub(crate) fn hand_over(answer: &[u8]) -> Option<Result<(), String>> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::HandOver(done)) => Some(done),
        _ => None,
    }
}

pub(crate) fn encode_look_request(look: HistoryQuery) -> Message {
    Message { head: bytes_of(&RemoteRequest::Look(look)), body: Vec::new() }
}

pub fn encode_look_reply(looked: HistoryReply) -> Bytes {
    bytes_of(&RemoteReply::Looked(looked))
}

/// Decodes the node's reply.
pub(crate) fn looked(answer: &[u8]) -> Result<HistoryReply, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::Looked(looked)) => Ok(looked),
        _ => Err(Unavailable::Unanswered),
    }
}

pub(crate) fn encode_session_users_request(sessions: &[SessionId]) -> Message {
    Message { head: bytes_of(&RemoteRequest::SessionUsers(sessions.to_vec())), body: Vec::new() }
}

pub fn encode_session_users_reply(users: Vec<Option<SessionUser>>) -> Bytes {
    bytes_of(&RemoteReply::SessionUsers(users))
}

/// Decodes the node's reply.
pub(crate) fn session_users(answer: &[u8]) -> Result<Vec<Option<SessionUser>>, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::SessionUsers(users)) => Ok(users),
        _ => Err(Unavailable::Unanswered),
    }
}
