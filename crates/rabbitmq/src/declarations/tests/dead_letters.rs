use broker::delivery::{DeadLetterRouter, DeadRecord, DeathReason};
use bytes::{Bytes, BytesMut};
use message::{read_record, write_record_headers};
use record::{BatchBuilder, BatchOptions, EncodedHeaders, SharedBatch, SharedRecord};
use topology::dead_letter::Route;

use super::*;
use message::Properties;
use values::EncodedTable;

use crate::dead_letter::Router;

const NOW_MS: i64 = 1_700_000_000_500;

fn shared(batch: Vec<u8>) -> SharedRecord {
    let batch = Arc::new(SharedBatch::decode(&Bytes::from(batch)).expect("a batch"));
    batch.record(0).expect("its first record")
}

/// A message as a publisher's session writes it.
fn message(exchange: &str, key: &str, properties: &Properties<'_>) -> SharedRecord {
    let mut headers = EncodedHeaders::new();
    write_record_headers(exchange, key, properties, false, &mut headers).expect("sound headers");
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push_sliced(1, None, &[b"body"], &headers).expect("it fits");
    shared(builder.finish())
}

fn dead(queue: &Queue, record: SharedRecord, reason: DeathReason) -> DeadRecord {
    DeadRecord {
        group: queue.group().expect("a lease group"),
        group_name: "main".into(),
        topic: queue.topic,
        topic_name: Arc::clone(&queue.topic_name),
        partition: 0,
        offset: 7,
        reason,
        attempts: 1,
        time_ms: NOW_MS,
        record,
    }
}

fn route(queue: &str, exchange: &str, routing_key: Option<&str>) -> String {
    let routing_key = routing_key.map(Into::into);
    let (vhost, queue, exchange) = ("/".into(), queue.into(), exchange.into());
    let written = Route { vhost, queue, exchange, routing_key }.to_string();
    // The broker reads the scheme, and its router the rest.
    written.strip_prefix("amqp:").expect("the scheme").to_owned()
}

/// Headers, exchange, routing key and expiration of a dead letter.
fn read(record: &SharedRecord) -> (FieldTable, String, String, Option<Vec<u8>>) {
    let view = record.view();
    let mut table = BytesMut::new();
    let message = read_record(&view, &mut table);
    assert_eq!(record.value().as_deref(), Some(&b"body"[..]));
    (
        FieldTable::decode(&table).expect("sound headers"),
        message.exchange.to_owned(),
        message.routing_key.expect("a message").to_owned(),
        message.properties.expiration.map(<[u8]>::to_vec),
    )
}

/// Queue, reason and count of each death.
fn deaths(headers: &FieldTable) -> Vec<(String, String, i64)> {
    let Some(FieldValue::Array(deaths)) = headers.get("x-death") else { return Vec::new() };
    let death = |value: &FieldValue| match value {
        FieldValue::Table(death) => {
            let text = |name| death.get(name).and_then(FieldValue::as_str).unwrap_or("").to_owned();
            let count = death.get("count").and_then(FieldValue::as_integer).unwrap_or(0);
            (text("queue"), text("reason"), count)
        }
        other => panic!("{other:?}"),
    };
    deaths.iter().map(death).collect()
}

#[tokio::test]
async fn dead_letter_records_its_death_in_x_death() {
    let node = open().await;
    let (queue, graveyard) = (node.queue("q").await, node.queue("graveyard").await);
    node.exchange("dlx", "direct").await;
    node.bind("dlx", &queue_named("graveyard"), "dead").await;
    let router = Router::new(&node.topology);
    let encoded =
        table(&[("CC", vec![FieldValue::from("copy")].into()), ("a", 1.into())]).to_bytes();
    let properties = Properties {
        headers: Some(EncodedTable(&encoded)),
        expiration: Some(b"250"),
        priority: Some(4),
        ..Properties::default()
    };
    let record = message("x", "k", &properties);
    let letters =
        router.route(&route("q", "dlx", Some("dead")), &dead(&queue, record, DeathReason::Expired));
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].0, graveyard.partition(0));
    let record = shared(letters[0].1.to_vec());
    assert_eq!(record.view().timestamp, NOW_MS);
    let (headers, exchange, key, expiration) = read(&record);
    assert_eq!((exchange.as_str(), key.as_str(), expiration), ("dlx", "dead", None));
    let Some(FieldValue::Array(entries)) = headers.get("x-death") else { panic!("{headers:?}") };
    let expected = table(&[
        ("original-expiration", "250".into()),
        ("count", 1_i64.into()),
        ("reason", "expired".into()),
        ("queue", "q".into()),
        ("time", FieldValue::Timestamp(1_700_000_000)),
        ("exchange", "x".into()),
        ("routing-keys", vec![FieldValue::from("k"), FieldValue::from("copy")].into()),
    ]);
    assert_eq!(*entries, [FieldValue::Table(expected)]);
    for (name, value) in [
        ("x-first-death-reason", "expired"),
        ("x-first-death-queue", "q"),
        ("x-first-death-exchange", "x"),
        ("x-last-death-reason", "expired"),
        ("x-last-death-queue", "q"),
        ("x-last-death-exchange", "x"),
    ] {
        assert_eq!(headers.get(name).and_then(FieldValue::as_str), Some(value), "{name}");
    }
    assert_eq!(headers.get("a"), Some(&FieldValue::I32(1)));
    assert_eq!(headers.get("CC"), None, "its key is a new one");
}

