//! The catalog: topics, configurations, offsets, and what is refused.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableReplicaAssignment;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest as NamedTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::*;

use crate::harness::*;

fn metadata(topics: &[&str], create: bool) -> MetadataRequest {
    let topics =
        topics.iter().map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))));
    MetadataRequest::default()
        .with_topics(Some(topics.collect()))
        .with_allow_auto_topic_creation(create)
}

#[tokio::test]
async fn metadata_names_brokers_and_partitions_in_every_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = client.create("orders", 3, &[]).await;
    for version in 0..=13 {
        let mut request = metadata(&["orders"], version < 4);
        request.allow_auto_topic_creation = true;
        let response = client.ask(version, &request).await;
        assert_eq!(response.brokers[0].port, i32::from(node.address.port()));
        let topic = &response.topics[0];
        assert_eq!((topic.error_code, topic.partitions.len()), (0, 3));
        assert!(topic.partitions.iter().all(|partition| partition.leader_id == 1));
        if version >= 10 {
            assert_eq!(topic.topic_id, id);
        }
    }
    let all = client.ask(12, &MetadataRequest::default().with_topics(None)).await;
    assert_eq!(all.topics.len(), 1);
    let none = client.ask(12, &MetadataRequest::default().with_topics(Some(vec![]))).await;
    assert!(none.topics.is_empty());
    // By id the name is null, or, from Java clients, empty.
    for none in [None, Some(name(""))] {
        let by_id = MetadataRequestTopic::default().with_topic_id(id).with_name(none);
        let request = MetadataRequest::default().with_topics(Some(vec![by_id]));
        let found = client.ask(12, &request).await;
        let found = found.topics[0].name.as_ref().map(|name| name.to_string());
        assert_eq!(found.as_deref(), Some("orders"));
    }
    // An id that no topic has: without a name, as far as the version can say so.
    for none in [None, Some(name(""))] {
        let nobody = uuid::Uuid::from_u128(9);
        let by_id = MetadataRequestTopic::default().with_topic_id(nobody).with_name(none);
        let request = MetadataRequest::default().with_topics(Some(vec![by_id]));
        for version in [12, 13] {
            let missing = &client.ask(version, &request).await.topics[0];
            assert_eq!(missing.error_code, UnknownTopicId.code());
            assert_eq!((missing.name.as_ref(), missing.topic_id), (None, nobody));
        }
    }
    let illegal = client.ask(12, &metadata(&["not legal"], false)).await;
    assert_eq!(illegal.topics[0].error_code, InvalidTopicException.code());
}

