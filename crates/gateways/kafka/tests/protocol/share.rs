//! Share groups over a socket: sessions and their epochs, who holds what, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use kafka_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch as FetchedBatch, FetchPartition, FetchTopic, ForgottenTopic,
};
use kafka_protocol::messages::share_fetch_response::PartitionData;
use kafka_protocol::messages::*;
use record::{BatchOptions, Compression};
use uuid::Uuid;
use world::{Instant, SimulatedDisk};

use crate::harness::*;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;

fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

/// One member of the share group `g`, on a connection of its own, as a client library would be.
struct Member {
    client: Client,
    id: &'static str,
    group: &'static str,
    member_epoch: i32,
    session_epoch: i32,
}

impl Member {
    async fn join(node: &Node, id: &'static str, topics: &[&str]) -> Self {
        Self::join_group(node, id, "g", topics).await
    }

    async fn join_group(
        node: &Node,
        id: &'static str,
        group: &'static str,
        topics: &[&str],
    ) -> Self {
        let mut member =
            Self { client: node.client().await, id, group, member_epoch: 0, session_epoch: 0 };
        let joined = member.beat(Some(topics)).await;
        assert_eq!(joined.error_code, 0, "{:?}", joined.error_message);
        member
    }

    async fn beat(&mut self, topics: Option<&[&str]>) -> ShareGroupHeartbeatResponse {
        let names = topics.map(|topics| topics.iter().map(|topic| name(topic)).collect());
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(group(self.group))
            .with_member_id(text(self.id))
            .with_member_epoch(self.member_epoch)
            .with_subscribed_topic_names(names);
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.member_epoch = response.member_epoch;
        }
        response
    }

    fn fetch_request(&self, topic: Uuid, partitions: &[i32], wait_ms: i32) -> ShareFetchRequest {
        let partitions = partitions
            .iter()
            .map(|&index| FetchPartition::default().with_partition_index(index))
            .collect();
        ShareFetchRequest::default()
            .with_group_id(Some(group(self.group)))
            .with_member_id(Some(text(self.id)))
            .with_share_session_epoch(self.session_epoch)
            .with_max_wait_ms(wait_ms)
            .with_min_bytes(1)
            .with_max_bytes(1 << 20)
            .with_max_records(100)
            .with_batch_size(100)
            .with_topics(vec![
                FetchTopic::default().with_topic_id(topic).with_partitions(partitions),
            ])
    }

    /// The next fetch of the session, which takes its epoch on.
    async fn send(&mut self, request: ShareFetchRequest) -> ShareFetchResponse {
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.session_epoch += 1;
        }
        response
    }

    /// Fetches one partition, and waits for records.
    async fn take(&mut self, topic: Uuid, partition: i32) -> Taken {
        let request = self.fetch_request(topic, &[partition], 5000);
        let response = self.send(request).await;
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        taken(&response)
    }

    async fn acknowledge(
        &mut self,
        topic: Uuid,
        ranges: &[(i64, i64, i8)],
    ) -> ShareAcknowledgeResponse {
        let batches = ranges.iter().map(|&(first, last, kind)| {
            AcknowledgementBatch::default()
                .with_first_offset(first)
                .with_last_offset(last)
                .with_acknowledge_types(vec![kind])
        });
        let partition =
            AcknowledgePartition::default().with_acknowledgement_batches(batches.collect());
        let request = ShareAcknowledgeRequest::default()
            .with_group_id(Some(group(self.group)))
            .with_member_id(Some(text(self.id)))
            .with_share_session_epoch(self.session_epoch)
            .with_topics(vec![
                AcknowledgeTopic::default().with_topic_id(topic).with_partitions(vec![partition]),
            ]);
        let response = self.client.ask(1, &request).await;
        if response.error_code == 0 {
            self.session_epoch += 1;
        }
        response
    }

    /// Settles records of partition 0 and expects that to be fine.
    async fn settle(&mut self, topic: Uuid, ranges: &[(i64, i64, i8)]) {
        let response = self.acknowledge(topic, ranges).await;
        assert_eq!(acknowledge_code(&response), 0);
    }
}

fn acknowledge_code(response: &ShareAcknowledgeResponse) -> i16 {
    assert_eq!(response.error_code, 0, "{:?}", response.error_message);
    response.responses[0].partitions[0].error_code
}

/// Acquired ranges with their number of deliveries, and all values of the batches that came along.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    acquired: Vec<(i64, i64, i16)>,
    values: Vec<String>,
}

