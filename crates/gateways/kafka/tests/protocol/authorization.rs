//! Rights of a logged-in user: each request without any right, and with those that it needs.

use std::collections::BTreeSet;

use access::Admission;
use access_rules::Permissions;
use access_rules::acl::{Action, CLUSTER, Pattern, Resource, Rule, Verdict};
use kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialDeletion;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use passwords::Verifiers;

use crate::harness::*;

pub(crate) const TOPIC_FAILED: i16 = 29;
const GROUP_FAILED: i16 = 30;
const CLUSTER_FAILED: i16 = 31;
const TRANSACTION_FAILED: i16 = 53;
const REFUSALS: [i16; 4] = [TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, TRANSACTION_FAILED];

fn rule(resource: Resource, name: &str, action: Action, verdict: Verdict) -> Rule {
    Rule {
        resource,
        pattern: Pattern::Literal,
        name: name.into(),
        principal: "User:app".into(),
        host: "*".into(),
        action,
        verdict,
    }
}

/// A node with topics `t` and `other`, created by an administrator, and a user `app` without rights.
pub(crate) async fn node() -> Node {
    let node = Node::with(|options| options.login.plain = Admission::Required).await;
    let users = node.users.as_ref().expect("there are some");
    users.add("app", Verifiers::from_password("ppa").expect("made")).await.expect("added");
    let mut root = logged_in(&node, b"\0root\0toor").await;
    root.create("t", 1, &[]).await;
    root.create("other", 1, &[]).await;
    node
}

pub(crate) async fn logged_in(node: &Node, message: &[u8]) -> Client {
    let mut client = node.client().await;
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(client.ask(1, &handshake).await.error_code, 0);
    let say = SaslAuthenticateRequest::default().with_auth_bytes(message.to_vec().into());
    assert_eq!(client.ask(2, &say).await.error_code, 0);
    client
}

pub(crate) async fn app(node: &Node) -> Client {
    logged_in(node, b"\0app\0ppa").await
}

impl Node {
    pub(crate) async fn allow(&self, resource: Resource, name: &str, action: Action) {
        let rule = rule(resource, name, action, Verdict::Allow);
        self.users.as_ref().expect("are there").add_rules(vec![rule]).await.expect("added");
    }

    pub(crate) async fn forget_rules(&self) {
        let filter = access_rules::acl::RuleFilter {
            resource: None,
            pattern: access_rules::acl::PatternFilter::Any,
            name: None,
            principal: None,
            host: None,
            action: None,
            verdict: None,
        };
        self.users.as_ref().expect("are there").remove_rules(&[filter]).await.expect("removed");
    }
}

/// Sends each request without a right, then with these rights, then without them again. Collects the api
/// keys.
macro_rules! cases {
    ($node:ident, $asked:ident; $(
        $request:ty, $version:literal, $message:expr, |$answer:ident| $code:expr,
        $refused:expr, [$(($resource:ident, $name:expr, $action:ident)),*];
    )*) => {$(
        {
            $asked.insert(<$request as Request>::KEY);
            let name = stringify!($request);
            let mut client = app(&$node).await;
            let message: $request = $message;
            let $answer = client.ask($version, &message).await;
            assert_eq!($code, $refused, "{name} without a right");
            // All rights that the request needs.
            $($node.allow(Resource::$resource, $name, Action::$action).await;)*
            let $answer = client.ask($version, &message).await;
            let code = $code;
            assert!(!REFUSALS.contains(&code), "{name} with its right: {code}");
            $node.forget_rules().await;
            let $answer = client.ask($version, &message).await;
            assert_eq!($code, $refused, "{name} once the right is gone");
        }
    )*};
}

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// Requests that need no right, are always refused, or have a test of their own below.
const OTHERS: &[i16] = &[
    ApiKey::ApiVersions as i16,
    ApiKey::SaslHandshake as i16,
    ApiKey::SaslAuthenticate as i16,
    ApiKey::DescribeCluster as i16,
    ApiKey::InitializeShareGroupState as i16,
    ApiKey::ReadShareGroupState as i16,
    ApiKey::WriteShareGroupState as i16,
    ApiKey::DeleteShareGroupState as i16,
    ApiKey::ReadShareGroupStateSummary as i16,
    ApiKey::ListGroups as i16,
    // Streams groups, which the message crate lacks.
    88,
    89,
];

