//! Messages through records and back.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use record::{Batch, BatchBuilder, BatchOptions, EncodedHeaders, Header};

use super::*;
use values::{EncodedTable, Table, Value};

/// Converts a message to a record and back, and compares it with `expected`. Returns the record's key.
fn round_trip(
    (exchange, routing_key): (&str, &str),
    properties: &Properties<'_>,
    expected: &Properties<'_>,
) -> Option<Vec<u8>> {
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
    assert_eq!((message.exchange, message.routing_key), (exchange, Some(routing_key)));
    assert_eq!(message.properties_with(&table), *expected);
    view.key.map(<[u8]>::to_vec)
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    prop_oneof![
        any::<bool>().prop_map(Value::Boolean),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        (-1e30f32..1e30).prop_map(Value::F32),
        (-1e300f64..1e300).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, n)| Value::Decimal(scale, n)),
        bytes().prop_map(Value::LongString),
        bytes().prop_map(Value::ByteArray),
        any::<u64>().prop_map(Value::Timestamp),
        Just(Value::Void),
        bytes().prop_map(|bytes| Value::Array(vec![Value::LongString(bytes)])),
        any::<i32>().prop_map(|n| Value::Table(Table(vec![("n".into(), n.into())]))),
    ]
}

proptest! {
    #[test]
    fn message_survives_the_round_trip_through_a_record(
        exchange in "[a-z.]{0,12}",
        routing_key in "\\PC{0,20}",
        headers in proptest::option::of(proptest::collection::vec(
            (prop_oneof!["[a-z-]{0,12}", "amqp.[a-z]", "postroad.[a-z]"], value()), 0..40)),
        strings in proptest::collection::vec(
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30)), 10),
        octets in (any::<Option<u8>>(), any::<Option<u8>>()),
        timestamp: Option<u64>,
    ) {
        let table = headers.map(|headers| Table(headers).to_bytes());
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
        let key = round_trip((&exchange, &routing_key), &properties, &properties);
        prop_assert_eq!(key, None);
    }
}

/// Names and values that clients of any protocol may give a record's header.
fn header_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        "[a\u{e9}\u{20ac}\u{1f600}]{60,150}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 250..300),
        "[A-Zab]{0,4}".prop_map(String::into_bytes),
    ]
}

fn header_name() -> impl Strategy<Value = Vec<u8>> {
    let property = "(amqp|postroad)\\.(exchange|routing-key|content-type|expiration|headers|deaths\
        |death\\.reason|blind-copies|header\\.a|timestamp|priority|key|x)";
    prop_oneof![property.prop_map(String::into_bytes), header_bytes()]
}

proptest! {
    #[test]
    fn record_with_any_headers_is_read_as_a_message_that_fits_the_wire(
        key in proptest::option::of(header_bytes()),
        headers in proptest::collection::vec(
            (header_name(), proptest::option::of(header_bytes())), 0..12),
        timestamp: i64,
    ) {
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(key, value)| Header { key, value: value.as_deref() })
            .collect();
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(timestamp, key.as_deref(), None, &headers).expect("fits");
        let batch = builder.finish();
        let batch = Batch::decode(&batch).expect("a batch");
        let view = batch.records().next().expect("one").expect("sound");
        let mut table = BytesMut::new();
        let message = read_record(&view, &mut table);
        prop_assert!(message.exchange.len() <= values::SHORT_STRING_BYTES_MAX);
        let routing_key = message.routing_key.unwrap_or_default();
        prop_assert!(routing_key.len() <= values::SHORT_STRING_BYTES_MAX);
        let decoded = Table::decode(&table);
        prop_assert!(decoded.is_ok(), "{:?}", decoded);

        // Written again, like a dead letter.
        let mut out = EncodedHeaders::new();
        let properties = message.properties_with(&table);
        let written = write_record_headers("x", routing_key, &properties, false, &mut out);
        prop_assert!(written.is_ok(), "{:?}", written);
        let _ = blind_copies(&view);
    }
}

#[test]
fn exchange_and_routing_key_of_a_record_are_cut_to_short_strings() {
    let long = "\u{e9}".repeat(200);
    let headers = [
        Header { key: b"amqp.exchange", value: Some(long.as_bytes()) },
        Header { key: b"amqp.routing-key", value: Some(&[b'k'; 256]) },
        Header { key: &[b'n'; 300], value: Some(b"1") },
        Header { key: &[b'm', 0xff], value: Some(b"2") },
    ];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(0, None, Some(b"v"), &headers).expect("fits");
    let batch = builder.finish();
    let batch = Batch::decode(&batch).expect("a batch");
    let view = batch.records().next().expect("one").expect("sound");
    let mut table = BytesMut::new();
    let message = read_record(&view, &mut table);
    assert_eq!(message.exchange, &long[..254]);
    assert_eq!(message.routing_key.map(str::len), Some(255));
    let table = Table::decode(&table).expect("sound");
    let names: Vec<_> = table.0.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["n".repeat(255), "m\u{fffd}".to_owned()]);
}

