//! Responses about topics and groups from a node whose copy of the catalog may be stale.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::PartitionId;
use base::limits::BARRIER_WITHIN;
use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::alter_share_group_offsets_request::*;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::*;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest as ProducersOf;
use kafka_protocol::messages::describe_share_group_offsets_request::*;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig as IncrementalConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::*;
use kafka_protocol::messages::offset_delete_request::*;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use test_cluster::{Gate, TestNode};
use tokio::time::timeout;
use uuid::Uuid;

use super::Cluster;
use super::answers::fetch_by_id;
use crate::harness::*;

const TOPIC: i8 = 2;
const NOWHERE: &str = "nowhere";

fn group() -> GroupId {
    GroupId(text("nobody"))
}

/// A client of a node that does not lead the catalog, and has no barrier in progress.
struct CurrencyClient<'a> {
    cluster: &'a Cluster,
    node: i32,
    client: Client,
    asked: BTreeSet<&'static str>,
}

impl CurrencyClient<'_> {
    /// Requests something that no node has: the node must read the current catalog before it responds.
    async fn ask<R: Request>(&mut self, name: &'static str, version: i16, request: R) {
        let broker = &self.cluster.node(self.node).broker;
        let before = broker.catalog_barriers();
        self.client.ask(version, &request).await;
        assert!(broker.catalog_barriers() > before, "{name} was answered by an old copy");
        assert!(self.asked.insert(name), "{name} twice");
    }
}

fn resource() -> IncrementalResource {
    let config = IncrementalConfig::default()
        .with_name(text("retention.ms"))
        .with_config_operation(0)
        .with_value(Some(text("1000")));
    IncrementalResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(NOWHERE))
        .with_configs(vec![config])
}

