//! A record as a line of text, in and out.
//!
//! Plain lines are values, preceded by the key if a separator is given. JSON lines hold everything; `produce` accepts
//! the output of `consume`:
//!
//! ```json
//! {"topic":"t","partition":0,"offset":7,"timestamp_ms":1772366400000,
//!  "key":"k","value":"v","headers":[{"name":"n","value":"v"}]}
//! ```
//!
//! Bytes that are no UTF-8 are `{"base64":"..."}`, and null is `null`.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::{Header, RecordView};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Form of records in lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LineFormat {
    Plain {
        /// Between key and value; `None`: the line is the value.
        key_separator: Option<String>,
        /// Whether the headers precede the value (only on output).
        headers: bool,
    },
    Json,
}

/// A record parsed from a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ParsedRecord<'a> {
    pub(crate) key: Option<Cow<'a, [u8]>>,
    pub(crate) value: Option<Cow<'a, [u8]>>,
    pub(crate) headers: Vec<ParsedHeader<'a>>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) partition: Option<i32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParsedHeader<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) value: Option<Cow<'a, [u8]>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("it has no {0:?} between key and value")]
    NoSeparator(String),
    #[error("it is not a record in JSON: {0}")]
    Json(serde_json::Error),
}

impl LineFormat {
    /// Reads a line without its end.
    pub(crate) fn parse<'a>(&self, line: &'a [u8]) -> Result<ParsedRecord<'a>, LineError> {
        let plain = |key: Option<&'a [u8]>, value: &'a [u8]| ParsedRecord {
            key: key.map(Cow::Borrowed),
            value: Some(Cow::Borrowed(value)),
            ..ParsedRecord::default()
        };
        match self {
            LineFormat::Plain { key_separator: None, .. } => Ok(plain(None, line)),
            LineFormat::Plain { key_separator: Some(separator), .. } => {
                let wanted = separator.as_bytes();
                let at = line.windows(wanted.len()).position(|window| window == wanted);
                let at = at.ok_or_else(|| LineError::NoSeparator(separator.clone()))?;
                Ok(plain(Some(&line[..at]), &line[at + wanted.len()..]))
            }
            LineFormat::Json => {
                let record: JsonRecord<'a> =
                    serde_json::from_slice(line).map_err(LineError::Json)?;
                Ok(record.into())
            }
        }
    }

    /// Appends a record and the end of its line.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        topic: &str,
        partition: i32,
        record: &RecordView<'_>,
    ) {
        match self {
            LineFormat::Plain { key_separator, headers } => {
                if *headers {
                    write_plain_headers(out, record);
                }
                if let Some(separator) = key_separator {
                    out.extend_from_slice(record.key.unwrap_or_default());
                    out.extend_from_slice(separator.as_bytes());
                }
                out.extend_from_slice(record.value.unwrap_or_default());
            }
            LineFormat::Json => {
                let record = WrittenRecord {
                    topic,
                    partition,
                    offset: record.offset,
                    timestamp_ms: record.timestamp,
                    key: record.key.map(Text),
                    value: record.value.map(Text),
                    headers: WrittenHeaders(record),
                };
                serde_json::to_writer(&mut *out, &record).expect("a vector grows");
            }
        }
        out.push(b'\n');
    }
}

fn write_plain_headers(out: &mut Vec<u8>, record: &RecordView<'_>) {
    for (place, header) in record.headers.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(header.key);
        out.push(b'=');
        out.extend_from_slice(header.value.unwrap_or_default());
    }
    out.push(b'\t');
}

impl ParsedRecord<'_> {
    /// Its headers in the form of the batch builder, after those common to all records.
    pub(crate) fn headers<'b>(&'b self, common: &'b [(String, String)]) -> Vec<Header<'b>> {
        let common = common
            .iter()
            .map(|(name, value)| Header { key: name.as_bytes(), value: Some(value.as_bytes()) });
        let own = self
            .headers
            .iter()
            .map(|header| Header { key: header.name.as_bytes(), value: header.value.as_deref() });
        common.chain(own).collect()
    }
}

// ------------------------------------------------------------------------------------ JSON, out