#[test]
fn header_with_the_brokers_prefix_is_kept_unless_it_is_a_field() {
    let mut table = Table::new();
    table.push("postroad.x", "z");
    table.push("postroad.key", 5);
    table.push("postroad.priority", "3");
    table.push("n", 7);
    let bytes = table.to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
    table.remove("postroad.priority");
    let bytes = table.to_bytes();
    let expected = Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
    assert_eq!(round_trip(("", "q"), &properties, &expected), None);
}

#[test]
fn string_that_is_not_utf8_stays_a_string() {
    let strange = Value::LongString(Bytes::from_static(&[0x80]));
    let table = Table(vec![("h".into(), strange)]).to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&table)), ..Properties::default() };
    round_trip(("", "q"), &properties, &properties);
}

#[test]
fn key_header_becomes_the_record_key_and_back() {
    let mut table = Table::new();
    table.push("a", 1);
    table.push("postroad.key", "customer-7");
    let bytes = table.to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
    let key = round_trip(("", "q"), &properties, &properties);
    assert_eq!(key.as_deref(), Some(&b"customer-7"[..]));
}

#[test]
fn bcc_is_hidden_and_absent_headers_stay_absent() {
    let mut table = Table::new();
    table.push("BCC", vec![Value::from("q2")]);
    let bytes = table.to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&bytes)), ..Properties::default() };
    let emptied = Properties { headers: Some(EncodedTable(b"")), ..Properties::default() };
    round_trip(("", "q"), &properties, &emptied);
    round_trip(("", "q"), &Properties::default(), &Properties::default());
}

#[test]
fn record_of_another_protocol_is_read_with_string_headers() {
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
    let table = Table::decode(&table).expect("sound");
    let raw = Value::ByteArray(Bytes::from_static(&[0xff]));
    assert_eq!(table.get("trace").and_then(Value::as_str), Some("abc"));
    assert_eq!(table.get("raw"), Some(&raw));
    assert_eq!(table.get("none"), Some(&Value::Void));
    assert_eq!(table.get("postroad.key").and_then(Value::as_str), Some("k"));
    let reason = table.get("postroad.death.reason").and_then(Value::as_str);
    assert_eq!(reason, Some("rejected"));
    assert_eq!(table.0.len(), 5);
}

#[test]
fn encoding_of_record_headers_is_stable() {
    let mut table = Table::new();
    table.push("a", "text");
    table.push("n", 5);
    table.push("amqp.x", true);
    table.push("postroad.key", "k");
    let table = table.to_bytes();
    let properties = Properties {
        content_type: Some(b"text/plain"),
        content_encoding: Some(b"gzip"),
        headers: Some(EncodedTable(&table)),
        delivery_mode: Some(2),
        priority: Some(7),
        correlation_id: Some(b"c"),
        reply_to: Some(b"r"),
        expiration: Some(b"1000"),
        message_id: Some(b"m"),
        timestamp: Some(1_700_000_000),
        kind: Some(b"t"),
        user_id: Some(b"u"),
        app_id: Some(b"app"),
        cluster_id: Some(b"cl"),
    };
    let mut out = EncodedHeaders::new();
    let key = write_record_headers("x", "rk", &properties, false, &mut out).expect("sound");
    assert_eq!(key, Some(&b"k"[..]));
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push_sliced(5000, key, &[b"body"], &out).expect("fits");
    let batch = builder.finish();
    let batch = Batch::decode(&batch).expect("a batch");
    let view = batch.records().next().expect("one").expect("sound");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let written = view
        .headers
        .iter()
        .map(|header| format!("{}={}", text(header.key), text(header.value.unwrap_or_default())));
    let expected = [
        "amqp.exchange=x",
        "amqp.routing-key=rk",
        "amqp.content-type=text/plain",
        "amqp.content-encoding=gzip",
        "amqp.correlation-id=c",
        "amqp.reply-to=r",
        "amqp.expiration=1000",
        "amqp.message-id=m",
        "amqp.type=t",
        "amqp.user-id=u",
        "amqp.app-id=app",
        "amqp.cluster-id=cl",
        "amqp.delivery-mode=2",
        "amqp.priority=7",
        "amqp.timestamp=1700000000",
        "a=text",
        "n=5",
        "amqp.header.amqp.x=true",
        "amqp.headers=SIt",
    ];
    assert_eq!(written.collect::<Vec<_>>(), expected);
}