#[tokio::test]
async fn unknown_topics_and_groups_are_answered_after_the_catalogs_barrier() {
    let cluster = Cluster::start().await;
    let follows = |id: &i32| !cluster.node(*id).broker.leads_catalog();
    let node = (1..=3).find(follows).expect("one leads");
    let client = cluster.client(node).await;
    let mut walk = CurrencyClient { cluster: &cluster, node, client, asked: BTreeSet::new() };
    let topic = || name(NOWHERE);

    let wanted = MetadataRequestTopic::default().with_name(Some(topic()));
    let metadata = MetadataRequest::default().with_topics(Some(vec![wanted]));
    walk.ask("Metadata", 12, metadata.with_allow_auto_topic_creation(false)).await;
    let wanted = TopicRequest::default().with_name(topic());
    let partitions = DescribeTopicPartitionsRequest::default().with_topics(vec![wanted]);
    walk.ask("DescribeTopicPartitions", 0, partitions).await;
    walk.ask("Produce", 9, produce(NOWHERE, 0, -1, batch(&["a"]).into())).await;
    walk.ask("Fetch", 12, fetch(NOWHERE, 0, 0, 0)).await;
    walk.ask("Fetch by id", 13, fetch_by_id(Uuid::from_u128(77), 0, 0)).await;
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let wanted = ListOffsetsTopic::default().with_name(topic()).with_partitions(vec![partition]);
    let offsets = ListOffsetsRequest::default().with_replica_id(BrokerId(-1));
    walk.ask("ListOffsets", 7, offsets.with_topics(vec![wanted])).await;
    let partitions = vec![OffsetForLeaderPartition::default()];
    let wanted = OffsetForLeaderTopic::default().with_topic(topic()).with_partitions(partitions);
    let ends = OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-2));
    walk.ask("OffsetForLeaderEpoch", 4, ends.with_topics(vec![wanted])).await;

    let partitions = vec![OffsetCommitRequestPartition::default()];
    let wanted = OffsetCommitRequestTopic::default().with_name(topic()).with_partitions(partitions);
    let commit = OffsetCommitRequest::default().with_group_id(group()).with_topics(vec![wanted]);
    walk.ask("OffsetCommit", 8, commit).await;
    let wanted =
        OffsetFetchRequestTopic::default().with_name(topic()).with_partition_indexes(vec![0]);
    let fetched = OffsetFetchRequest::default().with_group_id(group());
    walk.ask("OffsetFetch", 7, fetched.with_topics(Some(vec![wanted]))).await;
    let partitions = vec![OffsetDeleteRequestPartition::default()];
    let wanted = OffsetDeleteRequestTopic::default().with_name(topic()).with_partitions(partitions);
    let deleted = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![wanted]);
    walk.ask("OffsetDelete", 0, deleted).await;
    walk.ask("ListGroups", 4, ListGroupsRequest::default()).await;
    walk.ask("DescribeGroups", 5, DescribeGroupsRequest::default().with_groups(vec![group()]))
        .await;
    let described = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]);
    walk.ask("ConsumerGroupDescribe", 0, described).await;
    walk.ask("DeleteGroups", 2, DeleteGroupsRequest::default().with_groups_names(vec![group()]))
        .await;
    let described = ShareGroupDescribeRequest::default().with_group_ids(vec![group()]);
    walk.ask("ShareGroupDescribe", 1, described).await;
    let wanted =
        DescribeShareGroupOffsetsRequestGroup::default().with_group_id(group()).with_topics(None);
    let described = DescribeShareGroupOffsetsRequest::default().with_groups(vec![wanted]);
    walk.ask("DescribeShareGroupOffsets", 0, described).await;
    let altered = AlterShareGroupOffsetsRequest::default().with_group_id(group());
    walk.ask("AlterShareGroupOffsets", 0, altered).await;
    let deleted = DeleteShareGroupOffsetsRequest::default().with_group_id(group());
    walk.ask("DeleteShareGroupOffsets", 0, deleted).await;

    let wanted = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(NOWHERE));
    let described = DescribeConfigsRequest::default().with_resources(vec![wanted]);
    walk.ask("DescribeConfigs", 4, described).await;
    let altered = IncrementalAlterConfigsRequest::default().with_resources(vec![resource()]);
    walk.ask("IncrementalAlterConfigs", 1, altered).await;
    let config = AlterableConfig::default().with_name(text("retention.ms"));
    let wanted = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(NOWHERE))
        .with_configs(vec![config.with_value(Some(text("1000")))]);
    walk.ask("AlterConfigs", 2, AlterConfigsRequest::default().with_resources(vec![wanted])).await;
    walk.ask("ListConfigResources", 1, ListConfigResourcesRequest::default()).await;
    let wanted = CreatePartitionsTopic::default().with_name(topic()).with_count(2);
    walk.ask("CreatePartitions", 3, CreatePartitionsRequest::default().with_topics(vec![wanted]))
        .await;
    let deleted = DeleteTopicsRequest::default().with_topic_names(vec![topic()]);
    walk.ask("DeleteTopics", 5, deleted.with_timeout_ms(1_000)).await;
    let partitions = vec![DeleteRecordsPartition::default()];
    let wanted = DeleteRecordsTopic::default().with_name(topic()).with_partitions(partitions);
    walk.ask("DeleteRecords", 2, DeleteRecordsRequest::default().with_topics(vec![wanted])).await;
    let wanted = ProducersOf::default().with_name(topic()).with_partition_indexes(vec![0]);
    walk.ask("DescribeProducers", 0, DescribeProducersRequest::default().with_topics(vec![wanted]))
        .await;
    let wanted = TopicPartitions::default().with_topic(topic()).with_partitions(vec![0]);
    let elected = ElectLeadersRequest::default().with_topic_partitions(Some(vec![wanted]));
    walk.ask("ElectLeaders", 2, elected).await;
    let wanted = DescribableLogDirTopic::default().with_topic(topic()).with_partitions(vec![0]);
    walk.ask(
        "DescribeLogDirs",
        4,
        DescribeLogDirsRequest::default().with_topics(Some(vec![wanted])),
    )
    .await;
}

/// A topic that was created at another node than that of `client`.
struct CreatedElsewhere {
    cluster: Cluster,
    /// Gates of all nodes: without its gate a node is cut off.
    gates: Vec<Arc<Gate>>,
    /// Index of the gate that keeps the topic from the node of `client`.
    closed: usize,
    client: Client,
}