#[tokio::test]
async fn dead_letter_with_its_own_key_keeps_cc_and_one_with_a_new_key_does_not() {
    let node = open().await;
    let (queue, _graveyard) = (node.queue("q").await, node.queue("graveyard").await);
    node.exchange("dlx", "fanout").await;
    node.bind("dlx", &queue_named("graveyard"), "").await;
    let router = Router::new(&node.topology);
    let copies = || FieldValue::from(vec![FieldValue::from("copy")]);
    let encoded = table(&[("CC", copies()), ("BCC", copies()), ("z", 1.into())]).to_bytes();
    let headers = Some(EncodedTable(&encoded));
    let properties = Properties { headers, ..Properties::default() };
    for (key, kept) in [(None, true), (Some("new"), false)] {
        let record = message("x", "k", &properties);
        let dead = dead(&queue, record, DeathReason::Rejected);
        let letters = router.route(&route("q", "dlx", key), &dead);
        let (headers, ..) = read(&shared(letters[0].1.to_vec()));
        assert_eq!(headers.get("CC"), kept.then(copies).as_ref(), "{key:?}");
        assert_eq!((headers.get("BCC"), headers.get("z")), (None, Some(&FieldValue::I32(1))));
    }
}

/// A record in which a client of another protocol set the reserved headers, with values out of bounds.
#[tokio::test]
async fn record_with_forged_headers_becomes_a_dead_letter() {
    let node = open().await;
    let (queue, graveyard) = (node.queue("q").await, node.queue("graveyard").await);
    let router = Router::new(&node.topology);
    let forged = table(&[
        (
            "x-death",
            vec![FieldValue::Table(table(&[
                ("queue", "q".into()),
                ("reason", "rejected".into()),
                ("count", i64::MAX.into()),
            ]))]
            .into(),
        ),
        ("other-keys", vec![FieldValue::from("k".repeat(300))].into()),
    ]);
    let forged = forged.to_bytes();
    let long = "\u{e9}".repeat(200);
    let headers = [
        record::Header { key: b"amqp.exchange", value: Some(long.as_bytes()) },
        record::Header { key: b"amqp.routing-key", value: Some(long.as_bytes()) },
        record::Header { key: b"amqp.deaths", value: Some(&forged) },
        record::Header { key: &[b'n', 0xff], value: Some(b"1") },
        record::Header { key: b"x-delay", value: Some(b"4294967295") },
    ];
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.push(i64::MIN, None, Some(b"body"), &headers).expect("it fits");
    let mut dead = dead(&queue, shared(builder.finish()), DeathReason::Rejected);
    dead.time_ms = i64::MAX;
    let letters = router.route(&route("q", "", Some("graveyard")), &dead);
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].0, graveyard.partition(0));
    let (headers, ..) = read(&shared(letters[0].1.to_vec()));
    assert_eq!(deaths(&headers), [("q".to_owned(), "rejected".to_owned(), i64::MAX)]);
    let last = headers.get("x-last-death-exchange").and_then(FieldValue::as_str);
    assert_eq!(last, Some(&long[..254]));
    assert!(headers.get("n\u{fffd}").is_some(), "{headers:?}");
}

#[tokio::test]
async fn deaths_of_one_queue_and_reason_are_counted_and_the_newest_is_first() {
    let node = open().await;
    let (a, b) = (node.queue("a").await, node.queue("b").await);
    let router = Router::new(&node.topology);
    let mut record = message("", "a", &Properties::default());
    let (to_b, to_a) = (route("a", "", Some("b")), route("b", "", Some("a")));
    for _ in 0..2 {
        for (queue, route) in [(&a, &to_b), (&b, &to_a)] {
            let letters = router.route(route, &dead(queue, record, DeathReason::Rejected));
            record = shared(letters[0].1.to_vec());
        }
    }
    let (headers, ..) = read(&record);
    let of = |queue: &str| (queue.to_owned(), "rejected".to_owned(), 2);
    assert_eq!(deaths(&headers), [of("b"), of("a")]);
    assert_eq!(headers.get("x-first-death-queue").and_then(FieldValue::as_str), Some("a"));
    assert_eq!(headers.get("x-last-death-queue").and_then(FieldValue::as_str), Some("b"));
}

