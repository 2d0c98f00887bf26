//! Parses the nested arrays of stream replies.

use bytes::Bytes;
use redis::Value;

/// An entry: its id and its body. A deleted entry has no body.
pub(super) type Entry = (String, Option<Bytes>);

/// The streams of an `XREADGROUP`, each with its entries.
pub(super) fn streams(reply: Value) -> Vec<(String, Vec<Entry>)> {
    match reply {
        Value::Array(streams) => streams
            .into_iter()
            .filter_map(|stream| {
                let [name, entries] = pair(stream)?;
                Some((text(&name)?, entries_of(entries)))
            })
            .collect(),
        Value::Map(streams) => streams
            .into_iter()
            .filter_map(|(name, entries)| Some((text(&name)?, entries_of(entries))))
            .collect(),
        _ => Vec::new(),
    }
}

/// The cursor and the entries of an `XAUTOCLAIM`.
pub(super) fn claimed(reply: Value) -> Option<(String, Vec<Entry>)> {
    let Value::Array(parts) = reply else { return None };
    let mut parts = parts.into_iter();
    Some((text(&parts.next()?)?, entries_of(parts.next()?)))
}

fn entries_of(entries: Value) -> Vec<Entry> {
    let Value::Array(entries) = entries else { return Vec::new() };
    entries
        .into_iter()
        .filter_map(|entry| {
            let [id, fields] = pair(entry)?;
            Some((text(&id)?, body(fields)))
        })
        .collect()
}

/// Value of the entry's only field.
fn body(fields: Value) -> Option<Bytes> {
    let [_, value] = pair(fields)?;
    match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    }
}

fn pair(value: Value) -> Option<[Value; 2]> {
    let Value::Array(values) = value else { return None };
    values.try_into().ok()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