#[derive(Serialize)]
struct WrittenRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: u64,
    timestamp_ms: i64,
    key: Option<Text<'a>>,
    value: Option<Text<'a>>,
    headers: WrittenHeaders<'a>,
}

/// Bytes, as text if they are.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => {
                let mut map = to.serialize_map(Some(1))?;
                map.serialize_entry("base64", &BASE64.encode(self.0))?;
                map.end()
            }
        }
    }
}

struct WrittenHeaders<'a>(&'a RecordView<'a>);

#[derive(Serialize)]
struct WrittenHeader<'a> {
    name: Cow<'a, str>,
    value: Option<Text<'a>>,
}

impl Serialize for WrittenHeaders<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.headers.iter().map(|header| WrittenHeader {
            name: String::from_utf8_lossy(header.key),
            value: header.value.map(Text),
        }))
    }
}

// ------------------------------------------------------------------------------------- JSON, in

/// `topic` and `offset` are the record's former place; they do not determine its target.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRecord<'a> {
    #[serde(borrow, default)]
    key: Option<Payload<'a>>,
    #[serde(borrow, default)]
    value: Option<Payload<'a>>,
    #[serde(borrow, default)]
    headers: JsonHeaders<'a>,
    #[serde(default)]
    timestamp_ms: Option<i64>,
    #[serde(default)]
    partition: Option<i32>,
    #[serde(default, rename = "topic")]
    _topic: de::IgnoredAny,
    #[serde(default, rename = "offset")]
    _offset: de::IgnoredAny,
}

impl<'a> From<JsonRecord<'a>> for ParsedRecord<'a> {
    fn from(record: JsonRecord<'a>) -> Self {
        ParsedRecord {
            key: record.key.map(|key| key.0),
            value: record.value.map(|value| value.0),
            headers: record.headers.0,
            // -1 stands for no timestamp.
            timestamp_ms: record.timestamp_ms.filter(|timestamp| *timestamp >= 0),
            partition: record.partition,
        }
    }
}

/// A string, or `{"base64": "..."}`.
struct Payload<'a>(Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Payload<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PayloadVisitor;
        impl<'de> Visitor<'de> for PayloadVisitor {
            type Value = Payload<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, null or {\"base64\": \"...\"}")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Payload(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Payload(Cow::Owned(text.as_bytes().to_vec())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let Some(("base64", encoded)) = map.next_entry::<&str, &str>()? else {
                    return Err(de::Error::custom("an object here is {\"base64\": \"...\"}"));
                };
                let bytes = BASE64.decode(encoded).map_err(de::Error::custom)?;
                Ok(Payload(Cow::Owned(bytes)))
            }
        }
        from.deserialize_any(PayloadVisitor)
    }
}