#[tokio::test]
async fn topics_come_about_when_they_are_asked_for_if_both_sides_agree() {
    let node = Node::with(|options| options.partitions_default = 4).await;
    let mut client = node.client().await;
    let response = client.ask(12, &metadata(&["new"], false)).await;
    assert_eq!(response.topics[0].error_code, UnknownTopicOrPartition.code());
    let response = client.ask(12, &metadata(&["new", "b a d"], true)).await;
    assert_eq!((response.topics[0].error_code, response.topics[0].partitions.len()), (0, 4));
    assert_eq!(response.topics[1].error_code, InvalidTopicException.code());

    let strict = Node::with(|options| options.auto_create_topics = false).await;
    let response = strict.client().await.ask(12, &metadata(&["new"], true)).await;
    assert_eq!(response.topics[0].error_code, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn topics_are_made_or_refused_one_by_one() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("taken", 1, &[]).await;
    let three = new_topic("three", 1, &[]).with_replication_factor(3);
    let assigned = |brokers: Vec<i32>| {
        let assignment = CreatableReplicaAssignment::default()
            .with_partition_index(0)
            .with_broker_ids(brokers.into_iter().map(BrokerId).collect());
        new_topic("assigned", -1, &[]).with_assignments(vec![assignment])
    };
    let request = CreateTopicsRequest::default().with_timeout_ms(1000).with_topics(vec![
        new_topic("fine", 2, &[("retention.ms", "1000")]),
        new_topic("taken", 1, &[]),
        new_topic("", 1, &[]),
        new_topic("zero", 0, &[]),
        three,
        new_topic("configured", 1, &[("no.such.config", "1")]),
        new_topic("twice", 1, &[]),
        new_topic("twice", 1, &[]),
        assigned(vec![1]),
        assigned(vec![2]).with_name(name("elsewhere")),
    ]);
    let response = client.ask(7, &request).await;
    let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
    let expected = [
        0,
        TopicAlreadyExists.code(),
        InvalidTopicException.code(),
        InvalidPartitions.code(),
        InvalidReplicationFactor.code(),
        InvalidConfig.code(),
        InvalidRequest.code(),
        InvalidRequest.code(),
        0,
        InvalidReplicaAssignment.code(),
    ];
    assert_eq!(codes, expected);
    let fine = &response.topics[0];
    assert_eq!((fine.num_partitions, fine.replication_factor), (2, 1));
    let configs = fine.configs.as_ref().unwrap();
    let retention = configs.iter().find(|config| &*config.name == "retention.ms").unwrap();
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
    assert!(response.topics[1].error_message.is_some());
}

#[tokio::test]
async fn validating_makes_nothing() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for version in 2..=7 {
        let request = CreateTopicsRequest::default()
            .with_topics(vec![new_topic("maybe", 2, &[]), new_topic("a b", 2, &[])])
            .with_timeout_ms(1000)
            .with_validate_only(true);
        let mut request = request;
        if version < 4 {
            for topic in &mut request.topics {
                topic.replication_factor = 1;
            }
        }
        let response = client.ask(version, &request).await;
        assert_eq!(response.topics[0].error_code, 0, "version {version}");
        assert_eq!(response.topics[1].error_code, InvalidTopicException.code());
    }
    let response = client.ask(12, &metadata(&["maybe"], false)).await;
    assert_eq!(response.topics[0].error_code, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn a_produce_sent_behind_the_creation_of_its_topic_finds_it() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let request = CreateTopicsRequest::default()
        .with_topics(vec![new_topic("orders", 1, &[])])
        .with_timeout_ms(1000);
    let created = client.send(7, &request).await;
    let produced = client.send(9, &produce("orders", 0, -1, batch(&["a"]).into())).await;
    client.receive(created).await;
    assert_eq!(only_partition(client.receive(produced).await).error_code, 0);
}

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let id = client.create("a", 1, &[]).await;
    client.create("b", 1, &[]).await;
    let state = DeleteTopicState::default;
    let request = DeleteTopicsRequest::default().with_timeout_ms(1000).with_topics(vec![
        state().with_name(None).with_topic_id(id),
        state().with_name(Some(name("b"))),
        state().with_name(Some(name("c"))),
        state().with_name(None).with_topic_id(uuid::Uuid::from_u128(3)),
    ]);
    let response = client.ask(6, &request).await;
    let codes: Vec<i16> = response.responses.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, 0, UnknownTopicOrPartition.code(), UnknownTopicId.code()]);
    let all = client.ask(12, &MetadataRequest::default().with_topics(None)).await;
    assert!(all.topics.is_empty());
}

#[tokio::test]
async fn topics_grow_and_never_shrink() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 2, &[]).await;
    let mut grow = async |topic: &str, count: i32, validate_only: bool| {
        let topic = CreatePartitionsTopic::default()
            .with_name(name(topic))
            .with_count(count)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(1000)
            .with_validate_only(validate_only);
        client.ask(3, &request).await.results[0].error_code
    };
    assert_eq!(grow("orders", 5, true).await, 0);
    assert_eq!(grow("orders", 2, false).await, InvalidPartitions.code());
    assert_eq!(grow("orders", 5, false).await, 0);
    assert_eq!(grow("orders", 4, false).await, InvalidPartitions.code());
    assert_eq!(grow("orders", -3, false).await, InvalidPartitions.code());
    assert_eq!(grow("nowhere", 3, false).await, UnknownTopicOrPartition.code());
    client.put("orders", 4, &["a"]).await;
}

async fn described(
    client: &mut Client,
    kind: i8,
    resource: &str,
) -> Result<Vec<DescribeConfigsResourceResult>, i16> {
    let wanted = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![wanted])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let mut response = client.ask(4, &request).await;
    let result = response.results.remove(0);
    if result.error_code == 0 { Ok(result.configs) } else { Err(result.error_code) }
}

async fn value(client: &mut Client, kind: i8, resource: &str, config: &str) -> (String, i8) {
    let configs = described(client, kind, resource).await.expect("is described");
    let found = configs.into_iter().find(|entry| &*entry.name == config).expect("is there");
    (found.value.unwrap().to_string(), found.config_source)
}

