//! Two tenants: every request and operation of a client with all rights in vhost `/`, about a queue of vhost
//! `shop`. Nothing of the queue is seen, changed or counted.

use std::collections::BTreeSet;

use ::operations::document::{DeadLetterTopics, Operation, QueueName, QueuePage, Start};
use access_rules::Permissions;
use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Rule, Verdict};
use base::MAIN_LEASE_GROUP;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use serde_json::Value;
use uuid::Uuid;

use crate::authorization::{TOPIC_FAILED, app, logged_in, node};
use crate::harness::*;
use crate::operation_rights::{REFUSALS, samples_of};

/// Queue `secretq` of vhost `shop`.
const FOREIGN: &str = "amqp.shop.secretq";
const GROUP_FAILED: i16 = 30;
const GROUP_NOT_FOUND: i16 = 69;

/// Requests that name no topic, and show none.
const OF_NO_TOPIC: &[i16] = &[
    ApiKey::ApiVersions as i16,
    ApiKey::SaslHandshake as i16,
    ApiKey::SaslAuthenticate as i16,
    ApiKey::DescribeCluster as i16,
    ApiKey::DescribeTransactions as i16,
    ApiKey::ListTransactions as i16,
    ApiKey::InitializeShareGroupState as i16,
    ApiKey::ReadShareGroupState as i16,
    ApiKey::WriteShareGroupState as i16,
    ApiKey::DeleteShareGroupState as i16,
    ApiKey::ReadShareGroupStateSummary as i16,
    ApiKey::InitProducerId as i16,
    ApiKey::AddOffsetsToTxn as i16,
    ApiKey::EndTxn as i16,
    ApiKey::FindCoordinator as i16,
    ApiKey::JoinGroup as i16,
    ApiKey::SyncGroup as i16,
    ApiKey::Heartbeat as i16,
    ApiKey::LeaveGroup as i16,
    // They need a right on the cluster, which the tenant lacks.
    ApiKey::DescribeAcls as i16,
    ApiKey::CreateAcls as i16,
    ApiKey::DeleteAcls as i16,
    ApiKey::DescribeUserScramCredentials as i16,
    ApiKey::AlterUserScramCredentials as i16,
    ApiKey::DescribeClientQuotas as i16,
    ApiKey::AlterClientQuotas as i16,
    ApiKey::DescribeLogDirs as i16,
    ApiKey::DescribeQuorum as i16,
    ApiKey::UpdateFeatures as i16,
    ApiKey::ElectLeaders as i16,
    ApiKey::AlterPartitionReassignments as i16,
    ApiKey::ListPartitionReassignments as i16,
    ApiKey::ListConfigResources as i16,
    // Streams groups, which the message crate lacks.
    88,
    89,
];

fn queue(group: &str) -> QueueName {
    QueueName { topic: FOREIGN.into(), group: group.into() }
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// A node with the queue, which has three records, the group `main`, a share group `sg`, and an offset of
/// group `g`.
async fn with_queue() -> (Node, Client, Uuid) {
    let node = node().await;
    let mut root = logged_in(&node, b"\0root\0toor").await;
    root.create(FOREIGN, 1, &[]).await;
    root.put(FOREIGN, 0, &["SECRET 0", "SECRET 1", "SECRET 2"]).await;
    for name in [MAIN_LEASE_GROUP, "sg"] {
        let (queue, from) = (queue(name), Start::Earliest);
        let declare = Operation::DeclareQueue { queue, from, config: [].into() };
        root.operate::<Value>(&declare).await;
    }
    let committed = root.ask(8, &commit()).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, 0);
    let uuid = node.broker.catalog().topic_named(FOREIGN).expect("is there").uuid();
    (node, root, uuid)
}