#[tokio::test]
async fn each_request_needs_its_right_and_no_other() {
    let node = node().await;
    let mut asked: BTreeSet<i16> = BTreeSet::new();
    let records = || batch(&["x"]);
    let partition = list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
    let listed = list_offsets_request::ListOffsetsTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![partition]);
    let epoch = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
        .with_topic(name("t"))
        .with_partitions(vec![Default::default()]);
    let named = metadata_request::MetadataRequestTopic::default().with_name(Some(name("t")));
    let deleted = delete_records_request::DeleteRecordsTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![Default::default()]);
    let produced = describe_producers_request::TopicRequest::default()
        .with_name(name("t"))
        .with_partition_indexes(vec![0]);
    let described = describe_topic_partitions_request::TopicRequest::default().with_name(name("t"));
    cases! { node, asked;
        ProduceRequest, 9, produce("t", 0, -1, records().into()),
            |it| it.responses[0].partition_responses[0].error_code,
            TOPIC_FAILED, [(Topic, "t", Write)];
        FetchRequest, 11, fetch("t", 0, 0, 0), |it| it.responses[0].partitions[0].error_code,
            TOPIC_FAILED, [(Topic, "t", Read)];
        ListOffsetsRequest, 7,
            ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![listed.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED, [(Topic, "t", Describe)];
        MetadataRequest, 9, MetadataRequest::default().with_topics(Some(vec![named.clone()])),
            |it| it.topics[0].error_code, TOPIC_FAILED, [(Topic, "t", Describe)];
        DescribeTopicPartitionsRequest, 0,
            DescribeTopicPartitionsRequest::default().with_topics(vec![described.clone()]),
            |it| it.topics[0].error_code, TOPIC_FAILED, [(Topic, "t", Describe)];
        OffsetForLeaderEpochRequest, 4,
            OffsetForLeaderEpochRequest::default().with_topics(vec![epoch.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED, [(Topic, "t", Describe)];
        DescribeProducersRequest, 0,
            DescribeProducersRequest::default().with_topics(vec![produced.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED, [(Topic, "t", Read)];
        DeleteRecordsRequest, 2, DeleteRecordsRequest::default().with_topics(vec![deleted.clone()]),
            |it| it.topics[0].partitions[0].error_code, TOPIC_FAILED, [(Topic, "t", Delete)];
    }
    let made =
        |topic: &str| CreateTopicsRequest::default().with_topics(vec![new_topic(topic, 1, &[])]);
    let grown = create_partitions_request::CreatePartitionsTopic::default()
        .with_name(name("t"))
        .with_count(1)
        .with_assignments(None);
    let gone = delete_topics_request::DeleteTopicState::default().with_name(Some(name("no-such")));
    cases! { node, asked;
        CreateTopicsRequest, 7, made("new").with_validate_only(true), |it| it.topics[0].error_code,
            TOPIC_FAILED, [(Topic, "new", Create)];
        CreateTopicsRequest, 7, made("new").with_validate_only(true), |it| it.topics[0].error_code,
            TOPIC_FAILED, [(Cluster, CLUSTER, Create)];
        CreatePartitionsRequest, 3, CreatePartitionsRequest::default().with_topics(vec![grown.clone()]),
            |it| it.results[0].error_code, TOPIC_FAILED, [(Topic, "t", Alter)];
        DeleteTopicsRequest, 6, DeleteTopicsRequest::default().with_topics(vec![gone.clone()]),
            |it| it.responses[0].error_code, TOPIC_FAILED, [(Topic, "no-such", Delete)];
        InitProducerIdRequest, 4, InitProducerIdRequest::default().with_transactional_id(None),
            |it| it.error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, IdempotentWrite)];
        InitProducerIdRequest, 4, InitProducerIdRequest::default().with_transactional_id(None),
            |it| it.error_code, CLUSTER_FAILED, [(Topic, "t", Write)];
    }
    groups(&node, &mut asked).await;
    transactions(&node, &mut asked).await;
    cluster(&node, &mut asked).await;
    let versions = app(&node).await.ask(3, &crate::sessions::versions_request()).await;
    let all: BTreeSet<i16> = versions.api_keys.iter().map(|api| api.api_key).collect();
    let known: BTreeSet<i16> = asked.iter().chain(OTHERS).copied().collect();
    assert_eq!(
        all, known,
        "a request that is offered and has no case here, or the other way round"
    );
}

async fn groups(node: &Node, asked: &mut BTreeSet<i16>) {
    let join = || {
        JoinGroupRequest::default()
            .with_group_id(group("g"))
            .with_session_timeout_ms(10_000)
            .with_protocol_type(text("consumer"))
    };
    let committed = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![Default::default()]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![committed]);
    let fetched =
        offset_fetch_request::OffsetFetchRequestGroup::default().with_group_id(group("g"));
    let forgotten = offset_delete_request::OffsetDeleteRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![Default::default()]);
    let beat = || {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group("g8"))
            .with_member_id(text("m"))
            .with_member_epoch(0)
            .with_rebalance_timeout_ms(1_000)
            .with_subscribed_topic_names(Some(vec![name("t")]))
            .with_topic_partitions(Some(Vec::new()))
    };
    let share = || {
        ShareGroupHeartbeatRequest::default()
            .with_group_id(group("gs"))
            .with_member_id(text("m"))
            .with_member_epoch(0)
            .with_subscribed_topic_names(Some(vec![name("t")]))
    };
    let shared = || ShareFetchRequest::default().with_group_id(Some(group("gs")));
    let acknowledged = || ShareAcknowledgeRequest::default().with_group_id(Some(group("gs")));
    let offsets =
        describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup::default()
            .with_group_id(group("gs"))
            .with_topics(None);
    let (node, member) = (node, Some(text("m")));
    cases! { node, asked;
        FindCoordinatorRequest, 3, FindCoordinatorRequest::default().with_key(text("g")),
            |it| it.error_code, GROUP_FAILED, [(Group, "g", Describe)];
        JoinGroupRequest, 5, join(), |it| it.error_code, GROUP_FAILED, [(Group, "g", Read)];
        SyncGroupRequest, 5, SyncGroupRequest::default().with_group_id(group("g")),
            |it| it.error_code, GROUP_FAILED, [(Group, "g", Read)];
        HeartbeatRequest, 4, HeartbeatRequest::default().with_group_id(group("g")),
            |it| it.error_code, GROUP_FAILED, [(Group, "g", Read)];
        LeaveGroupRequest, 4, LeaveGroupRequest::default().with_group_id(group("g")),
            |it| it.error_code, GROUP_FAILED, [(Group, "g", Read)];
        DescribeGroupsRequest, 5, DescribeGroupsRequest::default().with_groups(vec![group("g")]),
            |it| it.groups[0].error_code, GROUP_FAILED, [(Group, "g", Describe)];
        DeleteGroupsRequest, 2, DeleteGroupsRequest::default().with_groups_names(vec![group("g")]),
            |it| it.results[0].error_code, GROUP_FAILED, [(Group, "g", Delete)];
        OffsetCommitRequest, 8, commit.clone(), |it| it.topics[0].partitions[0].error_code,
            GROUP_FAILED, [(Group, "g", Read), (Topic, "t", Read)];
        OffsetFetchRequest, 8, OffsetFetchRequest::default().with_groups(vec![fetched.clone()]),
            |it| it.groups[0].error_code, GROUP_FAILED, [(Group, "g", Describe)];
        OffsetDeleteRequest, 0,
            OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![forgotten.clone()]),
            |it| it.error_code, GROUP_FAILED, [(Group, "g", Delete), (Topic, "t", Read)];
        ConsumerGroupHeartbeatRequest, 1, beat(), |it| it.error_code,
            GROUP_FAILED, [(Group, "g8", Read), (Topic, "t", Describe)];
        ConsumerGroupDescribeRequest, 1,
            ConsumerGroupDescribeRequest::default().with_group_ids(vec![group("g8")]),
            |it| it.groups[0].error_code, GROUP_FAILED, [(Group, "g8", Describe)];
        ShareGroupHeartbeatRequest, 1, share(), |it| it.error_code,
            GROUP_FAILED, [(Group, "gs", Read), (Topic, "t", Describe)];
        ShareGroupDescribeRequest, 1,
            ShareGroupDescribeRequest::default().with_group_ids(vec![group("gs")]),
            |it| it.groups[0].error_code, GROUP_FAILED, [(Group, "gs", Describe)];
        ShareFetchRequest, 1, shared().with_member_id(member.clone()), |it| it.error_code,
            GROUP_FAILED, [(Group, "gs", Read)];
        ShareAcknowledgeRequest, 1, acknowledged().with_member_id(member.clone()).with_share_session_epoch(1),
            |it| it.error_code, GROUP_FAILED, [(Group, "gs", Read)];
        DescribeShareGroupOffsetsRequest, 0,
            DescribeShareGroupOffsetsRequest::default().with_groups(vec![offsets.clone()]),
            |it| it.groups[0].error_code, GROUP_FAILED, [(Group, "gs", Describe)];
        AlterShareGroupOffsetsRequest, 0,
            AlterShareGroupOffsetsRequest::default().with_group_id(group("gs")),
            |it| it.error_code, GROUP_FAILED, [(Group, "gs", Read)];
        DeleteShareGroupOffsetsRequest, 0,
            DeleteShareGroupOffsetsRequest::default().with_group_id(group("gs")),
            |it| it.error_code, GROUP_FAILED, [(Group, "gs", Delete)];
    }
}

