//! Records of a request body: a JSON document, JSON lines, or a single value. Their number and memory are limited
//! while they are parsed.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use operations::payload::Payload;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use utoipa::ToSchema;

use crate::limits::{HTTP_RECORD_HEADERS_MAX, HTTP_RECORDS_HELD_BYTES_MAX, HTTP_RECORDS_MAX};
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::records::document::{NewHeader, NewRecord};

const LINES: [&str; 2] = ["application/x-ndjson", "application/jsonl"];
const DOCUMENTS: &str = "application/json";
const FIELD: &str = "records";
const KEY: &str = "postroad-key";
const HEADER_PREFIX: &str = "postroad-header-";
/// Memory overhead of an allocation.
const ALLOCATION_BYTES: usize = 32;

/// Records to be appended.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the schema of what `Records` reads")]
pub(in crate::v1) struct NewRecords {
    #[schema(min_items = 1, max_items = 10000)]
    records: Vec<NewRecord>,
}

/// Parses the records of a body by its content type.
pub(in crate::v1) fn records_of(
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Vec<NewRecord>, Problem> {
    let content = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let content = content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut records = Records::default();
    if content == DOCUMENTS {
        let mut document = serde_json::Deserializer::from_slice(&body);
        let read = records.deserialize(&mut document).and_then(|()| document.end());
        records.check()?;
        read.map_err(|error| request_input::malformed(&error))?;
    } else if LINES.contains(&&*content) {
        let lines = body.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            records.add(
                serde_json::from_slice(line).map_err(|error| request_input::malformed(&error))?,
            );
            records.check()?;
        }
    } else {
        records.add(raw(headers, body)?);
    }
    match records.all.is_empty() {
        true => Err(Records::count_problem()),
        false => Ok(records.all),
    }
}

/// A record whose value is the body.
fn raw(headers: &HeaderMap, body: Bytes) -> Result<NewRecord, Problem> {
    let bytes = |value: &axum::http::HeaderValue| Payload::copied(value.as_bytes());
    let named = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(HEADER_PREFIX)?.to_owned();
        Some(NewHeader { name, value: Some(bytes(value)) })
    });
    let unknown = headers.keys().map(|name| name.as_str()).find(|name| {
        name.starts_with("postroad-") && *name != KEY && !name.starts_with(HEADER_PREFIX)
    });
    if let Some(name) = unknown {
        let detail =
            format!("the header {name} means nothing here; {KEY} and {HEADER_PREFIX}NAME do");
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    Ok(NewRecord {
        key: headers.get(KEY).map(bytes),
        value: Some(Payload(body)),
        headers: named.collect(),
        ..NewRecord::default()
    })
}

/// Records in the order of the request. Parsing stops at the record that exceeds a limit.
#[derive(Default)]
pub(in crate::v1) struct Records {
    all: Vec<NewRecord>,
    /// Number of records in all lists of the request.
    count: usize,
    bytes: usize,
    problem: Option<Problem>,
}

impl Records {
    fn count_problem() -> Problem {
        let detail = format!("a request has 1 to {HTTP_RECORDS_MAX} records");
        Problem::limited(Kind::BadRequest, detail, HTTP_RECORDS_MAX as u64)
    }

    fn add(&mut self, record: NewRecord) {
        self.bytes += held(&record);
        self.count += 1;
        if self.count > HTTP_RECORDS_MAX {
            self.problem = Some(Self::count_problem());
        } else if self.bytes > HTTP_RECORDS_HELD_BYTES_MAX {
            let detail = format!(
                "the records of the request take more than {HTTP_RECORDS_HELD_BYTES_MAX} bytes of memory"
            );
            let limit = HTTP_RECORDS_HELD_BYTES_MAX as u64;
            self.problem = Some(Problem::limited(Kind::TooLarge, detail, limit));
        } else {
            self.all.push(record);
        }
    }

    pub(in crate::v1) fn check(&mut self) -> Result<(), Problem> {
        self.problem.take().map_or(Ok(()), Err)
    }
}

/// Memory that a record occupies.
fn held(record: &NewRecord) -> usize {
    let of = |payload: &Option<Payload>| {
        payload.as_ref().map_or(0, |payload| payload.len() + ALLOCATION_BYTES)
    };
    let of_header = |header: &NewHeader| {
        size_of::<NewHeader>() + ALLOCATION_BYTES + header.name.len() + of(&header.value)
    };
    let headers: usize = record.headers.iter().map(of_header).sum();
    let json = record.value_json.as_ref().map_or(0, |json| json.0.len() + ALLOCATION_BYTES);
    let id = record.id.as_ref().map_or(0, |id| id.len() + ALLOCATION_BYTES);
    size_of::<NewRecord>() + of(&record.key) + of(&record.value) + json + id + headers
}

/// Parses `{"records": [...]}`.
impl<'de> DeserializeSeed<'de> for &mut Records {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Records {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with records")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut is_read = false;
        while let Some(name) = object.next_key::<Name>()? {
            let Name::Records = name;
            if is_read {
                return Err(de::Error::duplicate_field(FIELD));
            }
            is_read = true;
            object.next_value_seed(List(&mut *self))?;
        }
        if is_read { Ok(()) } else { Err(de::Error::missing_field(FIELD)) }
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "kebab-case")]
enum Name {
    Records,
}

