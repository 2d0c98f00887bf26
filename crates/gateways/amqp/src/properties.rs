//! A message as a record, and a record as a message.
//!
//! The body is the record's value. Properties, exchange and routing key travel as record headers
//! `amqp.*` in text, so that a consumer of any protocol can read them; the message's own headers
//! are the record's headers, each under its name. What text cannot say, the types of headers, is
//! one more header (`amqp.headers`: a letter for each, as on the wire); without it, as for a record
//! that a Kafka producer made, every header is a string. A message comes back byte for byte.
//!
//! | AMQP | record |
//! |---|---|
//! | body | value |
//! | header `postroad.key` (string) | key |
//! | exchange, routing key | `amqp.exchange` (absent: the default one), `amqp.routing-key` |
//! | each property | `amqp.content-type`, `amqp.delivery-mode`, ... by its name; numbers decimal |
//! | header `x` of type string | `x`, the same bytes |
//! | numbers, timestamps, booleans, decimals | `x`, as text |
//! | byte arrays | `x`, the same bytes |
//! | tables, arrays | `x`, as they are encoded on the wire |
//! | void | `x`, null |
//! | header `amqp.x` | `amqp.header.amqp.x`: the prefix is reserved |
//!
//! A record of another protocol has routing key = its queue's name, the default exchange, and the
//! record's time as `timestamp`.

use base::headers::RESERVED_PREFIX;
use bytes::{BufMut, BytesMut};
use record::{EncodedHeaders, RecordView};

use crate::codec::fields::EncodedTable;
use crate::codec::properties::Properties;
use crate::codec::table::{FieldValue, MalformedTable, RawField, RawFields, put_with_length};

/// No header of a message begins with it once it is a record's, but those here.
const PREFIX: &[u8] = b"amqp.";
/// In an AMQP message: what the record's key is to be, or was.
const KEY_HEADER: &[u8] = b"postroad.key";

const EXCHANGE: &[u8] = b"amqp.exchange";
const ROUTING_KEY: &[u8] = b"amqp.routing-key";
const CONTENT_TYPE: &[u8] = b"amqp.content-type";
const CONTENT_ENCODING: &[u8] = b"amqp.content-encoding";
const DELIVERY_MODE: &[u8] = b"amqp.delivery-mode";
const PRIORITY: &[u8] = b"amqp.priority";
const CORRELATION_ID: &[u8] = b"amqp.correlation-id";
const REPLY_TO: &[u8] = b"amqp.reply-to";
const EXPIRATION: &[u8] = b"amqp.expiration";
const MESSAGE_ID: &[u8] = b"amqp.message-id";
const TIMESTAMP: &[u8] = b"amqp.timestamp";
const TYPE: &[u8] = b"amqp.type";
const USER_ID: &[u8] = b"amqp.user-id";
const APP_ID: &[u8] = b"amqp.app-id";
const CLUSTER_ID: &[u8] = b"amqp.cluster-id";
/// The types of the message's own headers, in their order.
const HEADER_TYPES: &[u8] = b"amqp.headers";
const ESCAPED: &[u8] = b"amqp.header.";
/// The message's BCC header, which no consumer is shown: a dead letter still goes to those keys.
const BLIND_COPIES: &[u8] = b"amqp.blind-copies";

/// Headers that route a message; a blind copy is for nobody else to see.
pub(crate) const CC: &[u8] = b"CC";
pub(crate) const BCC: &[u8] = b"BCC";

/// A message that is held back comes out with its delay negated, so that it is not held back again
/// where it is published anew.
const DELAY: &[u8] = b"x-delay";

