//! Rows brought by other nodes (version 8).
//!
//! ```text
//! nodes x BroughtV8 by number
//! ```

use std::sync::Arc;

use super::{inconsistent, put, take};
use crate::entry::DecodeError;
use crate::rows::requests::{ForwardedRows, Requests, Run};
use crate::stored::BroughtV8;

pub(super) fn encode(requests: &Requests, mut bytes: Vec<u8>) -> Vec<u8> {
    for (&node, brought) in &requests.nodes {
        let ForwardedRows { incarnation, next, taken, at_ms } = &**brought;
        let run = |run: &Run| (run.number, run.rows, run.base_offset, run.span);
        let taken = taken.iter().map(run).collect();
        let stored =
            BroughtV8 { node, incarnation: *incarnation, next: *next, at_ms: *at_ms, taken };
        bytes = put(bytes, &stored);
    }
    bytes
}

pub(super) fn decode(nodes: u64, body: &mut &[u8]) -> Result<Requests, DecodeError> {
    if nodes == 0 {
        return Err(inconsistent("what nodes brought", "without any"));
    }
    let mut requests = Requests::default();
    for _ in 0..nodes {
        let BroughtV8 { node, incarnation, next, at_ms, taken } =
            take(body, "what a node brought")?;
        let run = |(number, rows, base_offset, span)| Run { number, rows, base_offset, span };
        let taken = taken.into_iter().map(run).collect();
        let brought = ForwardedRows { incarnation, next, taken, at_ms };
        if !brought.is_sound() || requests.nodes.insert(node, Arc::new(brought)).is_some() {
            return Err(inconsistent("what was brought by node", node));
        }
    }
    Ok(requests)
}