/// Parses a list of records into `all`.
struct List<'a>(&'a mut Records);

/// Parses one of several lists of records.
pub(in crate::v1) struct OneList<'a>(pub(in crate::v1) &'a mut Records);

impl<'de> DeserializeSeed<'de> for OneList<'_> {
    type Value = Vec<NewRecord>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<NewRecord>, D::Error> {
        List(&mut *self.0).deserialize(from)?;
        Ok(std::mem::take(&mut self.0.all))
    }
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element()? {
            self.0.add(record);
            if self.0.problem.is_some() {
                return Err(de::Error::custom("there are too many records"));
            }
        }
        Ok(())
    }
}

/// Headers of one record.
pub(in crate::v1) fn headers<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<NewHeader>, D::Error> {
    struct Headers;

    impl<'de> Visitor<'de> for Headers {
        type Value = Vec<NewHeader>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of headers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<NewHeader>, A::Error> {
            let mut headers = Vec::new();
            while let Some(header) = list.next_element()? {
                if headers.len() == HTTP_RECORD_HEADERS_MAX {
                    let detail = format!("a record has at most {HTTP_RECORD_HEADERS_MAX} headers");
                    return Err(de::Error::custom(detail));
                }
                headers.push(header);
            }
            Ok(headers)
        }
    }

    from.deserialize_seq(Headers)
}

#[cfg(test)]
pub(in crate::v1) mod tests {
    use super::*;

    pub(in crate::v1) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (axum::http::HeaderName::from_static(name), value.parse().expect("a value"))
        };
        pairs.iter().map(pair).collect()
    }

    fn read(content: &str, body: impl Into<Bytes>) -> Result<Vec<NewRecord>, Problem> {
        records_of(&headers(&[("content-type", content)]), body.into())
    }

    #[test]
    fn body_is_a_json_document_json_lines_or_a_raw_value() {
        let json = read("application/json; charset=utf-8", r#"{"records":[{"value":"a"},{}]}"#);
        assert_eq!(json.expect("records").len(), 2);
        let lines = read("application/x-ndjson", "{\"value\":\"a\"}\n\n{\"key\":\"k\"}\r\n");
        assert_eq!(lines.expect("records").len(), 2);
        let raw = read("text/plain", "{\"value\":1}").expect("a record");
        assert_eq!(raw[0].value, Some(Payload::copied(b"{\"value\":1}")));
        for wrong in [
            r#"{"records":[{"valeu":"a"}]}"#,
            r#"{"records":[{}],"records":[{}]}"#,
            r#"{"records":[{}],"x":1}"#,
            r#"{"records":[{}]} 1"#,
            r#"{"records":[]}"#,
            r#"{"record":[]}"#,
            "{}",
            "[]",
            "",
        ] {
            assert!(read("application/json", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn raw_value_takes_its_key_and_headers_from_the_request() {
        let said = headers(&[("postroad-key", "k"), ("postroad-header-colour", "red")]);
        let record = raw(&said, Bytes::from_static(b"\xff")).expect("a record");
        assert_eq!(record.key, Some(Payload::copied(b"k")));
        assert_eq!(record.headers[0].name, "colour");
        assert!(raw(&headers(&[("postroad-partition", "1")]), Bytes::new()).is_err());
    }

    #[test]
    fn parsing_stops_at_the_first_record_over_the_limit() {
        let body = |records: usize, end: &str| {
            format!("{{\"records\":[{}{end}", vec!["{}"; records].join(","))
        };
        let fits = read("application/json", body(HTTP_RECORDS_MAX, "]}"));
        assert_eq!(fits.expect("they fit").len(), HTTP_RECORDS_MAX);
        // Parsing ends before the last byte, which is invalid JSON.
        let lines = "{}\n".repeat(HTTP_RECORDS_MAX + 1) + "?";
        for (content, body) in
            [("application/json", body(HTTP_RECORDS_MAX + 2, "?")), ("application/x-ndjson", lines)]
        {
            let problem = read(content, body).expect_err("there are too many");
            assert_eq!(problem, Records::count_problem(), "{content}");
        }
    }

    #[test]
    fn headers_and_memory_of_records_are_limited() {
        let record = |headers: usize| {
            format!("{{\"headers\":[{}]}}", vec!["{\"name\":\"\"}"; headers].join(","))
        };
        assert!(read("application/x-ndjson", record(HTTP_RECORD_HEADERS_MAX)).is_ok());
        assert!(read("application/x-ndjson", record(HTTP_RECORD_HEADERS_MAX + 1)).is_err());
        let lines = (record(HTTP_RECORD_HEADERS_MAX) + "\n").repeat(150);
        let problem = read("application/x-ndjson", lines).expect_err("they take too much");
        assert_eq!(problem.kind(), Kind::TooLarge);
    }
}