async fn transactions(node: &Node, asked: &mut BTreeSet<i16>) {
    let id = || TransactionalId(text("x"));
    let added = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![0]);
    let add = || {
        AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_topics(vec![added.clone()])
    };
    let added_code = |it: &AddPartitionsToTxnResponse| {
        it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    };
    let committed = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![Default::default()]);
    let commit = || {
        TxnOffsetCommitRequest::default()
            .with_transactional_id(id())
            .with_group_id(group("g"))
            .with_generation_id(-1)
            .with_topics(vec![committed.clone()])
    };
    let offsets =
        || AddOffsetsToTxnRequest::default().with_transactional_id(id()).with_group_id(group("g"));
    let initialized = || {
        InitProducerIdRequest::default()
            .with_transactional_id(Some(id()))
            .with_transaction_timeout_ms(1_000)
    };
    let found = || FindCoordinatorRequest::default().with_key_type(1).with_key(text("x"));
    let described = || DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
    cases! { node, asked;
        FindCoordinatorRequest, 3, found(), |it| it.error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Describe)];
        InitProducerIdRequest, 4, initialized(), |it| it.error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Write)];
        AddPartitionsToTxnRequest, 3, add(), |it| added_code(&it),
            TRANSACTION_FAILED, [(TransactionalId, "x", Write), (Topic, "t", Write)];
        AddOffsetsToTxnRequest, 3, offsets(), |it| it.error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Write), (Group, "g", Read)];
        TxnOffsetCommitRequest, 4, commit(), |it| it.topics[0].partitions[0].error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Write), (Group, "g", Read), (Topic, "t", Read)];
        EndTxnRequest, 4, EndTxnRequest::default().with_transactional_id(id()), |it| it.error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Write)];
        DescribeTransactionsRequest, 0, described(), |it| it.transaction_states[0].error_code,
            TRANSACTION_FAILED, [(TransactionalId, "x", Describe)];
        ListTransactionsRequest, 1, ListTransactionsRequest::default(),
            |it| if it.transaction_states.is_empty() { TRANSACTION_FAILED } else { 0 },
            TRANSACTION_FAILED, [(TransactionalId, "x", Describe)];
    }
    // The id alone does not suffice.
    node.allow(Resource::TransactionalId, "x", Action::Write).await;
    let mut client = app(node).await;
    assert_eq!(added_code(&client.ask(3, &add()).await), TOPIC_FAILED);
    assert_eq!(client.ask(3, &offsets()).await.error_code, GROUP_FAILED);
    let answer = client.ask(4, &commit()).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, GROUP_FAILED);
    let batched = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default()
        .with_transactional_id(id());
    let batched = AddPartitionsToTxnRequest::default().with_transactions(vec![batched]);
    assert_eq!(client.ask(5, &batched).await.error_code, CLUSTER_FAILED);
    node.forget_rules().await;
}