/// Writes what a message says of itself as record headers; `deferred` is whether it is held back.
/// Returns the record's key, if the message names one.
pub(crate) fn write_record_headers<'a>(
    exchange: &str,
    routing_key: &str,
    properties: &Properties<'a>,
    deferred: bool,
    out: &mut EncodedHeaders,
) -> Result<Option<&'a [u8]>, MalformedTable> {
    if !exchange.is_empty() {
        out.push(EXCHANGE, Some(exchange.as_bytes()));
    }
    // Always there: it tells a message from a record of another protocol.
    out.push(ROUTING_KEY, Some(routing_key.as_bytes()));
    for (name, value) in [
        (CONTENT_TYPE, properties.content_type),
        (CONTENT_ENCODING, properties.content_encoding),
        (CORRELATION_ID, properties.correlation_id),
        (REPLY_TO, properties.reply_to),
        (EXPIRATION, properties.expiration),
        (MESSAGE_ID, properties.message_id),
        (TYPE, properties.kind),
        (USER_ID, properties.user_id),
        (APP_ID, properties.app_id),
        (CLUSTER_ID, properties.cluster_id),
    ] {
        if value.is_some() {
            out.push(name, value);
        }
    }
    for (name, value) in [
        (DELIVERY_MODE, properties.delivery_mode.map(u64::from)),
        (PRIORITY, properties.priority.map(u64::from)),
        (TIMESTAMP, properties.timestamp),
    ] {
        if let Some(number) = value {
            out.push(name, Some(Text::of(number).as_bytes()));
        }
    }
    match properties.headers {
        Some(table) => write_table(table, deferred, out),
        None => Ok(None),
    }
}

fn write_table<'a>(
    table: EncodedTable<'a>,
    deferred: bool,
    out: &mut EncodedHeaders,
) -> Result<Option<&'a [u8]>, MalformedTable> {
    let mut key = None;
    let mut types = Types::default();
    for field in RawFields::new(table.0) {
        let field = field?;
        if field.name == BCC {
            if field.kind == b'A' {
                out.push(BLIND_COPIES, Some(field.value));
            }
            continue;
        }
        if field.name == KEY_HEADER && matches!(field.kind, b'S' | b'x') {
            key = Some(field.value);
            continue;
        }
        if deferred
            && field.name == DELAY
            && let Some(delay) = field.decode()?.as_integer()
        {
            types.push(b'l', false);
            out.push(DELAY, Some(delay.saturating_neg().to_string().as_bytes()));
            continue;
        }
        // The broker's own are not the message's when it comes out.
        if !is_hidden(field.name) {
            types.push(field.kind, guessed_kind(field.value) == b'S');
        }
        write_field(&field, out)?;
    }
    // A list of texts is what is taken for granted, unless it would be taken for none.
    if types.has_others || types.is_empty() {
        out.push(HEADER_TYPES, Some(types.as_bytes()));
    }
    Ok(key)
}

fn write_field(field: &RawField<'_>, out: &mut EncodedHeaders) -> Result<(), MalformedTable> {
    let escaped;
    let name = if field.name.starts_with(PREFIX) {
        escaped = [ESCAPED, field.name].concat();
        &escaped[..]
    } else {
        field.name
    };
    match field.kind {
        b'S' | b'x' | b'F' | b'A' => out.push(name, Some(field.value)),
        b'V' => out.push(name, None),
        _ => {
            let text = text_of(&field.decode()?);
            out.push(name, Some(text.as_bytes()));
        }
    }
    Ok(())
}

/// A number, a truth or a time as text.
fn text_of(value: &FieldValue) -> String {
    match value {
        FieldValue::Boolean(value) => value.to_string(),
        FieldValue::F32(number) => number.to_string(),
        FieldValue::F64(number) => number.to_string(),
        FieldValue::Timestamp(seconds) => seconds.to_string(),
        FieldValue::Decimal(scale, number) => decimal_text(*scale, *number),
        other => other.as_integer().map(|number| number.to_string()).unwrap_or_default(),
    }
}

