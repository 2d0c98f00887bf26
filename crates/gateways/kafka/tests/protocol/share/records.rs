//! Records of a share group: which member acquires them, and how they are settled.

use std::time::Duration;

use ::operations::document::{Operation, RecordPosition};
use ::operations::history::{Event, GroupHistory, GroupState, RecordEvent, RecordHistory};
use gateway::Connections;
use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::share_fetch_request::{AcknowledgementBatch, ForgottenTopic};
use kafka_protocol::messages::*;
use record::{BatchOptions, Compression};
use uuid::Uuid;
use world::Instant;

use super::member::*;
use super::{configure, started};
use crate::harness::*;

#[tokio::test]
async fn records_are_acquired_settled_and_delivered_again() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b", "c", "d"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let all = ["a", "b", "c", "d"];
    assert_eq!(member.take(topic, 0).await, acquired(&[(0, 3, 1)], &all));
    member.settle(topic, &[(0, 0, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT)]).await;
    // The batch comes unchanged; only the released records of it are acquired.
    assert_eq!(member.take(topic, 0).await, acquired(&[(1, 2, 2)], &all));
    // A gap is settled.
    member.settle(topic, &[(1, 1, 0), (2, 2, RELEASE)]).await;
    assert_eq!(member.take(topic, 0).await, acquired(&[(2, 2, 3)], &all));
}