async fn cluster(node: &Node, asked: &mut BTreeSet<i16>) {
    let acls = || {
        DescribeAclsRequest::default()
            .with_resource_type_filter(1)
            .with_pattern_type_filter(1)
            .with_operation(1)
            .with_permission_type(1)
    };
    let creation = create_acls_request::AclCreation::default()
        .with_resource_type(9)
        .with_principal(text("User:x"));
    let filter = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(2)
        .with_pattern_type_filter(1)
        .with_resource_name_filter(Some(text("nothing")))
        .with_operation(1)
        .with_permission_type(1);
    let config = |kind: i8, resource: &str| {
        describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(resource))
            .with_configuration_keys(None)
    };
    let set = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"));
    let change = incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"));
    let update = update_features_request::FeatureUpdateKey::default().with_feature(text("x"));
    let quota = alter_client_quotas_request::EntryData::default();
    let deletion = ScramCredentialDeletion::default().with_name(text("nobody")).with_mechanism(1);
    let user =
        describe_user_scram_credentials_request::UserName::default().with_name(text("nobody"));
    cases! { node, asked;
        DescribeAclsRequest, 2, acls(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, Describe)];
        CreateAclsRequest, 2, CreateAclsRequest::default().with_creations(vec![creation.clone()]),
            |it| it.results[0].error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        DeleteAclsRequest, 2, DeleteAclsRequest::default().with_filters(vec![filter.clone()]),
            |it| it.filter_results[0].error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        DescribeConfigsRequest, 4,
            DescribeConfigsRequest::default().with_resources(vec![config(2, "t")]),
            |it| it.results[0].error_code, TOPIC_FAILED, [(Topic, "t", DescribeConfigs)];
        DescribeConfigsRequest, 4,
            DescribeConfigsRequest::default().with_resources(vec![config(4, "1")]),
            |it| it.results[0].error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, DescribeConfigs)];
        DescribeConfigsRequest, 4,
            DescribeConfigsRequest::default().with_resources(vec![config(32, "g")]),
            |it| it.results[0].error_code, GROUP_FAILED, [(Group, "g", DescribeConfigs)];
        AlterConfigsRequest, 2, AlterConfigsRequest::default().with_resources(vec![set.clone()]).with_validate_only(true),
            |it| it.responses[0].error_code, TOPIC_FAILED, [(Topic, "t", AlterConfigs)];
        IncrementalAlterConfigsRequest, 1,
            IncrementalAlterConfigsRequest::default().with_resources(vec![change.clone()]).with_validate_only(true),
            |it| it.responses[0].error_code, TOPIC_FAILED, [(Topic, "t", AlterConfigs)];
        ListConfigResourcesRequest, 1, ListConfigResourcesRequest::default(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, DescribeConfigs)];
        DescribeUserScramCredentialsRequest, 0,
            DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user.clone()])),
            |it| it.error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Describe)];
        AlterUserScramCredentialsRequest, 0,
            AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion.clone()]),
            |it| it.results[0].error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        DescribeClientQuotasRequest, 1, DescribeClientQuotasRequest::default(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, DescribeConfigs)];
        AlterClientQuotasRequest, 1, AlterClientQuotasRequest::default().with_entries(vec![quota.clone()]),
            |it| it.entries[0].error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, AlterConfigs)];
        DescribeLogDirsRequest, 4, DescribeLogDirsRequest::default(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, Describe)];
        DescribeQuorumRequest, 1, DescribeQuorumRequest::default(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, Describe)];
        UpdateFeaturesRequest, 1, UpdateFeaturesRequest::default().with_feature_updates(vec![update.clone()]),
            |it| it.error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        ElectLeadersRequest, 2, ElectLeadersRequest::default(), |it| it.error_code,
            CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        AlterPartitionReassignmentsRequest, 1, AlterPartitionReassignmentsRequest::default(),
            |it| it.error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Alter)];
        ListPartitionReassignmentsRequest, 0, ListPartitionReassignmentsRequest::default(),
            |it| it.error_code, CLUSTER_FAILED, [(Cluster, CLUSTER, Describe)];
    }
}

