//! Committed offsets: commits, fetches, deletion, and the members that may do so.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::*;

use super::classic::stable;
use super::group;
use crate::harness::*;

pub(super) fn commit(
    member: &str,
    generation: i32,
    offsets: &[(&str, i32, i64)],
) -> OffsetCommitRequest {
    let topics = offsets.iter().map(|&(topic, partition, offset)| {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("note")));
        OffsetCommitRequestTopic::default().with_name(name(topic)).with_partitions(vec![partition])
    });
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(generation)
        .with_topics(topics.collect())
}

pub(super) fn commit_codes(response: &OffsetCommitResponse) -> Vec<i16> {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).collect()
}

pub(super) async fn fetch_one(client: &mut Client, topic: &str, partition: i32) -> i64 {
    let wanted = OffsetFetchRequestTopics::default()
        .with_name(name(topic))
        .with_partition_indexes(vec![partition]);
    let wanted = OffsetFetchRequestGroup::default()
        .with_group_id(group("g"))
        .with_member_epoch(-1)
        .with_topics(Some(vec![wanted]));
    let request = OffsetFetchRequest::default().with_groups(vec![wanted]);
    let response = client.ask(9, &request).await;
    assert_eq!(response.groups[0].error_code, 0);
    response.groups[0].topics[0].partitions[0].committed_offset
}

#[tokio::test]
async fn committed_offsets_are_fetched_in_every_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    client.create("u", 1, &[]).await;
    for version in 2..=9 {
        let offset = i64::from(version);
        let request = commit("", -1, &[("t", 0, offset), ("u", 0, 7), ("t", 2, 1), ("x", 0, 1)]);
        let committed = client.ask(version, &request).await;
        let unknown = UnknownTopicOrPartition.code();
        assert_eq!(commit_codes(&committed), [0, 0, unknown, unknown]);
        let single = OffsetFetchRequestTopic::default()
            .with_name(name("t"))
            .with_partition_indexes(vec![0, 1]);
        let single =
            OffsetFetchRequest::default().with_group_id(group("g")).with_topics(Some(vec![single]));
        for fetch_version in 1..=7 {
            let fetched = client.ask(fetch_version, &single).await;
            let partitions = &fetched.topics[0].partitions;
            assert_eq!(partitions[0].committed_offset, offset);
            assert_eq!(partitions[0].metadata.as_deref(), Some("note"));
            assert_eq!(partitions[1].committed_offset, -1);
        }
        let all = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(None);
        let all = client.ask(7, &all).await;
        let topics: Vec<_> = all.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(topics, ["t", "u"]);
    }
    let of = |name: &str| {
        OffsetFetchRequestGroup::default()
            .with_group_id(group(name))
            .with_member_epoch(-1)
            .with_topics(None)
    };
    let request = OffsetFetchRequest::default().with_groups(vec![of("g"), of("none")]);
    for version in 8..=9 {
        let fetched = client.ask(version, &request).await;
        let topics: Vec<_> = fetched.groups.iter().map(|group| group.topics.len()).collect();
        assert_eq!(topics, [2, 0]);
    }
}

#[tokio::test]
async fn only_members_of_the_generation_may_commit_offsets() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let refused = |response: OffsetCommitResponse| commit_codes(&response)[0];
    let offsets = [("t", 0, 5)];
    assert_eq!(refused(client.ask(9, &commit(&member, 1, &offsets)).await), 0);
    let old = client.ask(9, &commit(&member, 0, &offsets)).await;
    assert_eq!(refused(old), IllegalGeneration.code());
    let stranger = client.ask(9, &commit("x", 1, &offsets)).await;
    assert_eq!(refused(stranger), UnknownMemberId.code());
    let by_hand = client.ask(9, &commit("", -1, &offsets)).await;
    assert_eq!(refused(by_hand), UnknownMemberId.code());
    let mut wordy = commit(&member, 1, &offsets);
    wordy.topics[0].partitions[0].committed_metadata = Some(text(&"x".repeat(5000)));
    assert_eq!(refused(client.ask(9, &wordy).await), OffsetMetadataTooLarge.code());
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
}

/// Kafka counts Java's characters: `offset.metadata.max.bytes` is a limit of UTF-16 code units.
#[tokio::test]
async fn offset_metadata_is_limited_in_utf16_code_units() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    // Three bytes and one code unit, and four bytes and two.
    for (character, max) in [("\u{20ac}", 4096), ("\u{1f600}", 2048)] {
        for (count, error) in [(max, 0), (max + 1, OffsetMetadataTooLarge.code())] {
            let mut wordy = commit("", -1, &[("t", 0, 5)]);
            let metadata = text(&character.repeat(count));
            wordy.topics[0].partitions[0].committed_metadata = Some(metadata);
            let response = client.ask(9, &wordy).await;
            assert_eq!(commit_codes(&response)[0], error, "{count} of {character}");
        }
    }
}

#[tokio::test]
async fn committing_a_negative_offset_deletes_the_offset() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 2, &[]).await;
    for before in [None, Some(5)] {
        if let Some(offset) = before {
            client.ask(9, &commit("", -1, &[("t", 0, offset)])).await;
        }
        // As kafkajs does to start at the earliest record.
        let committed = client.ask(9, &commit("", -1, &[("t", 0, -2), ("t", 1, 3)])).await;
        assert_eq!(commit_codes(&committed), [0, 0]);
        assert_eq!(fetch_one(&mut client, "t", 0).await, -1);
        assert_eq!(fetch_one(&mut client, "t", 1).await, 3);
    }
}

#[tokio::test]
async fn a_deleted_topics_offsets_are_gone() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.ask(9, &commit("", -1, &[("t", 0, 5)])).await;
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![name("t")]);
    assert_eq!(client.ask(5, &delete).await.responses[0].error_code, 0);
    client.create("t", 1, &[]).await;
    assert_eq!(fetch_one(&mut client, "t", 0).await, -1);
}

fn delete_offset(topic: &str) -> OffsetDeleteRequest {
    let topic = OffsetDeleteRequestTopic::default()
        .with_name(name(topic))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![topic])
}

#[tokio::test]
async fn offsets_of_topics_that_are_consumed_cannot_be_deleted() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let missing = client.ask(0, &delete_offset("t")).await;
    assert_eq!(missing.error_code, GroupIdNotFound.code());
    client.create("t", 1, &[]).await;
    client.create("u", 1, &[]).await;
    client.ask(9, &commit("", -1, &[("t", 0, 5), ("u", 0, 6)])).await;
    stable(&mut client).await;
    let subscribed = client.ask(0, &delete_offset("t")).await;
    let code = |response: &OffsetDeleteResponse| response.topics[0].partitions[0].error_code;
    assert_eq!(code(&subscribed), GroupSubscribedToTopic.code());
    assert_eq!(code(&client.ask(0, &delete_offset("u")).await), 0);
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
    assert_eq!(fetch_one(&mut client, "u", 0).await, -1);
}
