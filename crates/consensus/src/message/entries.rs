//! The entries of an append: one after the other, each in its form in the journal.
//!
//! They are sent from their place in memory and sliced out of the receive buffer, so that no body is copied. Their
//! checksums are those that the journal wrote and will write.

use base::limits::{APPEND_ENTRIES_MAX, APPEND_MESSAGE_BYTES_MAX};
use bytes::Bytes;
use journal::Encoded;

use super::Refusal;
use crate::engine::Entry;
use crate::engine::LogId;
use crate::log_store;

/// The pieces behind the head of an append, which are not copied.
pub(crate) struct Entries {
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) bytes: usize,
}

/// Encodes entries that were read with their encoding.
pub(crate) fn encode_entries(entries: &[Entry]) -> Entries {
    let encoded =
        entries.iter().map(|entry| entry.encoded.as_ref().expect("the log reads them to be sent"));
    let bytes = encoded.clone().map(Encoded::size).sum();
    Entries { pieces: encoded.flat_map(Encoded::pieces).collect(), bytes }
}

/// Decodes `count` entries, which follow `previous` and each other, none of a later term than `term`. They share
/// the bytes.
pub(crate) fn decode_entries(
    mut bytes: Bytes,
    count: u32,
    previous: Option<LogId>,
    term: u64,
) -> Result<Vec<Entry>, Refusal> {
    let malformed = |what: &str| Refusal::Malformed(what.to_owned());
    if count as usize > APPEND_ENTRIES_MAX || bytes.len() > APPEND_MESSAGE_BYTES_MAX {
        return Err(malformed("it has too many entries"));
    }
    let mut last = previous;
    let mut entries = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let encoded =
            Encoded::split_off(&mut bytes).map_err(|error| malformed(&error.to_string()))?;
        let entry = log_store::encoded(encoded).map_err(|error| malformed(&error.to_string()))?;
        let follows = match last {
            Some(last) => {
                entry.log_id.index == last.index + 1 && entry.log_id.leader_id >= last.leader_id
            }
            None => entry.log_id.index == 0,
        };
        if !follows || entry.log_id.leader_id.term > term {
            return Err(malformed("its entries do not follow each other"));
        }
        last = Some(entry.log_id);
        entries.push(entry);
    }
    match bytes.is_empty() {
        true => Ok(entries),
        false => Err(malformed("more follows its entries")),
    }
}
