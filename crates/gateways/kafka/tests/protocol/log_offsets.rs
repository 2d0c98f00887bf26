//! Offsets of a log: by time, by name and by leader epoch, and deletion below an offset.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::*;

use crate::harness::*;

async fn list(client: &mut Client, version: i16, timestamp: i64) -> (i16, i64, i64, i32) {
    let partition =
        ListOffsetsPartition::default().with_partition_index(0).with_timestamp(timestamp);
    let topic =
        ListOffsetsTopic::default().with_name(name("orders")).with_partitions(vec![partition]);
    let request =
        ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let response = client.ask(version, &request).await;
    let found = &response.topics[0].partitions[0];
    (found.error_code, found.offset, found.timestamp, found.leader_epoch)
}

#[tokio::test]
async fn offsets_are_found_by_time_and_by_name() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[]).await;
    for version in 1..=10 {
        assert_eq!(list(client, version, -1).await, (0, 0, -1, -1), "version {version}");
    }
    assert_eq!(list(client, 10, -3).await, (0, -1, -1, -1));
    // Timestamps TIMESTAMP to TIMESTAMP + 2.
    client.put("orders", 0, &["a", "b", "c"]).await;
    let epoch = node.leader_epoch("orders");
    assert_eq!(list(client, 10, -1).await, (0, 3, -1, epoch));
    assert_eq!(list(client, 10, -2).await, (0, 0, -1, epoch));
    assert_eq!(list(client, 10, -3).await, (0, 2, TIMESTAMP + 2, epoch));
    assert_eq!(list(client, 10, -4).await, (0, 0, -1, epoch));
    assert_eq!(list(client, 10, -5).await, (0, -1, -1, -1));
    assert_eq!(list(client, 10, 0).await, (0, 0, TIMESTAMP, epoch));
    assert_eq!(list(client, 10, TIMESTAMP + 1).await, (0, 1, TIMESTAMP + 1, epoch));
    assert_eq!(list(client, 10, TIMESTAMP + 3).await, (0, -1, -1, -1));
    assert_eq!(list(client, 6, -3).await.0, UnsupportedVersion.code());
    assert_eq!(list(client, 10, -6).await.0, UnsupportedVersion.code());
}

#[tokio::test]
async fn records_are_deleted_below_an_offset() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    client.create("kept", 1, &[("cleanup.policy", "compact")]).await;
    client.put("orders", 0, &["a"]).await;
    client.put("orders", 0, &["b"]).await;
    let mut delete = async |topic: &str, offset: i64| {
        let partition =
            DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
        let topic =
            DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
        let request =
            DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(1000);
        let response = client.ask(2, &request).await;
        let partition = &response.topics[0].partitions[0];
        (partition.error_code, partition.low_watermark)
    };
    assert_eq!(delete("orders", 1).await, (0, 1));
    assert_eq!(delete("orders", 0).await, (0, 1), "never backwards");
    assert_eq!(delete("orders", 3).await, (OffsetOutOfRange.code(), -1));
    assert_eq!(delete("orders", -2).await, (OffsetOutOfRange.code(), -1));
    assert_eq!(delete("nowhere", 0).await, (UnknownTopicOrPartition.code(), -1));
    assert_eq!(delete("kept", 0).await, (PolicyViolation.code(), -1));
    assert_eq!(delete("orders", -1).await, (0, 2));
    let response = client.ask(11, &fetch("orders", 0, 0, 0)).await;
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, OffsetOutOfRange.code());
    assert_eq!(partition.log_start_offset, 2);
}

#[tokio::test]
async fn end_of_a_leader_epoch_is_returned() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    client.put("orders", 0, &["a", "b"]).await;
    let epoch = node.leader_epoch("orders");
    let mut end = async |current: i32, wanted: i32| {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(current)
            .with_leader_epoch(wanted);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(name("orders"))
            .with_partitions(vec![partition]);
        let request = OffsetForLeaderEpochRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic]);
        let response = client.ask(4, &request).await;
        let found = &response.topics[0].partitions[0];
        (found.error_code, found.leader_epoch, found.end_offset)
    };
    assert_eq!(end(-1, epoch).await, (0, epoch, 2));
    assert_eq!(end(epoch, epoch + 5).await, (0, -1, -1));
    assert_eq!(end(epoch + 1, epoch).await, (UnknownLeaderEpoch.code(), -1, -1));
}