async fn change(
    client: &mut Client,
    kind: i8,
    resource: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> i16 {
    let configs = changes.iter().map(|(config, operation, value)| {
        AlterableConfig::default()
            .with_name(text(config))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).await.responses[0].error_code
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

#[tokio::test]
async fn configurations_are_described_and_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[("retention.ms", "5000")]).await;
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await, ("5000".into(), 1));
    let (default, source) = value(client, TOPIC, "orders", "max.message.bytes").await;
    assert_eq!((default.as_str(), source), ("1048588", 5));

    assert_eq!(change(client, TOPIC, "orders", &[("retention.ms", SET, Some("7000"))]).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await, ("7000".into(), 1));
    let policy = [("cleanup.policy", APPEND, Some("compact")), ("retention.ms", DELETE, None)];
    assert_eq!(change(client, TOPIC, "orders", &policy).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "cleanup.policy").await.0, "delete,compact");
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await.1, 5);
    let policy = [("cleanup.policy", SUBTRACT, Some("delete"))];
    assert_eq!(change(client, TOPIC, "orders", &policy).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "cleanup.policy").await.0, "compact");

    for (changes, error) in [
        ([("retention.ms", SET, Some("soon"))], InvalidConfig),
        ([("no.such.config", SET, Some("1"))], InvalidConfig),
        ([("retention.ms", APPEND, Some("1"))], InvalidConfig),
        ([("retention.ms", SET, None)], InvalidRequest),
        ([("retention.ms", 9, Some("1"))], InvalidRequest),
    ] {
        assert_eq!(change(client, TOPIC, "orders", &changes).await, error.code(), "{changes:?}");
    }
    let twice = [("retention.ms", SET, Some("1")), ("retention.ms", DELETE, None)];
    assert_eq!(change(client, TOPIC, "orders", &twice).await, InvalidRequest.code());
    let unknown = change(client, TOPIC, "nowhere", &[("retention.ms", SET, Some("1"))]).await;
    assert_eq!(unknown, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn the_nodes_configuration_is_what_topics_fall_back_to() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[]).await;
    assert_eq!(change(client, BROKER, "1", &[("message.max.bytes", SET, Some("9000"))]).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "max.message.bytes").await, ("9000".into(), 3));
    assert_eq!(value(client, BROKER, "1", "message.max.bytes").await, ("9000".into(), 3));
    assert_eq!(value(client, BROKER, "1", "node.id").await, ("1".into(), 4));
    let only_set = described(client, BROKER, "").await.unwrap();
    let names: Vec<_> = only_set.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["group.initial.rebalance.delay.ms", "message.max.bytes"]);

    let fixed = change(client, BROKER, "", &[("num.partitions", SET, Some("3"))]).await;
    assert_eq!(fixed, InvalidRequest.code());
    assert_eq!(described(client, BROKER, "7").await.unwrap_err(), InvalidRequest.code());
    assert_eq!(described(client, LOGGER, "7").await.unwrap_err(), InvalidRequest.code());
    assert_eq!(described(client, 99, "1").await.unwrap_err(), InvalidRequest.code());
}

#[tokio::test]
async fn groups_are_configured() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    let changes = [("consumer.session.timeout.ms", SET, Some("50000"))];
    assert_eq!(change(client, GROUP, "g", &changes).await, 0);
    let found = value(client, GROUP, "g", "consumer.session.timeout.ms").await;
    assert_eq!(found, ("50000".into(), 8));
}

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
async fn the_end_of_a_leader_epoch_is_told() {
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

#[tokio::test]
async fn the_cluster_is_described() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for version in 0..=2 {
        let response = client.ask(version, &DescribeClusterRequest::default()).await;
        assert_eq!((response.error_code, response.controller_id.0), (0, 1));
        assert_eq!(response.brokers[0].port, i32::from(node.address.port()));
        assert!(!response.cluster_id.is_empty());
    }
    let controllers = DescribeClusterRequest::default().with_endpoint_type(2);
    let response = client.ask(1, &controllers).await;
    assert_eq!(response.error_code, MismatchedEndpointType.code());
}