/// The inverse of [`text_of`]; `None` when somebody has changed the text.
fn value_of(kind: u8, text: &[u8]) -> Option<FieldValue> {
    let text = std::str::from_utf8(text).ok()?;
    Some(match kind {
        b't' => FieldValue::Boolean(text.parse().ok()?),
        b'b' => FieldValue::I8(text.parse().ok()?),
        b'B' => FieldValue::U8(text.parse().ok()?),
        b's' => FieldValue::I16(text.parse().ok()?),
        b'u' => FieldValue::U16(text.parse().ok()?),
        b'I' => FieldValue::I32(text.parse().ok()?),
        b'i' => FieldValue::U32(text.parse().ok()?),
        b'l' | b'L' => FieldValue::I64(text.parse().ok()?),
        b'f' => FieldValue::F32(text.parse().ok()?),
        b'd' => FieldValue::F64(text.parse().ok()?),
        b'T' => FieldValue::Timestamp(text.parse().ok()?),
        b'D' => {
            let (scale, number) = parse_decimal(text)?;
            FieldValue::Decimal(scale, number)
        }
        _ => return None,
    })
}

/// With as many digits after the point as the scale says.
fn decimal_text(scale: u8, number: u32) -> String {
    let scale = usize::from(scale);
    if scale == 0 {
        return number.to_string();
    }
    let digits = format!("{number:0width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{whole}.{fraction}")
}

fn parse_decimal(text: &str) -> Option<(u8, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let scale = u8::try_from(fraction.len()).ok()?;
    Some((scale, [whole, fraction].concat().parse().ok()?))
}

/// A number's digits without an allocation.
struct Text {
    digits: [u8; 20],
    from: usize,
}

impl Text {
    fn of(mut number: u64) -> Self {
        let mut text = Self { digits: [b'0'; 20], from: 20 };
        loop {
            text.from -= 1;
            text.digits[text.from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return text;
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

/// Type letters of a message's headers; most messages have few.
#[derive(Default)]
struct Types {
    few: [u8; 32],
    count: usize,
    many: Vec<u8>,
    has_others: bool,
}

impl Types {
    /// A string need not be text; one that is not would be taken for bytes.
    fn push(&mut self, kind: u8, is_text: bool) {
        self.has_others |= kind != b'S' || !is_text;
        if self.count < self.few.len() {
            self.few[self.count] = kind;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(kind);
        }
        self.count += 1;
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn as_bytes(&self) -> &[u8] {
        if self.many.is_empty() { &self.few[..self.count] } else { &self.many }
    }
}

// ------------------------------------------------------------------------------- and back again

/// A record as a message: where it was published to, and its properties. The table of its headers
/// is in the buffer that [`read_record`] was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) exchange: &'a str,
    /// `None`: it came by another protocol.
    pub(crate) routing_key: Option<&'a str>,
    /// All but the headers.
    pub(crate) properties: Properties<'a>,
    pub(crate) has_headers: bool,
}

impl<'a> Message<'a> {
    /// The properties with the headers that were read into `table`.
    pub(crate) fn properties_with<'b>(&self, table: &'b [u8]) -> Properties<'b>
    where
        'a: 'b,
    {
        let headers = self.has_headers.then_some(EncodedTable(table));
        Properties { headers, ..self.properties }
    }
}

/// Reads a record's headers once. `table` gets the message's own headers, encoded; headers that a
/// delivery has besides can be added behind them.
pub(crate) fn read_record<'a>(view: &RecordView<'a>, table: &mut BytesMut) -> Message<'a> {
    table.clear();
    let mut message = Message {
        exchange: "",
        routing_key: None,
        properties: Properties::default(),
        has_headers: false,
    };
    let mut types: Option<&[u8]> = None;
    let mut own = 0;
    for header in view.headers.iter() {
        if header.key.starts_with(PREFIX) && !header.key.starts_with(ESCAPED) {
            if header.key == HEADER_TYPES {
                types = header.value;
            } else {
                read_property(header.key, header.value.unwrap_or_default(), &mut message);
            }
        } else if header.key.starts_with(DEATH) {
            put_field(header.key, b'S', header.value.unwrap_or_default(), table);
        } else if !is_hidden(header.key) {
            own += 1;
        }
    }
    message.has_headers = own > 0 || types.is_some() || view.key.is_some() || !table.is_empty();
    if own > 0 {
        // Somebody who adds or drops a header does not keep the list: then all are strings.
        let types = types.filter(|types| types.len() == own);
        put_own_headers(view, types, table);
    }
    if let Some(key) = view.key {
        put_field(KEY_HEADER, guessed_kind(key), key, table);
    }
    if message.routing_key.is_none() {
        message.properties.timestamp = u64::try_from(view.timestamp).ok().map(|ms| ms / 1000);
    }
    message
}

/// Of what the broker says, all that a consumer is shown: why a record is a dead letter.
const DEATH: &[u8] = base::headers::DEATH_PREFIX.as_bytes();

/// Routing keys that a message was published with and does not show.
pub(crate) fn blind_copies(view: &RecordView<'_>) -> Vec<String> {
    let encoded = view.headers.last(BLIND_COPIES).flatten();
    let decoded = encoded.and_then(|value| crate::codec::table::decode_value(b'A', value, 0).ok());
    let Some(FieldValue::Array(keys)) = decoded else { return Vec::new() };
    keys.iter().filter_map(FieldValue::as_str).map(str::to_owned).collect()
}

/// What the broker says to itself.
fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(RESERVED_PREFIX.as_bytes())
}