async fn created_elsewhere() -> CreatedElsewhere {
    let started = test_cluster::start_three_behind_gates();
    let started = timeout(SOON, started).await.expect("they start");
    let gates: Vec<_> = started.iter().map(TestNode::gate).collect();
    let cluster = Cluster::of(started).await;
    let follows = |id: &i32| !cluster.node(*id).broker.leads_catalog();
    let node = (1..=3).find(follows).expect("one leads");
    let (client, mut there) = (cluster.client(node).await, cluster.client(node % 3 + 1).await);
    let closed = node as usize - 1;
    gates[closed].close();
    there.create(NOWHERE, 1, &[]).await;
    let broker = &cluster.node(node).broker;
    assert!(broker.catalog().topic_named(NOWHERE).is_none(), "its copy is old");
    CreatedElsewhere { cluster, gates, closed, client }
}

#[tokio::test]
async fn topic_just_created_elsewhere_is_altered_at_a_node_with_an_old_copy() {
    let mut created = created_elsewhere().await;
    let here = &mut created.client;
    let altered = IncrementalAlterConfigsRequest::default().with_resources(vec![resource()]);
    let sent = here.send(1, &altered).await;
    let mut answer = std::pin::pin!(here.receive(sent));
    let early = timeout(Duration::from_millis(200), answer.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    created.gates[created.closed].open();
    let answer = timeout(SOON, answer).await.expect("soon");
    assert_ne!(answer.responses[0].error_code, UnknownTopicOrPartition.code());
    assert_eq!(answer.responses[0].error_code, 0, "{answer:?}");
}

#[tokio::test]
async fn unknown_topic_without_the_catalogs_barrier_is_a_timeout() {
    let mut created = created_elsewhere().await;
    let here = &mut created.client;
    let altered = IncrementalAlterConfigsRequest::default().with_resources(vec![resource()]);
    // The catalog's barrier does not pass, because its reply is held back.
    let answer = timeout(BARRIER_WITHIN + SOON, here.ask(1, &altered)).await.expect("in time");
    assert_eq!(answer.responses[0].error_code, RequestTimedOut.code(), "{answer:?}");
}

#[tokio::test]
async fn change_of_a_recreated_topic_by_an_old_copy_is_not_rejected_as_unknown() {
    let mut created = created_elsewhere().await;
    let (gate, node) = (&created.gates[created.closed], created.closed as i32 + 1);
    gate.open();
    let current = created.cluster.node(node).broker.catalog_is_current();
    timeout(SOON, current).await.expect("soon").expect("the catalog's leader replies");
    gate.close();
    let mut there = created.cluster.client(node % 3 + 1).await;
    let deleted = DeleteTopicsRequest::default().with_topic_names(vec![name(NOWHERE)]);
    there.ask(5, &deleted.with_timeout_ms(1_000)).await;
    there.create(NOWHERE, 1, &[]).await;
    let here = &mut created.client;
    let altered = IncrementalAlterConfigsRequest::default().with_resources(vec![resource()]);
    let sent = here.send(1, &altered).await;
    let mut answer = std::pin::pin!(here.receive(sent));
    // The barrier does not pass, and the change names the former topic.
    let early = timeout(BARRIER_WITHIN + Duration::from_millis(200), answer.as_mut()).await;
    gate.open();
    let answer = match early {
        Ok(answer) => answer,
        Err(_) => timeout(SOON, answer).await.expect("soon"),
    };
    assert_ne!(answer.responses[0].error_code, UnknownTopicOrPartition.code(), "{answer:?}");
}

#[tokio::test]
async fn leader_without_a_majority_answers_no_reader() {
    let started = test_cluster::start_three_behind_gates();
    let started = timeout(SOON, started).await.expect("they start");
    let gates: Vec<_> = started.iter().map(TestNode::gate).collect();
    let cluster = Cluster::of(started).await;
    cluster.client(1).await.create("log", 1, &[]).await;
    let broker = |id: i32| &cluster.node(id).broker;
    let topic = broker(1).catalog().topic_id("log").expect("it was created");
    let partition = PartitionId::new(topic, 0);
    let leader = (1..=3).find(|id| broker(*id).leads(partition)).expect("one leads");
    broker(leader).copies_are_current(&[partition]).await.expect("a majority answers");
    // The others may have elected another leader, which acknowledges records that this one lacks.
    let others = (1..=3).filter(|id| *id != leader).map(|id| &gates[id as usize - 1]);
    others.clone().for_each(|gate| gate.close());
    let partitions = [partition];
    let reading = broker(leader).copies_are_current(&partitions);
    let read = timeout(Duration::from_millis(300), reading).await;
    others.for_each(|gate| gate.open());
    assert!(read.is_err(), "{read:?}");
}
