//! Headers that the broker itself reads ([`base::headers`] has their names). They are part of the
//! record like any other, so that a record means the same through every protocol.
//!
//! Values are decimal text: a user can set them with any client, and read them with any tool. An
//! invalid value is ignored, because a record in the log can no longer be refused.

use base::headers;

use crate::records::{Header, HeadersView};

const PREFIX: &[u8] = headers::RESERVED_PREFIX.as_bytes();
const DELIVER_AT: &[u8] = headers::DELIVER_AT.as_bytes();
const EXPIRES_AT: &[u8] = headers::EXPIRES_AT.as_bytes();
const PRIORITY: &[u8] = headers::PRIORITY.as_bytes();
const ID: &[u8] = headers::ID.as_bytes();

/// A record's headers that control the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservedHeaders<'a> {
    pub deliver_at_ms: Option<i64>,
    pub expires_at_ms: Option<i64>,
    pub priority: Option<u8>,
    pub id: Option<&'a [u8]>,
}

impl<'a> ReservedHeaders<'a> {
    /// The last of repeated headers takes precedence.
    #[inline]
    pub fn read(headers: &HeadersView<'a>) -> Self {
        let mut reserved = Self::default();
        if headers.is_empty() {
            return reserved;
        }
        for Header { key, value } in headers.iter() {
            if !key.starts_with(PREFIX) {
                continue;
            }
            match key {
                DELIVER_AT => reserved.deliver_at_ms = number(value),
                EXPIRES_AT => reserved.expires_at_ms = number(value),
                PRIORITY => {
                    let asked: Option<i64> = number(value);
                    reserved.priority = asked.map(|asked| asked.clamp(0, 255) as u8);
                }
                ID => reserved.id = value,
                _ => {}
            }
        }
        reserved
    }
}

fn number(value: Option<&[u8]>) -> Option<i64> {
    std::str::from_utf8(value?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, BatchBuilder, BatchOptions};

    fn batch(headers: &[Header<'_>]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, None, Some(b"v"), headers).expect("it fits");
        builder.finish()
    }

    #[test]
    fn headers_are_read_and_those_that_do_not_parse_are_ignored() {
        let header = |key, value: &'static [u8]| Header { key, value: Some(value) };
        let bytes = batch(&[
            header(b"x", b"y"),
            header(DELIVER_AT, b"12"),
            header(DELIVER_AT, b" 1700000000000 "),
            header(EXPIRES_AT, b"soon"),
            header(PRIORITY, b"900"),
            Header { key: ID, value: None },
            header(b"postroad.future", b"1"),
        ]);
        let batch = Batch::decode(&bytes).expect("a batch");
        let record = batch.records().next().expect("a record").expect("whole");
        let expected = ReservedHeaders {
            deliver_at_ms: Some(1_700_000_000_000),
            expires_at_ms: None,
            priority: Some(255),
            id: None,
        };
        assert_eq!(ReservedHeaders::read(&record.headers), expected);
    }
}
