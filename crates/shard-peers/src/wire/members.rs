//! Query for the members of a shard's group, and its leader's reply.

use std::collections::BTreeSet;

use bytes::Bytes;
use links::Message;
use shard::error::Unavailable;

use super::{RemoteReply, RemoteRequest, bytes_of, elsewhere};

pub(crate) fn encode_members_request() -> Message {
    Message { head: bytes_of(&RemoteRequest::Members), body: Vec::new() }
}

pub fn encode_members_reply(members: Result<BTreeSet<u64>, Unavailable>) -> Bytes {
    bytes_of(&RemoteReply::Members(members))
}

/// Decodes the leader's reply.
pub(crate) fn members(answer: &[u8]) -> Result<BTreeSet<u64>, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::Members(members)) => members.map_err(elsewhere),
        _ => Err(Unavailable::Unanswered),
    }
}
