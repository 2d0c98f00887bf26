//! Writing where clients are sent instead (KIP-951): the leader of a partition, and the endpoints of those that an answer
//! names. Both are tagged fields of produce and fetch responses, and plain ones of those of share groups.

use bytes::{BufMut, BytesMut};

use crate::leaders::{CurrentLeader, Reached};
use crate::wire::primitives::Put;

/// A leader is not known, or not told.
const NONE: CurrentLeader = CurrentLeader { node: -1, epoch: -1 };
/// The bytes of a leader.
const LEADER_BYTES: u32 = 9;

pub(crate) fn put_leader(out: &mut BytesMut, leader: Option<CurrentLeader>) {
    let CurrentLeader { node, epoch } = leader.unwrap_or(NONE);
    out.put_i32(node);
    out.put_i32(epoch);
    out.put_no_tagged_fields(true);
}

pub(crate) fn put_endpoints(out: &mut BytesMut, nodes: &[Reached]) {
    out.put_count(nodes.len(), true);
    for node in nodes {
        let endpoint = &node.at;
        out.put_i32(node.id as i32);
        out.put_nullable_text(Some(&endpoint.host), true);
        out.put_i32(i32::from(endpoint.port));
        out.put_nullable_text(node.rack.as_deref(), true);
        out.put_no_tagged_fields(true);
    }
}

/// The tagged fields of a partition that has no other.
pub(crate) fn put_tagged_leader(out: &mut BytesMut, tag: u32, leader: Option<CurrentLeader>) {
    if leader.is_none() {
        return out.put_no_tagged_fields(true);
    }
    out.put_unsigned_varint(1);
    out.put_unsigned_varint(tag);
    out.put_unsigned_varint(LEADER_BYTES);
    put_leader(out, leader);
}

/// The tagged fields of a response that has no other.
pub(crate) fn put_tagged_endpoints(out: &mut BytesMut, tag: u32, nodes: &[Reached]) {
    if nodes.is_empty() {
        return out.put_no_tagged_fields(true);
    }
    let mut endpoints = BytesMut::new();
    put_endpoints(&mut endpoints, nodes);
    out.put_unsigned_varint(1);
    out.put_unsigned_varint(tag);
    out.put_unsigned_varint(endpoints.len() as u32);
    out.put_slice(&endpoints);
}
