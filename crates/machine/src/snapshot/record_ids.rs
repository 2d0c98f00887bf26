//! Ids of records (version 9).
//!
//! ```text
//! topics with some x (TopicIdsV9, its IdV9s in the order of arrival) by id
//! ```

use base::TopicId;

use super::{RECORD_IDS_SINCE, inconsistent, put, take};
use crate::entry::DecodeError;
use crate::ids::KnownId;
use crate::rows::Rows;
use crate::rows::record_ids::{RecordIds, TopicIdsImage};
use crate::stored::{IdV9, PartsV9, TopicIdsV9};

/// Captured ids. Their memory is shared with the state.
#[derive(Clone, Debug)]
pub(super) struct RecordIdsImage {
    pub(super) topics: Vec<(TopicId, TopicIdsImage)>,
    pub(super) complete: bool,
    pub(super) forgotten_early: u64,
    pub(super) is_unused: bool,
}

impl RecordIdsImage {
    pub(super) fn of(ids: &RecordIds) -> Self {
        Self {
            topics: ids.image(),
            complete: ids.complete,
            forgotten_early: ids.forgotten_early,
            is_unused: ids.is_unused(),
        }
    }
}

pub(super) fn encode(image: &RecordIdsImage, mut bytes: Vec<u8>) -> Vec<u8> {
    for (topic, image) in &image.topics {
        let forgotten_to_ms = image.forgotten_to_ms;
        bytes = put(bytes, &TopicIdsV9 { topic: topic.0, forgotten_to_ms, ids: image.len() });
        let mut former_ms = 0;
        for KnownId { hash, at_ms, partition, offset } in image.iter() {
            let later_ms = at_ms - former_ms;
            former_ms = at_ms;
            bytes = put(bytes, &IdV9 { hash: hash.to_be_bytes(), later_ms, partition, offset });
        }
    }
    bytes
}

pub(super) fn decode(
    rows: &mut Rows,
    version: u16,
    parts: &PartsV9,
    body: &mut &[u8],
) -> Result<(), DecodeError> {
    let mut ids = RecordIds::default();
    (ids.complete, ids.forgotten_early) = (parts.ids_complete, parts.ids_forgotten_early);
    for _ in 0..parts.with_ids {
        let TopicIdsV9 { topic, forgotten_to_ms, ids: count } = take(body, "ids of a topic")?;
        let wrong = || inconsistent("ids of topic", topic);
        if !rows.topics.contains_key(&TopicId(topic)) {
            return Err(wrong());
        }
        let (mut former_ms, mut failed) = (0_i64, None);
        let known = (0..count).map_while(|_| {
            let IdV9 { hash, later_ms, partition, offset } = match take(body, "an id") {
                Ok(id) => id,
                Err(error) => {
                    failed = Some(error);
                    return None;
                }
            };
            let at_ms = former_ms.saturating_add(later_ms);
            former_ms = at_ms;
            Some(KnownId { hash: u128::from_be_bytes(hash), at_ms, partition, offset })
        });
        let restored = ids.restore_topic(TopicId(topic), forgotten_to_ms, known);
        if let Some(error) = failed {
            return Err(error);
        }
        restored.ok_or_else(wrong)?;
    }
    if ids.is_unused() && version == RECORD_IDS_SINCE {
        return Err(inconsistent("ids of records", "without any"));
    }
    rows.record_ids = ids;
    Ok(())
}
