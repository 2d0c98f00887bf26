//! The whole client over streams in memory, under a paused clock: no socket, no real second.

mod broker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::{Behaviour, Cluster};
use bytes::Bytes;
use client::connection::ANSWER_WITHIN;
use client::fetcher::{Delivery, Span, read};
use client::groups::Committer;
use client::producer::{Acks, Identity, ReadyBatch, send};
use client::records::{NewRecord, batch_of, records_of};
use client::{CallError, Client, ClientError, Connection, Pipeline, TopicPartition, requests};
use kafka_protocol::messages::ApiVersionsRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

const TOPIC: &str = "orders";

async fn connect(cluster: &Cluster) -> Arc<Client> {
    let client = Client::connect(cluster.clone(), "a:1", None).await.expect("connects");
    Arc::new(client)
}

fn batch(value: &str) -> Bytes {
    batch_of([NewRecord::of(Bytes::copy_from_slice(value.as_bytes()))], 1_700_000_000_000)
}

async fn produce(
    client: &Arc<Client>,
    partition: i32,
    values: &[String],
) -> Result<(), ClientError> {
    let (batches, to_send) = mpsc::channel(8);
    let sending = send(client.clone(), TOPIC.into(), Acks::All, to_send, Arc::default());
    let feeding = async {
        for value in values {
            let bytes = batch(value);
            // It failed already, and its error is returned below.
            let _ = batches.send(ReadyBatch { partition, records: 1, bytes }).await;
        }
        drop(batches);
    };
    tokio::join!(sending, feeding).0
}

async fn consume(client: &Arc<Client>, partition: i32, until: u64) -> Vec<String> {
    let (deliveries, mut delivered) = mpsc::channel(8);
    let span = Span { from: 0, until: Some(until) };
    let spans = vec![(TopicPartition::new(TOPIC, partition), span)];
    let reading = read(client.clone(), spans, deliveries);
    let looking = async {
        let mut values = Vec::new();
        while let Some(Delivery::Stretch(stretch)) = delivered.recv().await {
            let records = records_of(stretch.records).expect("sound").into_iter();
            let values_of = records.filter_map(|record| record.value);
            values.extend(values_of.map(|value| String::from_utf8_lossy(&value).into_owned()));
        }
        values
    };
    let (read, values) = tokio::join!(reading, looking);
    read.expect("reads");
    values
}