#[tokio::test]
async fn partitions_are_described_in_pages() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("a", 3, &[]).await;
    client.create("b", 4, &[]).await;
    let mut cursor = None;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let request = DescribeTopicPartitionsRequest::default()
            .with_response_partition_limit(2)
            .with_cursor(cursor);
        let response = client.ask(0, &request).await;
        for topic in &response.topics {
            let topic_name = topic.name.as_ref().unwrap().to_string();
            seen.extend(topic.partitions.iter().map(|p| (topic_name.clone(), p.partition_index)));
        }
        cursor = response.next_cursor.map(|next| {
            describe_topic_partitions_request::Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index)
        });
        if cursor.is_none() {
            break;
        }
    }
    assert!(cursor.is_none());
    let of =
        |topic: &str, count: i32| (0..count).map(|p| (topic.to_owned(), p)).collect::<Vec<_>>();
    assert_eq!(seen, [of("a", 3), of("b", 4)].concat());

    let topics = vec![NamedTopic::default().with_name(name("nowhere"))];
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics)
        .with_response_partition_limit(10);
    let response = client.ask(0, &request).await;
    assert_eq!(response.topics[0].error_code, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn storage_and_producers_are_described() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 2, &[]).await;
    client.put("orders", 0, &["a"]).await;
    for version in 1..=4 {
        let request = DescribeLogDirsRequest::default().with_topics(None);
        let response = client.ask(version, &request).await;
        let topic = &response.results[0].topics[0];
        assert!(topic.partitions[0].partition_size > 0);
        assert_eq!(topic.partitions[1].partition_size, 0);
    }
    let topic =
        TopicRequest::default().with_name(name("orders")).with_partition_indexes(vec![0, 5]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let response = client.ask(0, &request).await;
    let partitions = &response.topics[0].partitions;
    assert!(partitions[0].active_producers.is_empty());
    assert_eq!(partitions[1].error_code, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn what_one_node_does_not_have_is_said_so() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let acls = client.ask(3, &DescribeAclsRequest::default().with_resource_type_filter(1)).await;
    assert_eq!(acls.error_code, SecurityDisabled.code());
    let acl = create_acls_request::AclCreation::default();
    let acls = client.ask(3, &CreateAclsRequest::default().with_creations(vec![acl])).await;
    assert_eq!(acls.results[0].error_code, SecurityDisabled.code());
    let quotas = client.ask(1, &DescribeClientQuotasRequest::default()).await;
    assert_eq!((quotas.error_code, quotas.entries.map(|e| e.len())), (0, Some(0)));
    let listed =
        client.ask(0, &ListPartitionReassignmentsRequest::default().with_topics(None)).await;
    assert_eq!((listed.error_code, listed.topics.len()), (0, 0));
    let topic = elect_leaders_request::TopicPartitions::default()
        .with_topic(name("orders"))
        .with_partitions(vec![0]);
    let elected = client
        .ask(2, &ElectLeadersRequest::default().with_topic_partitions(Some(vec![topic])))
        .await;
    let partition = &elected.replica_election_results[0].partition_result[0];
    assert_eq!(partition.error_code, ElectionNotNeeded.code());
    for version in 0..=1 {
        let listed = client.ask(version, &ListConfigResourcesRequest::default()).await;
        assert_eq!(listed.error_code, 0);
        assert_eq!(listed.config_resources.is_empty(), version == 0);
    }
}

#[tokio::test]
async fn one_node_is_all_of_its_quorum() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let metadata = describe_quorum_request::TopicData::default()
        .with_topic_name(name("__cluster_metadata"))
        .with_partitions(vec![describe_quorum_request::PartitionData::default()]);
    let other = metadata.clone().with_topic_name(name("orders"));
    let request = DescribeQuorumRequest::default().with_topics(vec![metadata, other]);
    let mut last_end = 0;
    for version in 0..=2 {
        let response = client.ask(version, &request).await;
        let quorum = &response.topics[0].partitions[0];
        assert_eq!((response.error_code, quorum.error_code, quorum.leader_id.0), (0, 0, 1));
        assert_eq!(quorum.leader_epoch, node.broker.catalog_epoch());
        let voters: Vec<_> = quorum.current_voters.iter().map(|it| it.replica_id.0).collect();
        assert_eq!((voters, quorum.observers.len()), (vec![1], 0));
        assert!(quorum.high_watermark > last_end, "every topic is an entry of the log");
        last_end = quorum.high_watermark;
        client.create(&format!("topic-{version}"), 1, &[]).await;
        let unknown = &response.topics[1].partitions[0];
        assert_eq!(unknown.error_code, UnknownTopicOrPartition.code());
        if version >= 2 {
            assert_eq!(response.nodes[0].listeners[0].port, node.address.port());
        }
    }
}