fn put_own_headers(view: &RecordView<'_>, types: Option<&[u8]>, table: &mut BytesMut) {
    let own = view.headers.iter().filter(|header| {
        !is_hidden(header.key)
            && (!header.key.starts_with(PREFIX) || header.key.starts_with(ESCAPED))
    });
    for (place, header) in own.enumerate() {
        let name = header.key.strip_prefix(ESCAPED).unwrap_or(header.key);
        let kind = types.and_then(|types| types.get(place)).copied();
        match (kind, header.value) {
            (_, None) => put_field(name, b'V', &[], table),
            (None, Some(value)) => put_field(name, guessed_kind(value), value, table),
            (Some(kind @ (b'S' | b'x')), Some(value)) => put_field(name, kind, value, table),
            (Some(kind @ (b'F' | b'A')), Some(value)) => {
                // Somebody may have changed it: what is malformed must not reach a client.
                let sound = crate::codec::table::decode_value(kind, value, 0).is_ok();
                put_field(name, if sound { kind } else { b'x' }, value, table);
            }
            (Some(kind), Some(value)) => match value_of(kind, value) {
                Some(typed) => {
                    put_short(name, table);
                    typed.encode(table);
                }
                None => put_field(name, guessed_kind(value), value, table),
            },
        }
    }
}

fn guessed_kind(value: &[u8]) -> u8 {
    if std::str::from_utf8(value).is_ok() { b'S' } else { b'x' }
}

fn put_short(name: &[u8], table: &mut BytesMut) {
    let length = name.len().min(usize::from(u8::MAX));
    table.put_u8(length as u8);
    table.put_slice(&name[..length]);
}

/// A field whose value has a length in front, or is void.
fn put_field(name: &[u8], kind: u8, value: &[u8], table: &mut BytesMut) {
    put_short(name, table);
    table.put_u8(kind);
    if kind != b'V' {
        put_with_length(table, |table| table.put_slice(value));
    }
}

/// Adds a header to those of a message.
pub(crate) fn put_header(name: &str, value: &FieldValue, table: &mut BytesMut) {
    put_short(name.as_bytes(), table);
    value.encode(table);
}