fn values(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("value {number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn records_are_produced_to_and_fetched_from_their_leaders() {
    let cluster = Cluster::of(&["a:1", "b:2"]);
    let client = connect(&cluster).await;
    assert_ne!(client.producer_identity().await.expect("an id"), Identity::NONE);
    for partition in [0, 1] {
        produce(&client, partition, &values(20)).await.expect("produces");
        assert_eq!(consume(&client, partition, 20).await, values(20));
    }
    // Partition 0 has its leader at a, partition 1 at b.
    assert_eq!((cluster.stored("a:1"), cluster.stored("b:2")), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn committed_offsets_are_read_by_the_next_client() {
    let cluster = Cluster::of(&["a:1", "b:2"]);
    let offsets = BTreeMap::from([(TopicPartition::new(TOPIC, 1), 7)]);
    let client = connect(&cluster).await;
    client.commit("g", &Committer::OUTSIDER, &offsets).await.expect("commits");
    assert_eq!(connect(&cluster).await.committed("g").await.expect("is known"), offsets);
}

#[tokio::test(start_paused = true)]
async fn closed_connections_lose_no_record_and_keep_the_order() {
    let cluster = Cluster::of(&["a:1"]);
    cluster.behave(Behaviour::CloseAtEvery(7));
    let client = connect(&cluster).await;
    produce(&client, 0, &values(50)).await.expect("produces");
    cluster.behave(Behaviour::Answer);
    let mut consumed = consume(&connect(&cluster).await, 0, cluster.stored("a:1")).await;
    // This broker does not detect resent batches, so a record may be stored twice.
    consumed.dedup();
    let mut first_seen: Vec<String> = Vec::new();
    for value in consumed {
        if !first_seen.contains(&value) {
            first_seen.push(value);
        }
    }
    assert_eq!(first_seen, values(50));
}

#[tokio::test(start_paused = true)]
async fn silent_broker_times_out() {
    let cluster = Cluster::of(&["a:1"]);
    let client = connect(&cluster).await;
    cluster.behave(Behaviour::Silent);
    let begun = Instant::now();
    let error = client.any().await.call(&requests::metadata([TOPIC]), 4..=9).await;
    assert!(matches!(error, Err(ClientError::TimedOut { waited: ANSWER_WITHIN, .. })), "{error:?}");
    assert_eq!(begun.elapsed(), ANSWER_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn unreachable_broker_is_named_in_the_error() {
    let cluster = Cluster::of(&["a:1", "b:2"]);
    let nowhere = Client::connect(cluster.clone(), "nowhere:9", None).await;
    assert!(
        matches!(nowhere, Err(ClientError::Unreachable { address, .. }) if address == "nowhere:9")
    );
    let client = connect(&cluster).await;
    cluster.take_down("b:2");
    let error = produce(&client, 1, &values(1)).await.expect_err("its leader is gone");
    let ClientError::AdvertisedUnreachable { bootstrap, address, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((bootstrap.as_str(), address.as_str()), ("a:1", "b:2"));
}

#[tokio::test(start_paused = true)]
async fn hanging_connect_times_out() {
    let cluster = Cluster::of(&["a:1"]);
    cluster.behave(Behaviour::Hang);
    let begun = Instant::now();
    let error = Client::connect(cluster, "a:1", None).await.expect_err("it hangs");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert_eq!(begun.elapsed(), client::connect::CONNECT_WITHIN);
}

#[test]
fn repeated_run_sends_the_same_requests_in_the_same_order() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let cluster = Cluster::of(&["a:1", "b:2"]);
            cluster.behave(Behaviour::CloseAtEvery(5));
            let client = connect(&cluster).await;
            produce(&client, 0, &values(30)).await.expect("produces");
            produce(&client, 1, &values(30)).await.expect("produces");
            cluster.asked()
        })
    };
    let asked = run();
    assert!(asked.len() > 20, "{asked:?}");
    assert_eq!(asked, run());
}

// ---------------------------------------------------------------------- single connections

#[tokio::test(start_paused = true)]
async fn malformed_reply_is_an_unreadable_error() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0, 0, 0, 4, 9, 9, 9, 9]] {
        let (near, mut far) = duplex(1 << 16);
        far.write_all(garbage).await.expect("writes");
        let error = Connection::over(near, "a:1").await.expect_err("it is no broker");
        assert!(matches!(error, ClientError::Unreadable { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn pipeline_continues_after_a_cancelled_call() {
    // So small that not even one request fits: writing and reading are both cancelled half way.
    let (near, far) = duplex(5);
    let cluster = Cluster::of(&["a:1"]);
    cluster.answer_after(Duration::from_secs(60));
    tokio::spawn(cluster.clone().serve("a:1".to_owned(), far));
    let mut pipeline = Pipeline::over(near).patient_for(Duration::from_secs(10));
    let request = ApiVersionsRequest::default();
    for _ in 0..3 {
        let error = pipeline.call(0, &request).await.expect_err("it takes a minute");
        assert!(matches!(error, CallError::TimedOut { waited } if waited.as_secs() == 10));
    }
    sleep(Duration::from_secs(600)).await;
    let answer = pipeline.call(0, &request).await;
    assert!(matches!(answer, Err(CallError::TimedOut { .. })));
    cluster.answer_after(Duration::ZERO);
    sleep(Duration::from_secs(600)).await;
    let answer = pipeline.call(0, &request).await.expect("it is quick now");
    assert!(!answer.api_keys.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pipeline_receives_many_replies_to_many_requests() {
    let (near, far) = duplex(64);
    tokio::spawn(Cluster::of(&["a:1"]).serve("a:1".to_owned(), far));
    let mut pipeline = Pipeline::over(near).named("test");
    let produce = |value: &str| requests::produce(TOPIC, -1, [(0, batch(value))]);
    let mut sent = Vec::new();
    for value in values(10) {
        sent.push(pipeline.send(requests::PRODUCE, &produce(&value)).await.expect("sends"));
    }
    for (offset, sent) in (0..).zip(sent) {
        let answer = pipeline.receive(sent).await.expect("answers");
        let answers = requests::produced(&answer);
        assert_eq!(answers, [requests::ProduceOutcome::Acknowledged { base_offset: offset }]);
    }
}

#[tokio::test(start_paused = true)]
async fn closed_pipeline_reports_the_end_of_the_stream() {
    let (near, mut far) = duplex(1 << 10);
    let mut pipeline = Pipeline::over(near);
    let closing = async {
        far.read_u8().await.expect("a request");
        drop(far);
    };
    let request = ApiVersionsRequest::default();
    let (answer, ()) = tokio::join!(pipeline.call(0, &request), closing);
    let error = std::io::Error::from(answer.expect_err("closed"));
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}