#[tokio::test]
async fn features_stay_at_the_level_of_the_version() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let mut update = async |version: i16, feature: &str, level: i16| {
        let update = update_features_request::FeatureUpdateKey::default()
            .with_feature(text(feature))
            .with_max_version_level(level);
        let update = if version >= 1 { update.with_upgrade_type(1) } else { update };
        let request = UpdateFeaturesRequest::default().with_feature_updates(vec![update]);
        let response = client.ask(version, &request).await;
        (response.error_code, response.error_message.map(|it| it.to_string()))
    };
    for version in 0..=2 {
        assert_eq!(update(version, "group.version", 1).await, (0, None));
        let (code, message) = update(version, "group.version", 0).await;
        assert_eq!(code, InvalidUpdateVersion.code());
        assert!(message.unwrap().contains("It is at 1"));
        assert_eq!(update(version, "no.such.version", 1).await.0, InvalidUpdateVersion.code());
    }
}

#[tokio::test]
async fn users_quotas_and_transactions_are_none_and_none_are_taken() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let entity = alter_client_quotas_request::EntityData::default()
        .with_entity_type(text("client-id"))
        .with_entity_name(Some(text("me")));
    let op = alter_client_quotas_request::OpData::default()
        .with_key(text("producer_byte_rate"))
        .with_value(1000.0);
    let entry = alter_client_quotas_request::EntryData::default()
        .with_entity(vec![entity])
        .with_ops(vec![op]);
    for version in 0..=1 {
        let request = AlterClientQuotasRequest::default().with_entries(vec![entry.clone()]);
        let refused = &client.ask(version, &request).await.entries[0];
        assert_eq!(refused.error_code, UnsupportedVersion.code());
        assert_eq!(refused.entity[0].entity_name.as_deref(), Some("me"));
        assert!(refused.error_message.is_some());
    }

    let all = DescribeUserScramCredentialsRequest::default().with_users(None);
    let response = client.ask(0, &all).await;
    assert_eq!((response.error_code, response.results.len()), (0, 0));
    let user = describe_user_scram_credentials_request::UserName::default().with_name(text("me"));
    let one = DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user]));
    assert_eq!(client.ask(0, &one).await.results[0].error_code, ResourceNotFound.code());

    for version in 0..=2 {
        let states = vec![text("Ongoing"), text("Odd")];
        let request = ListTransactionsRequest::default().with_state_filters(states);
        let response = client.ask(version, &request).await;
        assert_eq!((response.error_code, response.transaction_states.len()), (0, 0));
        assert_eq!(response.unknown_state_filters, [text("Odd")]);
    }
    let request = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text("t"))]);
    let response = client.ask(0, &request).await;
    assert_eq!(response.transaction_states[0].error_code, TransactionalIdNotFound.code());
}

const LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;

#[tokio::test]
async fn loggers_and_client_metrics_are_shown_and_cannot_be_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let loggers = described(&mut client, LOGGER, "1").await.expect("is described");
    let names: Vec<_> = loggers.iter().map(|logger| logger.name.as_str()).collect();
    assert_eq!(names, ["root"]);
    assert!(loggers[0].read_only && loggers[0].value.is_some());
    let metrics = described(&mut client, CLIENT_METRICS, "any").await.expect("is described");
    let shown: Vec<_> = metrics
        .iter()
        .map(|config| (config.name.as_str(), config.value.as_deref().unwrap()))
        .collect();
    assert_eq!(shown, [("interval.ms", "300000"), ("match", ""), ("metrics", "")]);
    for (kind, resource, config) in [(LOGGER, "1", "root"), (CLIENT_METRICS, "any", "metrics")] {
        let refused = change(&mut client, kind, resource, &[(config, SET, Some("INFO"))]).await;
        assert_eq!(refused, InvalidRequest.code());
    }
}

#[tokio::test]
async fn deleting_a_configuration_that_is_not_set_changes_nothing() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[("segment.ms", "5000")]).await;
    for config in ["retention.bytes", "no.such.config"] {
        let changed = change(&mut client, TOPIC, "orders", &[(config, DELETE, None)]).await;
        assert_eq!(changed, 0, "{config}");
    }
    assert_eq!(value(&mut client, TOPIC, "orders", "segment.ms").await.0, "5000");
}

#[tokio::test]
async fn what_stands_since_the_start_is_shown_and_cannot_be_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for (config, expected) in [
        ("delete.topic.enable", "true"),
        ("process.roles", "broker,controller"),
        ("offsets.topic.replication.factor", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("log.retention.check.interval.ms", "300000"),
    ] {
        assert_eq!(value(&mut client, BROKER, "1", config).await.0, expected, "{config}");
    }
    let refused =
        change(&mut client, BROKER, "1", &[("delete.topic.enable", SET, Some("false"))]).await;
    assert_eq!(refused, InvalidRequest.code());
}