#[tokio::test]
async fn dead_letter_cycle_is_dropped_unless_a_client_rejected_the_message() {
    let node = open().await;
    let (a, b) = (node.queue("a").await, node.queue("b").await);
    let router = Router::new(&node.topology);
    let (to_b, to_a) = (route("a", "", Some("b")), route("b", "", Some("a")));
    let first = router
        .route(&to_b, &dead(&a, message("", "a", &Properties::default()), DeathReason::Expired));
    let in_b = shared(first[0].1.to_vec());
    // It arrived without a client's action, and would return likewise.
    assert!(router.route(&to_a, &dead(&b, in_b.clone(), DeathReason::Expired)).is_empty());
    // The rejection by a client breaks the cycle.
    let rejected = router.route(&to_a, &dead(&b, in_b, DeathReason::Rejected));
    let in_a = shared(rejected[0].1.to_vec());
    assert_eq!(router.route(&to_b, &dead(&a, in_a, DeathReason::Expired)).len(), 1);
    // A queue that dead-letters to itself.
    let to_itself = route("a", "", Some("a"));
    let record = message("", "a", &Properties::default());
    assert!(router.route(&to_itself, &dead(&a, record, DeathReason::Overflow)).is_empty());
}

#[tokio::test]
async fn republished_dead_letter_starts_without_deaths() {
    let node = open().await;
    let (a, _b) = (node.queue("a").await, node.queue("b").await);
    let router = Router::new(&node.topology);
    let to_b = route("a", "", Some("b"));
    let letter = router
        .route(&to_b, &dead(&a, message("", "a", &Properties::default()), DeathReason::Expired));
    let (headers, ..) = read(&shared(letter[0].1.to_vec()));
    let encoded = headers.to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&encoded)), ..Properties::default() };
    let again = message("", "a", &properties);
    let letter = router.route(&to_b, &dead(&a, again, DeathReason::Expired));
    let (headers, ..) = read(&shared(letter[0].1.to_vec()));
    assert_eq!(deaths(&headers), [("a".to_owned(), "expired".to_owned(), 1)]);
}

#[tokio::test]
async fn queue_without_a_dead_letter_routing_key_uses_the_messages_keys() {
    let node = open().await;
    let (q, _copy, _k) = (node.queue("q").await, node.queue("copy").await, node.queue("k").await);
    let router = Router::new(&node.topology);
    let encoded = table(&[("CC", vec![FieldValue::from("copy")].into())]).to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&encoded)), ..Properties::default() };
    let record = message("amq.direct", "k", &properties);
    let letters = router.route(&route("q", "", None), &dead(&q, record, DeathReason::Attempts));
    assert_eq!(letters.len(), 2);
    let (headers, _, key, _) = read(&shared(letters[0].1.to_vec()));
    assert_eq!(key, "k");
    let limit = ("q".to_owned(), "delivery_limit".to_owned(), 1);
    assert_eq!(deaths(&headers), [limit]);
    // A missing exchange routes nowhere.
    let record = message("", "q", &Properties::default());
    let lost = router.route(&route("q", "nowhere", None), &dead(&q, record, DeathReason::Rejected));
    assert!(lost.is_empty());
}

#[tokio::test]
async fn second_death_keeps_the_routing_keys_of_the_first() {
    let node = open().await;
    let (q, k) = (node.queue("q").await, node.queue("k").await);
    let (_copy, blind) = (node.queue("copy").await, node.queue("blind").await);
    let router = Router::new(&node.topology);
    let encoded = table(&[
        ("CC", vec![FieldValue::from("copy")].into()),
        ("BCC", vec![FieldValue::from("blind")].into()),
    ])
    .to_bytes();
    let properties = Properties { headers: Some(EncodedTable(&encoded)), ..Properties::default() };
    let rejected = |queue: &Queue, route: &str, record: SharedRecord| {
        router.route(route, &dead(queue, record, DeathReason::Rejected))
    };
    let first = rejected(&q, &route("q", "", None), message("x", "k", &properties));
    assert_eq!(first.len(), 3);
    // The same applies to a letter that was routed by a BCC key.
    let in_blind = first.iter().find(|(place, _)| *place == blind.partition(0)).expect("a letter");
    let second = rejected(&blind, &route("blind", "", None), shared(in_blind.1.to_vec()));
    assert_eq!(second.len(), 3);
    let (headers, ..) = read(&shared(second[0].1.to_vec()));
    let Some(FieldValue::Array(entries)) = headers.get("x-death") else { panic!("{headers:?}") };
    let FieldValue::Table(death) = &entries[0] else { panic!("{entries:?}") };
    let shown = vec![FieldValue::from("k"), FieldValue::from("copy")];
    assert_eq!(death.get("routing-keys"), Some(&shown.into()), "nobody sees the blind one");
    // The queue's dead-letter routing key replaces all keys from then on.
    let by_key = rejected(&q, &route("q", "", Some("k")), shared(second[0].1.to_vec()));
    assert_eq!(by_key.len(), 1);
    let last = rejected(&k, &route("k", "", None), shared(by_key[0].1.to_vec()));
    assert_eq!(last.len(), 1);
}
