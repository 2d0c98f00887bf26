//! Records as documents of requests and responses.

use base::headers::{DELIVER_AT, EXPIRES_AT, ID, PRIORITY, RESERVED_PREFIX};
use bytes::Bytes;
use operations::document::{StoredHeader, StoredRecord};
use operations::payload::Payload;
use record::{EncodedHeaders, RecordView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};
use crate::v1::records::json::ShortJson;
use crate::v1::records::new_records;

/// Bytes: a string where they are text, else `{"base64": ".."}`.
#[derive(ToSchema)]
#[schema(as = Bytes)]
#[allow(dead_code, reason = "the schema of `Payload`, which is of another crate")]
#[serde(untagged)]
pub(in crate::v1) enum BytesSchema {
    Text(String),
    Binary { base64: String },
}

/// A record to be appended.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct NewRecord {
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) key: Option<Payload>,
    /// Null, or not there: a record without a value, which deletes its key in a compacted topic.
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) value: Option<Payload>,
    /// Any JSON, in place of `value`.
    #[schema(value_type = Option<Object>)]
    pub(super) value_json: Option<ShortJson>,
    #[serde(deserialize_with = "new_records::headers")]
    #[schema(max_items = 10000)]
    pub(in crate::v1) headers: Vec<NewHeader>,
    /// Else by the key, or in turn.
    pub(in crate::v1) partition: Option<u32>,
    /// Else the time at which it comes.
    pub(super) timestamp_ms: Option<i64>,
    /// Not delivered to a group before this time.
    pub(super) deliver_at_ms: Option<i64>,
    /// Not delivered to a group after this time.
    pub(super) expires_at_ms: Option<i64>,
    /// 0 to 255; the higher is delivered first, where the topic has an order of priorities.
    pub(super) priority: Option<u8>,
    /// By which a second copy of it is found, where the topic has a window for that.
    pub(in crate::v1) id: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct NewHeader {
    pub(in crate::v1) name: String,
    #[serde(default)]
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) value: Option<Payload>,
}

impl NewRecord {
    /// The bytes of its value.
    pub(in crate::v1) fn value(&self) -> Result<Option<Bytes>, Problem> {
        match (&self.value, &self.value_json) {
            (Some(_), Some(_)) => Err(invalid("a record has a value or a value_json, not both")),
            (Some(value), None) => Ok(Some(value.0.clone())),
            (None, Some(json)) => Ok(Some(json.0.clone())),
            (None, None) => Ok(None),
        }
    }

    /// Encodes its headers, including those for its fields.
    pub(super) fn write_headers(&self, out: &mut EncodedHeaders) -> Result<(), Problem> {
        out.clear();
        for NewHeader { name, value } in &self.headers {
            if name.starts_with(RESERVED_PREFIX) {
                let text = format!(
                    "the header {name}: names that begin with {RESERVED_PREFIX} are fields here"
                );
                return Err(invalid(text));
            }
            out.push(name.as_bytes(), value.as_ref().map(|value| &value.0[..]));
        }
        let number = |number: i64| number.to_string();
        let said = [
            (DELIVER_AT, self.deliver_at_ms.map(number)),
            (EXPIRES_AT, self.expires_at_ms.map(number)),
            (PRIORITY, self.priority.map(|priority| priority.to_string())),
            (ID, self.id.clone()),
        ];
        for (name, value) in said {
            if let Some(value) = value {
                out.push(name.as_bytes(), Some(value.as_bytes()));
            }
        }
        Ok(())
    }

    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
    }
}

fn invalid(text: impl Into<String>) -> Problem {
    Problem::new(Kind::BadRequest, text)
}

/// A record as it lies in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(in crate::v1) struct Record {
    pub(in crate::v1) partition: u32,
    pub(in crate::v1) offset: u64,
    pub(super) timestamp_ms: i64,
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) key: Option<Payload>,
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) value: Option<Payload>,
    pub(in crate::v1) headers: Vec<Header>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(in crate::v1) struct Header {
    pub(in crate::v1) name: String,
    #[schema(value_type = Option<BytesSchema>)]
    pub(in crate::v1) value: Option<Payload>,
}

impl From<StoredRecord> for Record {
    fn from(record: StoredRecord) -> Self {
        let StoredRecord { partition, offset, timestamp_ms, key, value, headers } = record;
        let header = |StoredHeader { name, value }| Header { name, value };
        let headers = headers.into_iter().map(header).collect();
        Self { partition, offset, timestamp_ms, key, value, headers }
    }
}

impl Record {
    pub(in crate::v1) fn of(partition: u32, offset: u64, view: &RecordView<'_>) -> Self {
        let headers = view.headers.iter().map(|header| Header {
            name: String::from_utf8_lossy(header.key).into_owned(),
            value: header.value.map(Payload::copied),
        });
        Self {
            partition,
            offset,
            timestamp_ms: view.timestamp,
            key: view.key.map(Payload::copied),
            value: view.value.map(Payload::copied),
            headers: headers.collect(),
        }
    }
}