#[tokio::test]
async fn lists_of_all_topics_and_groups_have_only_visible_ones() {
    let node = node().await;
    let mut client = app(&node).await;
    let all =
        MetadataRequest::default().with_topics(None).with_include_topic_authorized_operations(true);
    assert!(client.ask(9, &all).await.topics.is_empty());
    node.allow(Resource::Topic, "t", Action::Read).await;
    let told = client.ask(9, &all).await.topics;
    let names: Vec<_> = told.iter().map(|topic| topic.name.clone().expect("a name").0).collect();
    assert_eq!(names, [text("t")]);
    // Read, and Describe, which Read implies.
    assert_eq!(told[0].topic_authorized_operations, 1 << 3 | 1 << 8);

    let mut root = logged_in(&node, b"\0root\0toor").await;
    for name in ["g", "h"] {
        let join = JoinGroupRequest::default()
            .with_group_id(group(name))
            .with_session_timeout_ms(10_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![
                join_group_request::JoinGroupRequestProtocol::default().with_name(text("range")),
            ]);
        assert_eq!(root.ask(3, &join).await.error_code, 0);
    }
    let listed = |groups: Vec<list_groups_response::ListedGroup>| {
        groups.into_iter().map(|it| it.group_id.to_string()).collect::<Vec<_>>()
    };
    let list = ListGroupsRequest::default();
    assert!(client.ask(4, &list).await.groups.is_empty());
    node.allow(Resource::Group, "h", Action::Read).await;
    assert_eq!(listed(client.ask(4, &list).await.groups), ["h"]);
    node.allow(Resource::Cluster, CLUSTER, Action::Describe).await;
    assert_eq!(listed(client.ask(4, &list).await.groups), ["g", "h"]);
}

