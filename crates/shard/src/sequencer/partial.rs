//! Batches whose ids take long to read, and batches with copies that take long to rebuild without these: they are
//! compressed, or large. Others are rebuilt where they are sequenced.
//!
//! The request comes back after those that arrived meanwhile. An idempotent producer gets an error for the order, and
//! sends the batch again. Pipelined requests of another producer change their order, as after a retry of one of them.

use bytes::{Bytes, BytesMut};
use record::BatchHeader;

use super::proposal::Context;
use crate::cpu::{CpuPool, is_quick};
use crate::dedup::{self, CopyPositions};
use crate::record_ids::RecordIds;
use crate::request::Request;

/// Returns the copies in batches that are to be rebuilt elsewhere, by the batch's position.
pub(super) fn copies_in(request: &Request, context: &Context<'_>) -> Vec<(usize, CopyPositions)> {
    // Records moved by the broker from topic to topic are copies on purpose.
    let Request::Append { batches, .. } = request else { return Vec::new() };
    let found = batches.iter().enumerate().filter_map(|(place, batch)| {
        let ids = batch.ids.as_ref()?;
        let is_transactional = batch.header.attributes.is_transactional();
        if is_transactional || is_quick(&batch.header, batch.bytes.len()) {
            return None;
        }
        let topic = context.state.catalog.topic(batch.partition.topic)?;
        let window_ms = topic.config.dedup_window_ms;
        if window_ms == 0 {
            return None;
        }
        let from_ms = context.terms.now_ms.saturating_sub(window_ms);
        let stored = context.state.rows.record_ids();
        let copies = context.dedup.copies_among(topic.id, &batch.header, ids, from_ms, stored)?;
        Some((place, copies))
    });
    found.collect()
}

/// Returns the request with the ids of its batches.
pub(super) async fn with_ids(mut request: Request, cpu: CpuPool) -> Request {
    let Request::Append { batches, .. } = &mut request else { return request };
    for batch in batches.iter_mut().filter(|batch| batch.ids.is_none()) {
        let bytes = std::mem::take(&mut batch.bytes).freeze();
        let (ids, bytes) = cpu.run(move || (RecordIds::read(&bytes), bytes)).await;
        batch.bytes = bytes.try_into_mut().unwrap_or_else(BytesMut::from);
        batch.ids = Some(ids);
    }
    request
}

/// Returns the request with these batches rebuilt without their copies.
pub(super) async fn rebuilt_without(
    mut request: Request,
    copies: Vec<(usize, CopyPositions)>,
    cpu: CpuPool,
) -> Request {
    let Request::Append { batches, .. } = &mut request else { return request };
    for (place, copies) in copies {
        let Some(batch) = batches.get_mut(place) else { continue };
        let whole = std::mem::take(&mut batch.bytes).freeze();
        let (made, whole, copies) =
            cpu.run(move || (dedup::without(&whole, &copies), whole, copies)).await;
        let rest = made.and_then(|rest| Some((BatchHeader::parse(&rest).ok()?, rest)));
        match rest {
            Some((header, rest)) => {
                batch.header = header;
                batch.bytes = BytesMut::from(Bytes::from(rest));
                batch.ids = batch.ids.take().map(|ids| ids.without(&copies));
            }
            // Written whole: consumers cannot decode it either, so no record is delivered twice.
            None => {
                batch.bytes = BytesMut::from(whole);
                batch.ids = Some(RecordIds::default());
            }
        }
    }
    request
}