fn commit() -> OffsetCommitRequest {
    let partition =
        offset_commit_request::OffsetCommitRequestPartition::default().with_committed_offset(2);
    let topic = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(name(FOREIGN))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

macro_rules! walk {
    ($client:ident, $asked:ident; $($request:ty, $version:literal, $message:expr,
        |$answer:ident| $seen:expr, $expected:expr;)*) => {$(
        {
            $asked.insert(<$request as Request>::KEY);
            let message: $request = $message;
            let $answer = $client.ask($version, &message).await;
            assert_eq!($seen, $expected, "{}", stringify!($request));
            let shown = format!("{:?}", $answer);
            assert!(!shown.contains("SECRET"), "{shown}");
        }
    )*};
}

fn is_shown<T: std::fmt::Debug>(answer: &T) -> bool {
    format!("{answer:?}").contains("secretq")
}

/// Sends every request that names or lists topics, as the client.
async fn walk_requests(client: &mut Client, uuid: Uuid) -> BTreeSet<i16> {
    let mut asked: BTreeSet<i16> = BTreeSet::new();
    let listed =
        list_offsets_request::ListOffsetsTopic::default().with_name(name(FOREIGN)).with_partitions(
            vec![list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1)],
        );
    let epoch = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
        .with_topic(name(FOREIGN))
        .with_partitions(vec![Default::default()]);
    let named = metadata_request::MetadataRequestTopic::default().with_name(Some(name(FOREIGN)));
    let by_id =
        metadata_request::MetadataRequestTopic::default().with_name(None).with_topic_id(uuid);
    let cut = delete_records_request::DeleteRecordsTopic::default()
        .with_name(name(FOREIGN))
        .with_partitions(vec![
            delete_records_request::DeleteRecordsPartition::default().with_offset(-1),
        ]);
    let produced = describe_producers_request::TopicRequest::default()
        .with_name(name(FOREIGN))
        .with_partition_indexes(vec![0]);
    let described =
        describe_topic_partitions_request::TopicRequest::default().with_name(name(FOREIGN));
    let grown = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(name(FOREIGN))
        .with_count(2)
        .with_assignments(None);
    let gone = delete_topics_request::DeleteTopicState::default().with_name(Some(name(FOREIGN)));
    let gone_by_id =
        delete_topics_request::DeleteTopicState::default().with_name(None).with_topic_id(uuid);
    let made = new_topic("amqp.shop.another", 1, &[]);
    walk! { client, asked;
        ProduceRequest, 9, produce(FOREIGN, 0, -1, batch(&["INJECTED"]).into()),
            |it| it.responses[0].partition_responses[0].error_code, TOPIC_FAILED;
        FetchRequest, 11, fetch(FOREIGN, 0, 0, 0),
            |it| it.responses[0].partitions[0].error_code, TOPIC_FAILED;
        ListOffsetsRequest, 7,
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![listed.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        MetadataRequest, 9, MetadataRequest::default().with_topics(Some(vec![named.clone()])),
            |it| it.topics[0].error_code, TOPIC_FAILED;
        MetadataRequest, 12, MetadataRequest::default().with_topics(Some(vec![by_id.clone()])),
            |it| (it.topics[0].error_code == 0, is_shown(&it)), (false, false);
        MetadataRequest, 9, MetadataRequest::default().with_topics(None), |it| is_shown(&it), false;
        DescribeTopicPartitionsRequest, 0,
            DescribeTopicPartitionsRequest::default().with_topics(vec![described.clone()]),
            |it| it.topics[0].error_code, TOPIC_FAILED;
        DescribeTopicPartitionsRequest, 0, DescribeTopicPartitionsRequest::default(),
            |it| is_shown(&it), false;
        OffsetForLeaderEpochRequest, 4,
            OffsetForLeaderEpochRequest::default().with_topics(vec![epoch.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        DescribeProducersRequest, 0,
            DescribeProducersRequest::default().with_topics(vec![produced.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        DeleteRecordsRequest, 2, DeleteRecordsRequest::default().with_topics(vec![cut.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        CreateTopicsRequest, 7, CreateTopicsRequest::default().with_topics(vec![made.clone()]),
            |it| it.topics[0].error_code, TOPIC_FAILED;
        CreatePartitionsRequest, 3, CreatePartitionsRequest::default().with_topics(vec![grown.clone()]),
            |it| it.results[0].error_code, TOPIC_FAILED;
        DeleteTopicsRequest, 6, DeleteTopicsRequest::default().with_topics(vec![gone.clone()]),
            |it| it.responses[0].error_code, TOPIC_FAILED;
        DeleteTopicsRequest, 6, DeleteTopicsRequest::default().with_topics(vec![gone_by_id.clone()]),
            |it| (it.responses[0].error_code == 0, is_shown(&it)), (false, false);
    }
    walk_groups(client, uuid, &mut asked).await;
    walk_configs(client, &mut asked).await;
    asked
}

async fn walk_groups(client: &mut Client, uuid: Uuid, asked: &mut BTreeSet<i16>) {
    let fetched =
        offset_fetch_request::OffsetFetchRequestGroup::default().with_group_id(group("g"));
    let fetched_topic = offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_name(name(FOREIGN))
        .with_partition_indexes(vec![0]);
    let forgotten = offset_delete_request::OffsetDeleteRequestTopic::default()
        .with_name(name(FOREIGN))
        .with_partitions(vec![Default::default()]);
    let beat = || {
        ConsumerGroupHeartbeatRequest::default()
            .with_member_id(text("m"))
            .with_member_epoch(0)
            .with_rebalance_timeout_ms(1_000)
            .with_topic_partitions(Some(Vec::new()))
    };
    let share = || {
        ShareGroupHeartbeatRequest::default()
            .with_group_id(group("mine"))
            .with_member_id(text("m"))
            .with_member_epoch(0)
            .with_subscribed_topic_names(Some(vec![name(FOREIGN)]))
    };
    let shared = share_fetch_request::FetchTopic::default()
        .with_topic_id(uuid)
        .with_partitions(vec![Default::default()]);
    let member = Uuid::from_u128(1).to_string();
    let share_fetch = ShareFetchRequest::default()
        .with_group_id(Some(group("sg")))
        .with_member_id(Some(text(&member)))
        .with_max_records(10)
        .with_batch_size(10)
        .with_max_bytes(1 << 20)
        .with_topics(vec![shared]);
    let acknowledged = share_acknowledge_request::AcknowledgeTopic::default()
        .with_topic_id(uuid)
        .with_partitions(vec![
            share_acknowledge_request::AcknowledgePartition::default()
                .with_acknowledgement_batches(vec![
                    share_acknowledge_request::AcknowledgementBatch::default()
                        .with_acknowledge_types(vec![1]),
                ]),
        ]);
    let acknowledge = ShareAcknowledgeRequest::default()
        .with_group_id(Some(group("sg")))
        .with_member_id(Some(text(&member)))
        .with_share_session_epoch(1)
        .with_topics(vec![acknowledged]);
    let of_sg =
        describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup::default()
            .with_group_id(group("sg"));
    let of_topic =
        describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestTopic::default()
            .with_topic_name(name(FOREIGN))
            .with_partitions(vec![0]);
    let moved = alter_share_group_offsets_request::AlterShareGroupOffsetsRequestTopic::default()
        .with_topic_name(name(FOREIGN))
        .with_partitions(vec![
            alter_share_group_offsets_request::AlterShareGroupOffsetsRequestPartition::default()
                .with_start_offset(3),
        ]);
    let ended = delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic::default()
        .with_topic_name(name(FOREIGN));
    let id = || TransactionalId(text("x"));
    let added = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(name(FOREIGN))
        .with_partitions(vec![0]);
    let in_transaction = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(name(FOREIGN))
        .with_partitions(vec![Default::default()]);
    let commit_in_transaction = TxnOffsetCommitRequest::default()
        .with_transactional_id(id())
        .with_group_id(group("g"))
        .with_generation_id(-1)
        .with_topics(vec![in_transaction]);
    walk! { client, asked;
        AddPartitionsToTxnRequest, 3,
            AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id())
                .with_v3_and_below_topics(vec![added.clone()]),
            |it| it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, TOPIC_FAILED;
        TxnOffsetCommitRequest, 4, commit_in_transaction.clone(),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        OffsetCommitRequest, 8, commit(), |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        OffsetFetchRequest, 8,
            OffsetFetchRequest::default().with_groups(vec![fetched.clone().with_topics(None)]),
            |it| is_shown(&it), false;
        OffsetFetchRequest, 8,
            OffsetFetchRequest::default()
                .with_groups(vec![fetched.clone().with_topics(Some(vec![fetched_topic.clone()]))]),
            |it| it.groups[0].topics[0].partitions[0].error_code, TOPIC_FAILED;
        OffsetDeleteRequest, 0,
            OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![forgotten.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED;
        DeleteGroupsRequest, 2,
            DeleteGroupsRequest::default().with_groups_names(vec![group("g"), group("sg"), group(MAIN_LEASE_GROUP)]),
            |it| it.results.iter().map(|one| one.error_code).collect::<Vec<_>>(), vec![GROUP_FAILED; 3];
        ConsumerGroupHeartbeatRequest, 1,
            beat().with_group_id(group("g8")).with_subscribed_topic_names(Some(vec![name(FOREIGN)])),
            |it| it.error_code, TOPIC_FAILED;
        ConsumerGroupHeartbeatRequest, 1,
            beat().with_group_id(group("g9")).with_subscribed_topic_regex(Some(text(".*"))),
            |it| format!("{it:?}").contains(&uuid.to_string()), false;
        ConsumerGroupDescribeRequest, 1,
            ConsumerGroupDescribeRequest::default().with_group_ids(vec![group("g9")]),
            |it| is_shown(&it), false;
        DescribeGroupsRequest, 5, DescribeGroupsRequest::default().with_groups(vec![group("sg")]),
            |it| is_shown(&it), false;
        ShareGroupHeartbeatRequest, 1, share(), |it| it.error_code, TOPIC_FAILED;
        ShareGroupDescribeRequest, 1,
            ShareGroupDescribeRequest::default().with_group_ids(vec![group("sg")]),
            |it| it.groups[0].error_code, GROUP_NOT_FOUND;
        ShareFetchRequest, 1, share_fetch.clone(),
            |it| it.responses.iter().all(|topic| topic.partitions.iter().all(|one| {
                one.error_code != 0 && one.records.as_ref().is_none_or(|it| it.is_empty())
            })), true;
        ShareAcknowledgeRequest, 1, acknowledge.clone(),
            |it| it.error_code != 0 || it.responses.iter().all(|topic| {
                topic.partitions.iter().all(|one| one.error_code != 0)
            }), true;
        DescribeShareGroupOffsetsRequest, 0,
            DescribeShareGroupOffsetsRequest::default().with_groups(vec![of_sg.clone().with_topics(None)]),
            |it| is_shown(&it), false;
        DescribeShareGroupOffsetsRequest, 0,
            DescribeShareGroupOffsetsRequest::default()
                .with_groups(vec![of_sg.clone().with_topics(Some(vec![of_topic.clone()]))]),
            |it| it.groups[0].topics[0].partitions[0].error_code, TOPIC_FAILED;
        AlterShareGroupOffsetsRequest, 0,
            AlterShareGroupOffsetsRequest::default().with_group_id(group("sg")).with_topics(vec![moved.clone()]),
            |it| it.responses[0].partitions[0].error_code, TOPIC_FAILED;
        DeleteShareGroupOffsetsRequest, 0,
            DeleteShareGroupOffsetsRequest::default().with_group_id(group("sg")).with_topics(vec![ended.clone()]),
            |it| it.responses[0].error_code, TOPIC_FAILED;
        ListGroupsRequest, 4, ListGroupsRequest::default(),
            |it| it.groups.iter().filter(|one| ["sg", MAIN_LEASE_GROUP].contains(&&*one.group_id.0)).count(), 0;
    }
}

async fn walk_configs(client: &mut Client, asked: &mut BTreeSet<i16>) {
    let shown = describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(FOREIGN))
        .with_configuration_keys(None);
    let set = |kind: i8, resource: &str| {
        alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
    };
    let change = |kind: i8, resource: &str, config: &str, value: &str| {
        let config = incremental_alter_configs_request::AlterableConfig::default()
            .with_name(text(config))
            .with_value(Some(text(value)));
        incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
            .with_configs(vec![config])
    };
    walk! { client, asked;
        DescribeConfigsRequest, 4, DescribeConfigsRequest::default().with_resources(vec![shown.clone()]),
            |it| it.results[0].error_code, TOPIC_FAILED;
        AlterConfigsRequest, 2, AlterConfigsRequest::default().with_resources(vec![set(2, FOREIGN), set(32, "sg")]),
            |it| it.responses.iter().map(|one| one.error_code).collect::<Vec<_>>(), [TOPIC_FAILED, GROUP_FAILED];
        IncrementalAlterConfigsRequest, 1,
            IncrementalAlterConfigsRequest::default().with_resources(vec![
                change(2, FOREIGN, "retention.ms", "1"),
                change(32, "sg", "share.record.lock.duration.ms", "20000"),
            ]),
            |it| it.responses.iter().map(|one| one.error_code).collect::<Vec<_>>(), [TOPIC_FAILED, GROUP_FAILED];
    }
}

/// Executes every private operation.
async fn walk_operations(client: &mut Client) {
    for operation in samples_of(FOREIGN, "sg") {
        match &operation {
            Operation::ListQueues { .. } => {
                let seen = client.operate::<QueuePage>(&operation).await.queues;
                assert!(seen.iter().all(|queue| queue.topic != FOREIGN), "{seen:?}");
            }
            Operation::ListDeadLetterTopics {} => {
                let seen = client.operate::<DeadLetterTopics>(&operation).await;
                assert!(!is_shown(&seen), "{seen:?}");
            }
            Operation::ListOffsetGroups { .. } => {
                let seen = client.operate::<Value>(&operation).await;
                assert!(!is_shown(&seen), "{seen:?}");
            }
            Operation::DescribeOffsetGroup { .. } => {}
            operation => {
                let code = client.code_of(operation).await;
                assert!(
                    code.is_some_and(|code| REFUSALS.contains(&code)),
                    "{operation:?} {code:?}"
                );
            }
        }
    }
    let delete = Operation::DeleteOffsetGroup { group: "g".into(), dry_run: false };
    assert!(client.code_of(&delete).await.is_some_and(|code| REFUSALS.contains(&code)));
}

/// State of the queue, for comparison: records, groups, positions and settings.
async fn state(node: &Node, root: &mut Client) -> String {
    let records = root.get(FOREIGN, 0, 0).await;
    let fetched = offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(group("g"))
        .with_topics(None);
    let offsets = root.ask(8, &OffsetFetchRequest::default().with_groups(vec![fetched])).await;
    let describe = |group: &str| Operation::DescribeQueue { queue: queue(group) };
    let mut groups = Vec::new();
    for group in [MAIN_LEASE_GROUP, "sg"] {
        let report = root.operate::<Value>(&describe(group)).await;
        groups.push((report["progress"].clone(), report["config"].clone()));
    }
    let catalog = node.broker.catalog();
    let topic = catalog.topic_named(FOREIGN).expect("is there");
    let lease_groups = catalog.lease_groups_of(topic.id()).count();
    let is_made = catalog.topic_named("amqp.shop.another").is_some();
    format!(
        "{records:?} {offsets:?} {groups:?} {lease_groups} {is_made} {} {:?}",
        topic.partition_count(),
        topic.overrides()
    )
}

async fn nothing_is_reached(node: &Node, root: &mut Client, uuid: Uuid) {
    let before = state(node, root).await;
    let mut client = app(node).await;
    let asked = walk_requests(&mut client, uuid).await;
    let versions = client.ask(3, &crate::sessions::versions_request()).await;
    let all: BTreeSet<i16> = versions.api_keys.iter().map(|api| api.api_key).collect();
    let known: BTreeSet<i16> = asked.iter().chain(OF_NO_TOPIC).copied().collect();
    assert_eq!(all, known, "a request that is offered and is not walked, or the other way round");
    walk_operations(&mut client).await;
    assert_eq!(state(node, root).await, before);
}

#[tokio::test]
async fn tenant_of_the_default_vhost_reaches_nothing_of_another_by_permissions() {
    let (node, mut root, uuid) = with_queue().await;
    let users = node.users.clone().expect("are there");
    users.allow("app", "/", Permissions::everything()).await.expect("allowed");
    // Permissions are of queues and exchanges.
    node.allow(Resource::TransactionalId, "*", Action::Any).await;
    nothing_is_reached(&node, &mut root, uuid).await;
}

#[tokio::test]
async fn rules_for_all_names_reach_nothing_of_another_vhost() {
    let (node, mut root, uuid) = with_queue().await;
    node.allow(Resource::Topic, "*", Action::Any).await;
    node.allow(Resource::Group, "*", Action::Any).await;
    node.allow(Resource::TransactionalId, "*", Action::Any).await;
    node.allow(Resource::Cluster, CLUSTER, Action::Create).await;
    nothing_is_reached(&node, &mut root, uuid).await;
}

#[tokio::test]
async fn tenant_reaches_its_own_queue_by_permissions_and_a_named_one_by_a_rule() {
    let (node, _, _) = with_queue().await;
    let users = node.users.clone().expect("are there");
    let mut client = app(&node).await;
    let code = |answer: FetchResponse| answer.responses[0].partitions[0].error_code;
    assert_eq!(code(client.ask(11, &fetch(FOREIGN, 0, 0, 0)).await), TOPIC_FAILED);
    let rule = Rule {
        resource: Resource::Topic,
        pattern: Pattern::Prefixed,
        name: "amqp.shop.".into(),
        principal: "User:app".into(),
        host: "*".into(),
        action: Action::Read,
        verdict: Verdict::Allow,
    };
    users.add_rules(vec![rule]).await.expect("added");
    assert_eq!(client.get(FOREIGN, 0, 0).await.len(), 3);
    node.forget_rules().await;
    let (allowed, why) = users
        .explain("app", [127, 0, 0, 1].into(), Action::Read, Resource::Topic, FOREIGN)
        .expect("is there");
    assert!(!allowed && why.contains("belongs to vhost shop"), "{why}");
}