#[tokio::test]
async fn unauthorized_topic_is_refused_whether_or_not_it_exists() {
    let node = node().await;
    let mut client = app(&node).await;
    for topic in ["t", "no-such"] {
        let named = metadata_request::MetadataRequestTopic::default().with_name(Some(name(topic)));
        let asked = MetadataRequest::default()
            .with_topics(Some(vec![named]))
            .with_allow_auto_topic_creation(true);
        assert_eq!(client.ask(9, &asked).await.topics[0].error_code, TOPIC_FAILED, "{topic}");
        let fetched = client.ask(11, &fetch(topic, 0, 0, 0)).await;
        assert_eq!(fetched.responses[0].partitions[0].error_code, TOPIC_FAILED, "{topic}");
        let produced = client.produce(topic, 0, batch(&["x"])).await;
        assert_eq!(produced.error_code, TOPIC_FAILED, "{topic}");
    }
    assert!(node.broker.catalog().topic_named("no-such").is_none());
    // A client that may describe the topic but not create it is refused too.
    node.allow(Resource::Topic, "no-such", Action::Describe).await;
    let named = metadata_request::MetadataRequestTopic::default().with_name(Some(name("no-such")));
    let asked = MetadataRequest::default()
        .with_topics(Some(vec![named]))
        .with_allow_auto_topic_creation(true);
    assert_eq!(client.ask(9, &asked).await.topics[0].error_code, TOPIC_FAILED);
}

#[tokio::test]
async fn rabbitmq_permissions_apply_unless_a_rule_denies() {
    let node = node().await;
    let users = node.users.clone().expect("are there");
    let set = Permissions { configure: "".into(), write: "^t$".into(), read: "^t$".into() };
    users.allow("app", "/", set).await.expect("allowed");
    let mut client = app(&node).await;
    client.put("t", 0, &["x"]).await;
    assert_eq!(client.get("t", 0, 0).await, ["x"]);
    assert_eq!(client.produce("other", 0, batch(&["x"])).await.error_code, TOPIC_FAILED);
    let denied = rule(Resource::Topic, "t", Action::Write, Verdict::Deny);
    users.add_rules(vec![denied]).await.expect("added");
    assert_eq!(client.produce("t", 0, batch(&["x"])).await.error_code, TOPIC_FAILED);
    assert_eq!(client.get("t", 0, 0).await, ["x"]);
    // Revoked permissions end for connected clients too.
    users.deny("app", "/").await.expect("denied");
    let fetched = client.ask(11, &fetch("t", 0, 0, 0)).await;
    assert_eq!(fetched.responses[0].partitions[0].error_code, TOPIC_FAILED);
    // Rules that still name a deleted user have no effect.
    node.allow(Resource::Topic, "t", Action::Read).await;
    assert_eq!(client.get("t", 0, 0).await, ["x"]);
    users.delete("app").await.expect("deleted");
    let fetched = client.ask(11, &fetch("t", 0, 0, 0)).await;
    assert_eq!(fetched.responses[0].partitions[0].error_code, TOPIC_FAILED);
}