fn partition_of(response: &ShareFetchResponse) -> Option<&PartitionData> {
    response.responses.first()?.partitions.first()
}

fn taken(response: &ShareFetchResponse) -> Taken {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut taken = Taken { acquired: Vec::new(), values: Vec::new() };
    for partition in partitions {
        assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
        taken.acquired.extend(
            partition
                .acquired_records
                .iter()
                .map(|range| (range.first_offset, range.last_offset, range.delivery_count)),
        );
        taken.values.extend(values_of(partition.records.as_deref()));
    }
    taken
}

fn acquired(ranges: &[(i64, i64, i16)], values: &[&str]) -> Taken {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Taken { acquired: ranges.to_vec(), values }
}

async fn configure(client: &mut Client, group: &str, values: &[(&str, &str)]) -> i16 {
    let configs = values.iter().map(|(key, value)| {
        AlterableConfig::default().with_name(text(key)).with_value(Some(text(value)))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(group))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).await.responses[0].error_code
}

/// A topic of two partitions, and a share group `g` that begins where it does.
async fn started(node: &Node) -> (Client, Uuid) {
    let mut client = node.client().await;
    let topic = client.create("t", 2, &[]).await;
    assert_eq!(configure(&mut client, "g", &[("share.auto.offset.reset", "earliest")]).await, 0);
    (client, topic)
}

// -------------------------------------------------------------------------------------- membership

#[tokio::test]
async fn members_are_told_their_partitions_and_who_they_are_not() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let mut a = Member::join(&node, "a", &["t"]).await;
    let joined = a.beat(Some(&["t"])).await;
    assert_eq!((joined.member_epoch, joined.heartbeat_interval_ms), (1, 5000));
    let assigned = &joined.assignment.expect("is told").topic_partitions;
    assert_eq!((assigned[0].topic_id, &assigned[0].partitions), (topic, &vec![0, 1]));
    let mut b = Member::join(&node, "b", &["t"]).await;
    assert!(a.beat(None).await.assignment.is_some(), "it has less now");
    b.member_epoch = 7;
    assert_eq!(b.beat(None).await.error_code, FencedMemberEpoch.code());
    b.member_epoch = -1;
    assert_eq!(b.beat(None).await.error_code, 0);
    assert_eq!(b.beat(None).await.error_code, UnknownMemberId.code());
    b.member_epoch = -2;
    assert_eq!(b.beat(None).await.error_code, InvalidRequest.code());
    b.member_epoch = 0;
    assert_eq!(b.beat(None).await.error_code, InvalidRequest.code(), "wants nothing");
    assert_eq!(b.beat(Some(&[])).await.error_code, InvalidRequest.code(), "wants nothing");

    let describe = ShareGroupDescribeRequest::default()
        .with_group_ids(vec![group("g"), group("none")])
        .with_include_authorized_operations(true);
    let described = client.ask(1, &describe).await.groups;
    assert_eq!((&*described[0].group_state, described[0].members.len()), ("Stable", 1));
    assert_eq!(&*described[0].assignor_name, "simple");
    assert!(described[0].authorized_operations > 0);
    assert_eq!(described[1].error_code, GroupIdNotFound.code());
}

#[tokio::test]
async fn a_name_is_of_one_kind_of_group_at_a_time() {
    let node = Node::start().await;
    let (mut client, _) = started(&node).await;
    let _member = Member::join(&node, "a", &["t"]).await;
    let modern = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(1000)
        .with_subscribed_topic_names(Some(vec![name("t")]))
        .with_topic_partitions(Some(vec![]));
    let refused = client.ask(1, &modern).await;
    assert_eq!(refused.error_code, GroupIdNotFound.code());
    let other = client.ask(1, &modern.clone().with_group_id(group("other"))).await;
    assert_eq!(other.error_code, 0);
    let mut lost = Member {
        client: node.client().await,
        id: "a",
        group: "other",
        member_epoch: 0,
        session_epoch: 0,
    };
    assert_eq!(lost.beat(Some(&["t"])).await.error_code, GroupIdNotFound.code());
    let list = |kind: &str| ListGroupsRequest::default().with_types_filter(vec![text(kind)]);
    let shared = client.ask(5, &list("share")).await.groups;
    assert_eq!((shared.len(), &*shared[0].group_id.0, &*shared[0].group_type), (1, "g", "share"));
    assert_eq!(&*client.ask(5, &list("consumer")).await.groups[0].group_id.0, "other");
}