#[tokio::test]
async fn batch_with_a_deleted_front_is_delivered_again() {
    let node = Node::start().await;
    let mut client = node.client().await;
    assert_eq!(configure(&mut client, "g", &[("share.auto.offset.reset", "earliest")]).await, 0);
    let goes_once_settled = [("retention.settled", "true"), ("retention.ms", "-1")];
    let topic = client.create("t", 1, &goes_once_settled).await;
    client.put("t", 0, &["a", "b", "c"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let all = ["a", "b", "c"];
    assert_eq!(member.take(topic, 0).await, acquired(&[(0, 2, 1)], &all));
    // The log begins within the batch from now on.
    member.settle(topic, &[(0, 0, ACCEPT), (1, 2, RELEASE)]).await;
    assert_eq!(member.take(topic, 0).await, acquired(&[(1, 2, 2)], &all));
}

#[tokio::test]
async fn compressed_batches_are_delivered_unchanged() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let records = [(None, "a"), (None, "b"), (None, "c")];
    assert_eq!(client.produce("t", 0, batch_of(options, &records)).await.error_code, 0);
    client.put("t", 0, &["d"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let mut request = member.fetch_request(topic, &[0], 5000);
    request.max_records = 2;
    let response = member.send(request).await;
    // Strictly so many records, in their whole batch.
    assert_eq!(taken(&response), acquired(&[(0, 1, 1)], &["a", "b", "c"]));
    assert_eq!(member.take(topic, 0).await, acquired(&[(2, 3, 1)], &["a", "b", "c", "d"]));
}

#[tokio::test]
async fn history_of_a_record_has_its_deliveries_and_settlements() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b", "c"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.take(topic, 0).await;
    member.settle(topic, &[(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)]).await;
    member.take(topic, 0).await;
    let mut of = async |offset| {
        let place = RecordPosition { partition: 0, offset };
        let asked = Operation::DescribeRecord { topic: "t".to_owned(), place };
        let mut history = client.operate::<RecordHistory>(&asked).await;
        let GroupHistory { state, session, events, .. } = history.groups.remove(0);
        let protocol = session.and_then(|session| session.protocol);
        let what = |event: Event| (event.what, event.attempt.unwrap_or(0));
        (state, protocol, events.into_iter().map(what).collect::<Vec<_>>())
    };
    use RecordEvent::*;
    assert_eq!(of(0).await, (GroupState::Settled, None, vec![(Delivered, 1), (Accepted, 1)]));
    let again = vec![(Delivered, 1), (Released, 1), (Delivered, 2)];
    assert_eq!(of(1).await, (GroupState::Leased, Some("kafka".to_owned()), again));
    // The group keeps no dead letters.
    let died = vec![(Delivered, 1), (Rejected, 1), (Died, 1)];
    assert_eq!(of(2).await, (GroupState::Settled, None, died));
}

#[tokio::test]
async fn bytes_of_delivered_batches_are_counted() {
    let connections = Connections::default();
    let node = Node::with(|options| options.connections = connections.clone()).await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let traffic = || connections.traffic_seen()[0].1;
    assert_eq!(traffic().bytes_delivered, 0);
    member.take(topic, 0).await;
    assert_eq!(traffic().bytes_delivered, traffic().bytes_received);
    member.settle(topic, &[(0, 0, ACCEPT), (1, 1, RELEASE)]).await;
    // The whole batch is sent once more.
    member.take(topic, 0).await;
    assert_eq!(traffic().bytes_delivered, 2 * traffic().bytes_received);
}

#[tokio::test]
async fn share_fetch_waits_for_new_and_released_records() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let mut first = Member::join(&node, "a", &["t"]).await;
    let mut second = Member::join(&node, "b", &["t"]).await;
    let begun = Instant::now();
    let request = first.fetch_request(topic, &[0], 300);
    assert!(first.send(request).await.responses.is_empty(), "nothing is there");
    assert!(begun.elapsed() >= Duration::from_millis(300));

    let (woken, _) = tokio::join!(first.take(topic, 0), client.put("t", 0, &["a"]));
    assert_eq!(woken, acquired(&[(0, 0, 1)], &["a"]));
    let release = [(0, 0, RELEASE)];
    let (given, ()) = tokio::join!(second.take(topic, 0), first.settle(topic, &release));
    assert_eq!(given, acquired(&[(0, 0, 2)], &["a"]));
}

#[tokio::test]
async fn member_receives_records_of_its_requested_partitions_only() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["zero"]).await;
    client.put("t", 1, &["one"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let request = member.fetch_request(topic, &[1], 100);
    let response = member.send(request).await;
    assert_eq!(taken(&response), acquired(&[(0, 0, 1)], &["one"]));
    let request = member.fetch_request(topic, &[1], 100);
    assert!(member.send(request).await.responses.is_empty());
    // The partition is added to the session, and then forgotten.
    assert_eq!(member.take(topic, 0).await, acquired(&[(0, 0, 1)], &["zero"]));
    client.put("t", 0, &["more"]).await;
    let forgotten = ForgottenTopic::default().with_topic_id(topic).with_partitions(vec![0]);
    let request = member.fetch_request(topic, &[], 100);
    let request = request.with_forgotten_topics_data(vec![forgotten]);
    assert!(member.send(request).await.responses.is_empty());
}

#[tokio::test]
async fn acknowledgements_in_a_fetch_have_results_of_their_own() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let with = |mut request: ShareFetchRequest, first, last, kinds: &[i8]| {
        let batch = AcknowledgementBatch::default()
            .with_first_offset(first)
            .with_last_offset(last)
            .with_acknowledge_types(kinds.to_vec());
        request.topics[0].partitions[0].acknowledgement_batches = vec![batch];
        request
    };
    let premature = with(member.fetch_request(topic, &[0], 0), 0, 0, &[ACCEPT]);
    assert_eq!(member.send(premature).await.error_code, InvalidRequest.code());
    member.take(topic, 0).await;
    let request = with(member.fetch_request(topic, &[0], 1000), 0, 1, &[ACCEPT, RELEASE]);
    let response = member.send(request).await;
    assert_eq!(partition_of(&response).map(|found| found.acknowledge_error_code), Some(0));
    assert_eq!(taken(&response).acquired, [(1, 1, 2)], "what was released comes at once");
    // An acknowledgement of records without a lease is refused, and the fetch continues.
    client.put("t", 0, &["c"]).await;
    let request = with(member.fetch_request(topic, &[0], 1000), 0, 0, &[ACCEPT]);
    let response = member.send(request).await;
    let partition = partition_of(&response).expect("is answered");
    assert_eq!(partition.acknowledge_error_code, InvalidRecordState.code());
    assert_eq!(partition.acquired_records[0].first_offset, 2);
    let request = with(member.fetch_request(topic, &[0], 0), 5, 4, &[ACCEPT]);
    let response = member.send(request).await;
    let code = partition_of(&response).map(|found| found.acknowledge_error_code);
    assert_eq!(code, Some(InvalidRequest.code()));
}

#[tokio::test]
async fn records_not_leased_to_the_member_cannot_be_settled() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut holder = Member::join(&node, "a", &["t"]).await;
    let mut other = Member::join(&node, "b", &["t"]).await;
    holder.take(topic, 0).await;
    let request = other.fetch_request(topic, &[0], 0);
    assert!(other.send(request).await.responses.is_empty());
    let stolen = other.acknowledge(topic, &[(0, 0, ACCEPT)]).await;
    assert_eq!(acknowledge_code(&stolen), InvalidRecordState.code());
    let nonsense = other.acknowledge(topic, &[(0, 0, 9)]).await;
    assert_eq!(acknowledge_code(&nonsense), InvalidRequest.code());
    let nowhere = other.acknowledge(Uuid::from_u128(5), &[(0, 0, ACCEPT)]).await;
    assert_eq!(acknowledge_code(&nowhere), UnknownTopicId.code());
    holder.settle(topic, &[(0, 1, ACCEPT)]).await;
}
