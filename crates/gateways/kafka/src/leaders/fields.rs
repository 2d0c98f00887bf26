//! Writes leader hints (KIP-951): the leader of a partition, and the endpoints of the leaders in a response.
//! Both are tagged fields of produce and fetch responses, and plain fields of share fetch and acknowledge
//! responses.

use bytes::{BufMut, BytesMut};

use crate::leaders::{CurrentLeader, ReachableNode};
use kafka_wire::primitives::PutPrimitives;

/// No leader is known, or none is reported.
const NONE: CurrentLeader = CurrentLeader { node: -1, epoch: -1 };
/// Bytes of a leader.
const LEADER_BYTES: u32 = 9;

pub(crate) fn put_leader(out: &mut BytesMut, leader: Option<CurrentLeader>) {
    let CurrentLeader { node, epoch } = leader.unwrap_or(NONE);
    out.put_i32(node);
    out.put_i32(epoch);
    out.put_no_tagged_fields(true);
}

pub(crate) fn put_endpoints(out: &mut BytesMut, nodes: &[ReachableNode]) {
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

/// Writes the tagged fields of a partition that has no other.
pub(crate) fn put_tagged_leader(out: &mut BytesMut, tag: u32, leader: Option<CurrentLeader>) {
    if leader.is_none() {
        return out.put_no_tagged_fields(true);
    }
    out.put_unsigned_varint(1);
    out.put_unsigned_varint(tag);
    out.put_unsigned_varint(LEADER_BYTES);
    put_leader(out, leader);
}

/// Writes the tagged fields of a response that has no other.
pub(crate) fn put_tagged_endpoints(out: &mut BytesMut, tag: u32, nodes: &[ReachableNode]) {
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