/// `[{"name": "a", "value": "b"}]`, or shorter `{"a": "b"}`.
#[derive(Default)]
struct JsonHeaders<'a>(Vec<ParsedHeader<'a>>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonHeader<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Option<Payload<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonHeaders<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct HeadersVisitor;
        impl<'de> Visitor<'de> for HeadersVisitor {
            type Value = JsonHeaders<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[{\"name\": \"...\", \"value\": \"...\"}] or {\"...\": \"...\"}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some(JsonHeader { name, value }) = seq.next_element()? {
                    headers.push(ParsedHeader { name, value: value.map(|value| value.0) });
                }
                Ok(JsonHeaders(headers))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut headers = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Option<Payload<'de>>>()? {
                    let (name, value) = (Cow::Owned(name), value.map(|value| value.0));
                    headers.push(ParsedHeader { name, value });
                }
                Ok(JsonHeaders(headers))
            }
        }
        from.deserialize_any(HeadersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use record::{Batch, BatchBuilder, BatchOptions};

    use super::*;

    const PLAIN: LineFormat = LineFormat::Plain { key_separator: None, headers: false };

    fn keyed(separator: &str) -> LineFormat {
        LineFormat::Plain { key_separator: Some(separator.into()), headers: false }
    }

    #[test]
    fn a_plain_line_is_a_value() {
        let record = PLAIN.parse(b"a:b").expect("parses");
        assert_eq!((record.key, record.value.as_deref()), (None, Some(&b"a:b"[..])));
    }

    #[test]
    fn the_first_separator_ends_the_key() {
        let format = keyed("::");
        let record = format.parse(b"a:b::c::d").expect("parses");
        assert_eq!(record.key.as_deref(), Some(&b"a:b"[..]));
        assert_eq!(record.value.as_deref(), Some(&b"c::d"[..]));
        assert!(matches!(format.parse(b"a:b"), Err(LineError::NoSeparator(_))));
    }

    #[test]
    fn json_may_leave_out_everything() {
        assert_eq!(LineFormat::Json.parse(b"{}").expect("parses"), ParsedRecord::default());
        let tombstone = LineFormat::Json.parse(br#"{"key":"k","value":null}"#).expect("parses");
        assert_eq!((tombstone.key.as_deref(), tombstone.value), (Some(&b"k"[..]), None));
    }

    #[test]
    fn headers_are_a_list_or_an_object() {
        let list = br#"{"headers":[{"name":"a","value":"b"},{"name":"a"}]}"#;
        let list = LineFormat::Json.parse(list).expect("parses").headers;
        assert_eq!((&*list[0].name, list[0].value.as_deref()), ("a", Some(&b"b"[..])));
        assert_eq!((&*list[1].name, list[1].value.as_deref()), ("a", None));
        let object = LineFormat::Json.parse(br#"{"headers":{"a":"b"}}"#).expect("parses").headers;
        assert_eq!(object, list[..1]);
    }

    #[test]
    fn line_that_is_no_record_is_rejected_with_its_place() {
        for (line, says) in [
            (&br#"{"valeu":"x"}"#[..], "valeu"),
            (br#"{"value":7}"#, "a string, null"),
            (br#"{"value":{"base64":"?"}}"#, "Invalid"),
            (br#"{"value":{"a":"b"}}"#, "base64"),
            (br#"{"value":"#, "EOF"),
            (br"plain", "expected"),
        ] {
            let error = LineFormat::Json.parse(line).expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn produce_accepts_the_output_of_consume() {
        let mut builder = BatchBuilder::new(BatchOptions { base_offset: 7, ..Default::default() });
        let headers = [
            Header { key: b"n", value: Some(b"v") },
            Header { key: b"bin", value: Some(&[0xff, 0]) },
            Header { key: b"none", value: None },
        ];
        builder.push(1234, Some(b"k\"\\"), Some(&[0xff, 0xfe]), &headers).expect("fits");
        builder.push(-1, None, Some("ü".as_bytes()), &[]).expect("fits");
        let bytes = builder.finish();
        let batch = Batch::decode(&bytes).expect("a batch");
        let mut out = Vec::new();
        for view in batch.records() {
            LineFormat::Json.write(&mut out, "t", 3, &view.expect("a record"));
        }
        let text = String::from_utf8(out).expect("JSON is text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            r#"{"topic":"t","partition":3,"offset":8,"timestamp_ms":-1,"key":null,"value":"ü","headers":[]}"#
        );
        let first = LineFormat::Json.parse(lines[0].as_bytes()).expect("parses");
        assert_eq!(first.key.as_deref(), Some(&b"k\"\\"[..]));
        assert_eq!(first.value.as_deref(), Some(&[0xff, 0xfe][..]));
        assert_eq!((first.timestamp_ms, first.partition), (Some(1234), Some(3)));
        let read: Vec<_> = first.headers(&[]).iter().map(|h| (h.key, h.value)).collect();
        let written: Vec<_> = headers.iter().map(|h| (h.key, h.value)).collect();
        assert_eq!(read, written);
    }

    #[test]
    fn plain_output_has_headers_and_key_where_asked() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let header = Header { key: b"n", value: Some(b"v") };
        builder.push(0, Some(b"k"), Some(b"value"), &[header, header]).expect("fits");
        let bytes = builder.finish();
        let batch = Batch::decode(&bytes).expect("a batch");
        let view = batch.records().next().expect("one").expect("well-formed");
        let written = |format: LineFormat| {
            let mut out = Vec::new();
            format.write(&mut out, "t", 0, &view);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written(PLAIN), "value\n");
        assert_eq!(written(keyed("=")), "k=value\n");
        let headers = LineFormat::Plain { key_separator: None, headers: true };
        assert_eq!(written(headers), "n=v,n=v\tvalue\n");
    }
}
