//! Lifetime of a share group: restart, configuration changes, dead letters, and deletion.

use std::sync::Arc;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use kafka_protocol::messages::*;
use world::SimulatedDisk;

use super::member::*;
use super::{configure, group, started};
use crate::harness::*;

#[tokio::test]
async fn progress_survives_a_restart_and_leases_do_not() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b", "c", "d"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.take(topic, 0).await;
    member.settle(topic, &[(0, 0, ACCEPT), (2, 2, ACCEPT), (3, 3, RELEASE)]).await;
    node.shutdown().await;

    let node = Node::on(disk, |_| {}).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let taken = member.take(topic, 0).await.acquired;
    assert_eq!(taken.len(), 2, "{taken:?}");
    assert_eq!((taken[0].0, taken[0].1), (1, 1), "it was leased");
    assert_eq!(taken[1], (3, 3, 2), "it was released");
}

#[tokio::test]
async fn changed_group_configuration_applies_to_records_already_leased() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.take(topic, 0).await;
    assert_eq!(configure(&mut client, "g", &[("share.delivery.count.limit", "2")]).await, 0);
    member.settle(topic, &[(0, 0, RELEASE)]).await;
    assert_eq!(member.take(topic, 0).await.acquired, [(0, 0, 2)]);
    member.settle(topic, &[(0, 0, RELEASE)]).await;
    client.put("t", 0, &["b"]).await;
    assert_eq!(member.take(topic, 0).await.acquired, [(1, 1, 1)], "the first was given up");
    let refused = [
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "100"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.ordering", "reverse"),
        ("errors.deadletterqueue.topic.name", "letters"),
        ("share.nonsense", "1"),
    ];
    for value in refused {
        assert_eq!(configure(&mut client, "g", &[value]).await, InvalidConfig.code(), "{value:?}");
    }
}

#[tokio::test]
async fn dead_letters_go_only_to_topics_that_accept_them() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let takes = ("errors.deadletterqueue.group.enable", "true");
    client.create("dlq.takes", 1, &[takes]).await;
    client.create("dlq.does-not", 1, &[]).await;
    client.put("t", 0, &["a", "b", "c"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.take(topic, 0).await;
    let name = "errors.deadletterqueue.topic.name";
    for (offset, to) in ["dlq.does-not", "dlq.absent", "dlq.takes"].into_iter().enumerate() {
        assert_eq!(configure(&mut client, "g", &[(name, to)]).await, 0);
        let offset = offset as i64;
        member.settle(topic, &[(offset, offset, REJECT)]).await;
    }
    // Kafka's default: a letter refers to its record, without a copy of it.
    assert_eq!(client.get("dlq.takes", 0, 0).await, [""]);
    assert!(client.get("dlq.does-not", 0, 0).await.is_empty());
}

fn describe_offsets(group_name: &str) -> DescribeShareGroupOffsetsRequest {
    let wanted = DescribeShareGroupOffsetsRequestGroup::default()
        .with_group_id(group(group_name))
        .with_topics(None);
    DescribeShareGroupOffsetsRequest::default().with_groups(vec![wanted])
}

#[tokio::test]
async fn offsets_of_an_empty_share_group_are_altered_and_deleted() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b", "c"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.take(topic, 0).await;
    member.settle(topic, &[(0, 2, ACCEPT)]).await;
    let to = |index, offset| {
        AlterShareGroupOffsetsRequestPartition::default()
            .with_partition_index(index)
            .with_start_offset(offset)
    };
    let alter = |group_name: &str, name_of: &str, partitions| {
        AlterShareGroupOffsetsRequest::default().with_group_id(group(group_name)).with_topics(vec![
            AlterShareGroupOffsetsRequestTopic::default()
                .with_topic_name(name(name_of))
                .with_partitions(partitions),
        ])
    };
    let cut = |topic| {
        let topic = DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(name(topic));
        DeleteShareGroupOffsetsRequest::default().with_group_id(group("g")).with_topics(vec![topic])
    };
    let busy = client.ask(0, &alter("g", "t", vec![to(0, 1)])).await;
    assert_eq!(busy.error_code, NonEmptyGroup.code());
    assert_eq!(client.ask(0, &cut("t")).await.error_code, NonEmptyGroup.code());
    member.member_epoch = -1;
    member.beat(None).await;

    let altered = client.ask(0, &alter("g", "t", vec![to(0, 1), to(7, 0)])).await;
    let codes: Vec<_> = altered.responses[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!((altered.error_code, codes), (0, vec![0, UnknownTopicOrPartition.code()]));
    let described = client.ask(0, &describe_offsets("g")).await;
    let partitions = &described.groups[0].topics[0].partitions;
    let starts: Vec<_> = partitions.iter().map(|p| (p.partition_index, p.start_offset)).collect();
    assert_eq!(starts, [(0, 1), (1, 0)]);
    let absent = client.ask(0, &describe_offsets("none")).await;
    assert_eq!(absent.groups[0].error_code, GroupIdNotFound.code());
    // An offset beyond the end is clamped to the end. Altering also creates a group.
    assert_eq!(client.ask(0, &alter("fresh", "t", vec![to(0, 99)])).await.error_code, 0);
    let described = client.ask(0, &describe_offsets("fresh")).await;
    assert_eq!(described.groups[0].topics[0].partitions[0].start_offset, 3);

    let gone = client.ask(0, &cut("t")).await;
    assert_eq!((gone.error_code, gone.responses[0].error_code), (0, 0));
    assert_eq!(client.ask(0, &cut("t")).await.error_code, GroupIdNotFound.code());
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group("fresh")]);
    assert_eq!(client.ask(2, &delete).await.results[0].error_code, 0);
    assert_eq!(client.ask(2, &delete).await.results[0].error_code, GroupIdNotFound.code());
}
