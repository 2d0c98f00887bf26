//! Topics: their metadata, creation, growth and deletion.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableReplicaAssignment;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
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
    // An unknown id: without a name, as far as the version allows.
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

/// Tools that look for them would mistake an ordinary topic for the state of Kafka's brokers.
#[tokio::test]
async fn internal_topics_of_kafka_are_not_created() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let names = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
    for _ in 0..2 {
        for topic in &client.ask(8, &metadata(&names, true)).await.topics {
            assert_eq!(topic.error_code, InvalidTopicException.code(), "{topic:?}");
        }
    }
    for validate_only in [true, false] {
        let topics = names.map(|name| new_topic(name, 1, &[]));
        let request = CreateTopicsRequest::default()
            .with_topics(topics.into())
            .with_timeout_ms(5_000)
            .with_validate_only(validate_only);
        for topic in client.ask(7, &request).await.topics {
            assert_eq!(topic.error_code, InvalidTopicException.code(), "{topic:?}");
        }
    }
    assert!(client.ask(12, &MetadataRequest::default().with_topics(None)).await.topics.is_empty());
}

#[tokio::test]
async fn topics_are_auto_created_only_if_client_and_node_allow_it() {
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
async fn topics_are_created_or_refused_one_by_one() {
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
async fn validate_only_creates_nothing() {
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
async fn produce_pipelined_after_the_creation_of_its_topic_succeeds() {
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

    let topics = vec![TopicRequest::default().with_name(name("nowhere"))];
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics)
        .with_response_partition_limit(10);
    let response = client.ask(0, &request).await;
    assert_eq!(response.topics[0].error_code, UnknownTopicOrPartition.code());
}
