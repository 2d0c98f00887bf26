//! The cluster of one node: its description, and the features that it lacks.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::*;

use crate::harness::*;

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
async fn single_node_answers_requests_for_features_that_it_lacks() {
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
async fn single_node_is_its_whole_quorum() {
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
async fn node_without_users_refuses_quotas_and_lists_no_credentials_or_transactions() {
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