fn read_property<'a>(name: &[u8], value: &'a [u8], message: &mut Message<'a>) {
    let properties = &mut message.properties;
    let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    let octet = || number().and_then(|number| u8::try_from(number).ok());
    match name {
        EXCHANGE => message.exchange = std::str::from_utf8(value).unwrap_or_default(),
        ROUTING_KEY => message.routing_key = Some(std::str::from_utf8(value).unwrap_or_default()),
        CONTENT_TYPE => properties.content_type = Some(value),
        CONTENT_ENCODING => properties.content_encoding = Some(value),
        DELIVERY_MODE => properties.delivery_mode = octet(),
        PRIORITY => properties.priority = octet(),
        CORRELATION_ID => properties.correlation_id = Some(value),
        REPLY_TO => properties.reply_to = Some(value),
        EXPIRATION => properties.expiration = Some(value),
        MESSAGE_ID => properties.message_id = Some(value),
        TIMESTAMP => properties.timestamp = number(),
        TYPE => properties.kind = Some(value),
        USER_ID => properties.user_id = Some(value),
        APP_ID => properties.app_id = Some(value),
        CLUSTER_ID => properties.cluster_id = Some(value),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use record::{Batch, BatchBuilder, BatchOptions, Header};

    use super::*;
    use crate::codec::table::FieldTable;

    /// Through a record and back: exchange, routing key, encoded properties, and the record's key.
    fn round_trip(
        exchange: &str,
        routing_key: &str,
        properties: &Properties<'_>,
    ) -> (String, String, Bytes, Option<Vec<u8>>) {
        let mut headers = EncodedHeaders::new();
        let key = write_record_headers(exchange, routing_key, properties, false, &mut headers);
        let key = key.expect("sound headers");
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push_sliced(5000, key, &[b"body"], &headers).expect("fits");
        let batch = builder.finish();
        let batch = Batch::decode(&batch).expect("a batch");
        let view = batch.records().next().expect("one").expect("sound");
        let mut table = BytesMut::new();
        let message = read_record(&view, &mut table);
        let mut encoded = BytesMut::new();
        message.properties_with(&table).encode(&mut encoded);
        let routing_key = message.routing_key.expect("a message").to_owned();
        let key = view.key.map(<[u8]>::to_vec);
        (message.exchange.to_owned(), routing_key, encoded.freeze(), key)
    }

    fn encoded(properties: &Properties<'_>) -> Bytes {
        let mut out = BytesMut::new();
        properties.encode(&mut out);
        out.freeze()
    }

    fn value() -> impl Strategy<Value = FieldValue> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        prop_oneof![
            any::<bool>().prop_map(FieldValue::Boolean),
            any::<i8>().prop_map(FieldValue::I8),
            any::<u8>().prop_map(FieldValue::U8),
            any::<i16>().prop_map(FieldValue::I16),
            any::<u16>().prop_map(FieldValue::U16),
            any::<i32>().prop_map(FieldValue::I32),
            any::<u32>().prop_map(FieldValue::U32),
            any::<i64>().prop_map(FieldValue::I64),
            (-1e30f32..1e30).prop_map(FieldValue::F32),
            (-1e300f64..1e300).prop_map(FieldValue::F64),
            (any::<u8>(), any::<u32>()).prop_map(|(scale, n)| FieldValue::Decimal(scale, n)),
            bytes().prop_map(FieldValue::LongString),
            bytes().prop_map(FieldValue::ByteArray),
            any::<u64>().prop_map(FieldValue::Timestamp),
            Just(FieldValue::Void),
            bytes().prop_map(|bytes| FieldValue::Array(vec![FieldValue::LongString(bytes)])),
            any::<i32>().prop_map(|n| FieldValue::Table(FieldTable(vec![("n".into(), n.into())]))),
        ]
    }

    proptest! {
        #[test]
        fn a_message_comes_back_as_it_was(
            exchange in "[a-z.]{0,12}",
            routing_key in "\\PC{0,20}",
            headers in proptest::option::of(proptest::collection::vec(
                (prop_oneof!["[a-z-]{0,12}", Just("amqp.type".to_owned())], value()), 0..40)),
            strings in proptest::collection::vec(
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30)), 10),
            octets in (any::<Option<u8>>(), any::<Option<u8>>()),
            timestamp: Option<u64>,
        ) {
            let table = headers.map(|headers| FieldTable(headers).to_bytes());
            let properties = Properties {
                content_type: strings[0].as_deref(),
                content_encoding: strings[1].as_deref(),
                headers: table.as_deref().map(EncodedTable),
                delivery_mode: octets.0,
                priority: octets.1,
                correlation_id: strings[2].as_deref(),
                reply_to: strings[3].as_deref(),
                expiration: strings[4].as_deref(),
                message_id: strings[5].as_deref(),
                timestamp,
                kind: strings[6].as_deref(),
                user_id: strings[7].as_deref(),
                app_id: strings[8].as_deref(),
                cluster_id: strings[9].as_deref(),
            };
            let (x, k, back, key) = round_trip(&exchange, &routing_key, &properties);
            prop_assert_eq!((x, k), (exchange, routing_key));
            prop_assert_eq!(back, encoded(&properties));
            prop_assert_eq!(key, None);
        }
    }

    #[test]
    fn a_string_that_is_no_text_stays_a_string() {
        let strange = FieldValue::LongString(Bytes::from_static(&[0x80]));
        let table = FieldTable(vec![("h".into(), strange)]).to_bytes();
        let properties =
            Properties { headers: Some(EncodedTable(&table)), ..Properties::default() };
        let (_, _, back, _) = round_trip("", "q", &properties);
        assert_eq!(back, encoded(&properties));
    }

    #[test]
    fn a_key_that_a_message_names_is_the_records_key_and_back() {
        let mut table = FieldTable::new();
        table.push("a", 1);
        table.push("postroad.key", "customer-7");
        let bytes = table.to_bytes();
        let properties =
            Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
        let (_, _, back, key) = round_trip("", "q", &properties);
        assert_eq!(key.as_deref(), Some(&b"customer-7"[..]));
        assert_eq!(back, encoded(&properties));
    }

    #[test]
    fn blind_copies_are_not_shown_and_a_message_without_headers_has_none() {
        let mut table = FieldTable::new();
        table.push("BCC", vec![FieldValue::from("q2")]);
        let bytes = table.to_bytes();
        let properties =
            Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
        let (_, _, back, _) = round_trip("", "q", &properties);
        let emptied = Properties { headers: Some(EncodedTable(b"")), ..Properties::default() };
        assert_eq!(back, encoded(&emptied));
        let (_, _, back, _) = round_trip("", "q", &Properties::default());
        assert_eq!(back, encoded(&Properties::default()));
    }

    #[test]
    fn a_record_of_another_protocol_is_a_message_of_strings() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let headers = [
            Header { key: b"trace", value: Some(b"abc") },
            Header { key: b"raw", value: Some(&[0xff]) },
            Header { key: b"none", value: None },
            Header { key: b"postroad.expires-at", value: Some(b"1") },
            Header { key: b"postroad.death.reason", value: Some(b"rejected") },
        ];
        builder.push(1_700_000_000_123, Some(b"k"), Some(b"v"), &headers).expect("fits");
        let batch = builder.finish();
        let batch = Batch::decode(&batch).expect("a batch");
        let view = batch.records().next().expect("one").expect("sound");
        let mut table = BytesMut::new();
        let message = read_record(&view, &mut table);
        assert_eq!((message.exchange, message.routing_key), ("", None));
        assert_eq!(message.properties.timestamp, Some(1_700_000_000));
        let table = FieldTable::decode(&table).expect("sound");
        let raw = FieldValue::ByteArray(Bytes::from_static(&[0xff]));
        assert_eq!(table.get("trace").and_then(FieldValue::as_str), Some("abc"));
        assert_eq!(table.get("raw"), Some(&raw));
        assert_eq!(table.get("none"), Some(&FieldValue::Void));
        assert_eq!(table.get("postroad.key").and_then(FieldValue::as_str), Some("k"));
        let reason = table.get("postroad.death.reason").and_then(FieldValue::as_str);
        assert_eq!(reason, Some("rejected"));
        assert_eq!(table.0.len(), 5);
    }
}