// ------------------------------------------------------------------------------------------ records

#[tokio::test]
async fn records_are_acquired_settled_and_delivered_again() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b", "c", "d"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let all = ["a", "b", "c", "d"];
    assert_eq!(member.take(topic, 0).await, acquired(&[(0, 3, 1)], &all));
    member.settle(topic, &[(0, 0, ACCEPT), (1, 2, RELEASE), (3, 3, REJECT)]).await;
    // The batch comes as it is; what is acquired of it is what was released.
    assert_eq!(member.take(topic, 0).await, acquired(&[(1, 2, 2)], &all));
    // A gap is settled.
    member.settle(topic, &[(1, 1, 0), (2, 2, RELEASE)]).await;
    assert_eq!(member.take(topic, 0).await, acquired(&[(2, 2, 3)], &all));
}

#[tokio::test]
async fn a_batch_of_which_the_front_is_gone_is_delivered_again() {
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
async fn compressed_batches_are_passed_on_as_they_are() {
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
    // Strictly so many records, in the whole batch that they lie in.
    assert_eq!(taken(&response), acquired(&[(0, 1, 1)], &["a", "b", "c"]));
    assert_eq!(member.take(topic, 0).await, acquired(&[(2, 3, 1)], &["a", "b", "c", "d"]));
}

#[tokio::test]
async fn a_fetch_waits_for_records_and_for_what_is_released() {
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
async fn a_member_is_given_records_of_its_own_partitions_only() {
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
    // It is added to the session, and then forgotten.
    assert_eq!(member.take(topic, 0).await, acquired(&[(0, 0, 1)], &["zero"]));
    client.put("t", 0, &["more"]).await;
    let forgotten = ForgottenTopic::default().with_topic_id(topic).with_partitions(vec![0]);
    let request = member.fetch_request(topic, &[], 100);
    let request = request.with_forgotten_topics_data(vec![forgotten]);
    assert!(member.send(request).await.responses.is_empty());
}

#[tokio::test]
async fn acknowledgements_come_with_a_fetch_and_have_their_own_answer() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let with = |mut request: ShareFetchRequest, first, last, kinds: &[i8]| {
        let batch = FetchedBatch::default()
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
    // What is not held is refused, and the fetch goes on all the same.
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
async fn what_is_not_held_cannot_be_settled() {
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

// ----------------------------------------------------------------------------------------- sessions

#[tokio::test]
async fn a_session_goes_by_its_epochs() {
    let node = Node::start().await;
    let (_, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    member.session_epoch = 1;
    let request = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(request).await.error_code, ShareSessionNotFound.code());
    let unknown = member.acknowledge(topic, &[]).await;
    assert_eq!(unknown.error_code, ShareSessionNotFound.code());
    member.session_epoch = 0;
    let early = member.acknowledge(topic, &[]).await;
    assert_eq!(early.error_code, InvalidShareSessionEpoch.code(), "it begins with a fetch");
    let request = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(request.clone()).await.error_code, 0);
    assert_eq!(member.session_epoch, 1);
    member.session_epoch = 5;
    let skipped = member.fetch_request(topic, &[0], 0);
    assert_eq!(member.send(skipped).await.error_code, InvalidShareSessionEpoch.code());
    // Whoever begins anew may do so at any time.
    assert_eq!(member.send(request).await.error_code, 0);
    member.session_epoch = -1;
    let close = member.fetch_request(topic, &[], 0);
    assert_eq!(member.send(close.clone()).await.error_code, 0);
    member.session_epoch = -1;
    assert_eq!(member.send(close).await.error_code, ShareSessionNotFound.code());
}

#[tokio::test]
async fn a_request_that_names_nobody_is_refused() {
    let node = Node::start().await;
    let (_, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let request = member.fetch_request(topic, &[0], 0);
    for bad in [
        request.clone().with_group_id(None),
        request.clone().with_member_id(None),
        request.clone().with_member_id(Some(text(""))),
        request.with_member_id(Some(text(&"x".repeat(37)))),
    ] {
        assert_eq!(member.send(bad).await.error_code, InvalidRequest.code());
    }
}

#[tokio::test]
async fn what_a_member_held_is_free_when_its_session_ends() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    client.put("t", 0, &["a", "b"]).await;
    let mut first = Member::join(&node, "a", &["t"]).await;
    let mut second = Member::join(&node, "b", &["t"]).await;
    first.take(topic, 0).await;
    // It says so, and settles a part as it goes.
    first.session_epoch = -1;
    first.settle(topic, &[(0, 0, ACCEPT)]).await;
    assert_eq!(second.take(topic, 0).await.acquired, [(1, 1, 2)]);
    // It begins anew.
    second.session_epoch = 0;
    let begins = second.fetch_request(topic, &[0], 5000);
    assert_eq!(taken(&second.send(begins).await).acquired, [(1, 1, 3)]);
    // Its connection is gone.
    drop(second.client);
    first.session_epoch = 0;
    assert_eq!(first.take(topic, 0).await.acquired, [(1, 1, 4)]);
}

#[tokio::test]
async fn a_node_keeps_so_many_sessions() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let config = AlterableConfig::default()
        .with_name(text("group.share.max.share.sessions"))
        .with_value(Some(text("1")));
    let resource = AlterConfigsResource::default().with_resource_type(4).with_configs(vec![config]);
    let alter = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.ask(1, &alter).await.responses[0].error_code, 0);
    let mut first = Member::join(&node, "a", &["t"]).await;
    let mut second = Member::join(&node, "b", &["t"]).await;
    let request = first.fetch_request(topic, &[0], 0);
    assert_eq!(first.send(request).await.error_code, 0);
    let request = second.fetch_request(topic, &[0], 0);
    assert_eq!(second.send(request).await.error_code, ShareSessionLimitReached.code());
    drop(first.client);
    node.is_well().await;
    let request = second.fetch_request(topic, &[0], 0);
    assert_eq!(second.send(request).await.error_code, 0);
}

#[tokio::test]
async fn a_topic_that_is_gone_is_told_once_and_then_the_fetch_waits() {
    let node = Node::start().await;
    let (mut client, topic) = started(&node).await;
    let mut member = Member::join(&node, "m", &["t"]).await;
    let request = member.fetch_request(topic, &[0], 0);
    member.send(request).await;
    let gone = delete_topics_request::DeleteTopicState::default().with_name(Some(name("t")));
    let delete = DeleteTopicsRequest::default().with_topics(vec![gone]).with_timeout_ms(5000);
    assert_eq!(client.ask(6, &delete).await.responses[0].error_code, 0);
    let request = member.fetch_request(topic, &[0], 5000);
    let response = member.send(request).await;
    assert_eq!(partition_of(&response).map(|p| p.error_code), Some(UnknownTopicId.code()));
    let begun = Instant::now();
    let request = member.fetch_request(topic, &[0], 200);
    assert!(member.send(request).await.responses.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(200), "no busy loop");
}

// ------------------------------------------------------------------------------------------ groups

#[tokio::test]
async fn progress_outlives_a_restart_and_leases_do_not() {
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
async fn a_groups_configuration_reaches_the_records_that_it_has_already() {
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
async fn dead_letters_go_where_a_topic_takes_them() {
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
    // Kafka's default: a letter names its record, and has no copy of it.
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
async fn an_empty_group_is_moved_cut_and_deleted() {
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
    // Beyond the end there is nothing yet: the end it is. And a group may be made this way.
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

#[tokio::test]
async fn coordinators_are_found_by_share_partition() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let find = |key: &str| {
        FindCoordinatorRequest::default().with_key_type(2).with_coordinator_keys(vec![text(key)])
    };
    let found = client.ask(6, &find("g:AAAAAAAAAAAAAAAAAAAAAA:0")).await;
    assert_eq!((found.coordinators[0].error_code, found.coordinators[0].node_id.0), (0, 1));
    for bad in ["g", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x", ":AAAAAAAAAAAAAAAAAAAAAA:0"] {
        let refused = client.ask(6, &find(bad)).await;
        assert_eq!(refused.coordinators[0].error_code, InvalidRequest.code(), "{bad}");
    }
    let old = client.ask(5, &find("g:AAAAAAAAAAAAAAAAAAAAAA:0")).await;
    assert_eq!(old.coordinators[0].error_code, InvalidRequest.code());
}

#[tokio::test]
async fn what_brokers_ask_each_other_is_refused_to_clients() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let partition = read_share_group_state_request::PartitionData::default();
    let topic = read_share_group_state_request::ReadStateData::default()
        .with_partitions(vec![partition.clone(), partition.with_partition(1)]);
    let read =
        ReadShareGroupStateRequest::default().with_group_id(text("g")).with_topics(vec![topic]);
    let refused = client.ask(0, &read).await;
    let codes: Vec<_> = refused.results[0].partitions.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [ClusterAuthorizationFailed.code(); 2]);
}
