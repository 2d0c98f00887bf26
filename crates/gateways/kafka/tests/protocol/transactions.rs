//! Transactions of producers: with and without registered partitions, over several shards, with offsets, fenced.

use kafka_protocol::error::ResponseError::{self, *};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiVersionsRequest,
    DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, GroupId,
    InitProducerIdRequest, ListTransactionsRequest, OffsetFetchRequest, ProduceRequest, ProducerId,
    TopicName, TransactionalId, TxnOffsetCommitRequest,
};
use record::BatchOptions;

use crate::harness::*;

const PARTITIONS: i32 = 8;

fn id(name: &str) -> TransactionalId {
    TransactionalId(text(name))
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Producer id and epoch.
pub(crate) type Producer = (i64, i16);

/// A transactional producer, by requests.
struct Transactional {
    client: Client,
    id: &'static str,
    producer: Producer,
    /// It changes the epoch with each end, and registers nothing (KIP-890).
    is_newer: bool,
}

impl Transactional {
    async fn start(node: &Node, id: &'static str, is_newer: bool) -> Self {
        let mut client = node.client().await;
        let producer = initialize(&mut client, id, 4).await.expect("it may");
        Self { client, id, producer, is_newer }
    }

    /// Registers the partition, if the client does so, and produces one value.
    async fn send(&mut self, partition: i32, sequence: i32, value: &str) -> Result<i64, i16> {
        if !self.is_newer {
            self.register(partition).await?;
        }
        self.send_unregistered(partition, sequence, value).await
    }

    async fn register(&mut self, partition: i32) -> Result<(), i16> {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name("orders"))
            .with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id(self.id))
            .with_v3_and_below_producer_id(ProducerId(self.producer.0))
            .with_v3_and_below_producer_epoch(self.producer.1)
            .with_v3_and_below_topics(vec![topic]);
        let response = self.client.ask(3, &request).await;
        let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
        of(results[0].partition_error_code)
    }

    async fn send_unregistered(
        &mut self,
        partition: i32,
        sequence: i32,
        value: &str,
    ) -> Result<i64, i16> {
        let request = produce_in(self.id, self.producer, partition, sequence, value);
        let version = if self.is_newer { 12 } else { 11 };
        let response = only_partition(self.client.ask(version, &request).await);
        of(response.error_code).map(|()| response.base_offset)
    }

    async fn end(&mut self, commit: bool) -> Result<(), i16> {
        let request = end_of(self.id, self.producer, commit);
        let version = if self.is_newer { 5 } else { 4 };
        let response = self.client.ask(version, &request).await;
        of(response.error_code)?;
        if self.is_newer {
            self.producer = (response.producer_id.0, response.producer_epoch);
        }
        Ok(())
    }

    async fn commit_offset(&mut self, group: &str, offset: i64) -> Result<(), i16> {
        let (producer_id, epoch) = self.producer;
        if !self.is_newer {
            let request = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id(self.id))
                .with_producer_id(ProducerId(producer_id))
                .with_producer_epoch(epoch)
                .with_group_id(GroupId(text(group)));
            of(self.client.ask(3, &request).await.error_code)?;
        }
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name("orders"))
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id(self.id))
            .with_group_id(GroupId(text(group)))
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(epoch)
            .with_topics(vec![topic]);
        let version = if self.is_newer { 5 } else { 4 };
        let response = self.client.ask(version, &request).await;
        of(response.topics[0].partitions[0].error_code)
    }
}

fn of(code: i16) -> Result<(), i16> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn refused<T: PartialEq + std::fmt::Debug>(result: Result<T, i16>, error: ResponseError) {
    assert_eq!(result, Err(error.code()), "{error:?} was expected");
}

/// One value in a transaction.
pub(crate) fn produce_in(
    name: &str,
    (producer_id, producer_epoch): Producer,
    partition: i32,
    sequence: i32,
    value: &str,
) -> ProduceRequest {
    let options = BatchOptions {
        producer_id,
        producer_epoch,
        base_sequence: sequence,
        transactional: true,
        ..BatchOptions::default()
    };
    let batch = batch_of(options, &[(None, value)]);
    produce("orders", partition, -1, batch.into()).with_transactional_id(Some(id(name)))
}

pub(crate) fn end_of(name: &str, (producer_id, epoch): Producer, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(id(name))
        .with_producer_id(ProducerId(producer_id))
        .with_producer_epoch(epoch)
        .with_committed(commit)
}

pub(crate) fn initialization(name: &str) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(Some(id(name)))
        .with_transaction_timeout_ms(60_000)
}

async fn initialize(client: &mut Client, name: &str, version: i16) -> Result<Producer, i16> {
    let request = initialization(name);
    let response = client.ask(version, &request).await;
    of(response.error_code)?;
    Ok((response.producer_id.0, response.producer_epoch))
}

/// All of a partition, as a consumer with this isolation receives it.
pub(crate) async fn fetched(
    client: &mut Client,
    partition: i32,
    committed_only: bool,
) -> PartitionData {
    let mut request = fetch("orders", partition, 0, 0);
    request.isolation_level = i8::from(committed_only);
    let mut response = client.ask(12, &request).await;
    response.responses.remove(0).partitions.remove(0)
}

/// Committed offset of the group, if it is stable.
async fn offset(client: &mut Client, group: &str, stable_only: bool) -> Result<i64, i16> {
    let topic = OffsetFetchRequestTopics::default()
        .with_name(topic_name("orders"))
        .with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(Some(vec![topic]));
    let request =
        OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable_only);
    let response = client.ask(9, &request).await;
    of(response.groups[0].error_code)?;
    let partition = &response.groups[0].topics[0].partitions[0];
    of(partition.error_code).map(|()| partition.committed_offset)
}

#[tokio::test]
async fn transactions_over_all_partitions_are_read_as_a_whole_or_skipped() {
    for is_newer in [false, true] {
        let node = Node::start().await;
        let mut client = node.client().await;
        client.create("orders", PARTITIONS, &[]).await;
        let mut producer = Transactional::start(&node, "tx", is_newer).await;
        let mut sequence = 0;
        for (round, commit) in [true, false, true].into_iter().enumerate() {
            for partition in 0..PARTITIONS {
                let sent = producer.send(partition, sequence, &format!("{round}")).await;
                assert_eq!(sent, Ok(2 * round as i64), "{partition}");
                let read = fetched(&mut client, partition, true).await;
                assert_eq!(read.last_stable_offset, 2 * round as i64);
                assert_eq!(read.high_watermark, 2 * round as i64 + 1);
            }
            assert_eq!(producer.end(commit).await, Ok(()));
            sequence = if is_newer { 0 } else { sequence + 1 };
        }
        for partition in 0..PARTITIONS {
            let read = fetched(&mut client, partition, true).await;
            assert_eq!((read.last_stable_offset, read.high_watermark), (6, 6));
            let aborted = read.aborted_transactions.expect("they are listed");
            let aborted: Vec<_> =
                aborted.iter().map(|it| (it.producer_id.0, it.first_offset)).collect();
            assert_eq!(aborted, [(producer.producer.0, 2)]);
            let raw = fetched(&mut client, partition, false).await;
            assert_eq!(raw.records, read.records, "markers and aborted records are in both");
        }
    }
}

#[tokio::test]
async fn offsets_follow_the_transaction_and_are_unstable_until_its_end() {
    for is_newer in [false, true] {
        let node = Node::start().await;
        let mut client = node.client().await;
        client.create("orders", 1, &[]).await;
        let mut producer = Transactional::start(&node, "tx", is_newer).await;
        for (offset_sent, commit) in [(7, true), (9, false)] {
            for group in ["a", "b", "c"] {
                assert_eq!(producer.commit_offset(group, offset_sent).await, Ok(()));
                refused(offset(&mut client, group, true).await, UnstableOffsetCommit);
                let before = if commit { -1 } else { 7 };
                assert_eq!(offset(&mut client, group, false).await, Ok(before));
            }
            assert_eq!(producer.end(commit).await, Ok(()));
            for group in ["a", "b", "c"] {
                assert_eq!(offset(&mut client, group, true).await, Ok(7));
            }
        }
    }
}

#[tokio::test]
async fn next_producer_of_an_id_fences_the_former_one() {
    let node = Node::start().await;
    node.client().await.create("orders", PARTITIONS, &[]).await;
    let mut old = Transactional::start(&node, "tx", true).await;
    assert_eq!(old.send(0, 0, "a").await, Ok(0));
    let mut new = Transactional::start(&node, "tx", true).await;
    assert_eq!(new.producer, (old.producer.0, 2));
    for partition in 0..PARTITIONS {
        refused(old.send(partition, 1, "b").await, InvalidProducerEpoch);
    }
    refused(old.end(true).await, ProducerFenced);
    refused(old.commit_offset("g", 1).await, InvalidProducerEpoch);
    assert_eq!(new.send(0, 0, "c").await, Ok(2), "after the marker of the abort");
    assert_eq!(new.end(true).await, Ok(()));
    // Before version 4 there is no such code.
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id("tx")))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(old.producer.0))
        .with_producer_epoch(old.producer.1);
    let response = old.client.ask(3, &request).await;
    assert_eq!(response.error_code, InvalidProducerEpoch.code());
    let response = old.client.ask(4, &request).await;
    assert_eq!(response.error_code, ProducerFenced.code());
}

#[tokio::test]
async fn client_that_registers_partitions_writes_to_no_other() {
    let node = Node::start().await;
    node.client().await.create("orders", PARTITIONS, &[]).await;
    let mut producer = Transactional::start(&node, "tx", false).await;
    refused(producer.send_unregistered(1, 0, "a").await, InvalidTxnState);
    assert_eq!(producer.send(1, 0, "a").await, Ok(0));
    for partition in (0..PARTITIONS).filter(|it| *it != 1) {
        refused(producer.send_unregistered(partition, 0, "a").await, InvalidTxnState);
    }
    assert_eq!(producer.end(true).await, Ok(()));
    refused(producer.send_unregistered(1, 1, "late").await, InvalidTxnState);
    assert_eq!(producer.end(true).await, Ok(()), "a repetition");
    refused(producer.end(false).await, InvalidTxnState);
}

#[tokio::test]
async fn invalid_requests_get_kafkas_errors() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[]).await;
    let initialize_with = |timeout_ms: i32, name: &str| {
        InitProducerIdRequest::default()
            .with_transactional_id(Some(id(name)))
            .with_transaction_timeout_ms(timeout_ms)
    };
    for (timeout_ms, name, error) in [
        (0, "tx", InvalidTransactionTimeout),
        (-1, "tx", InvalidTransactionTimeout),
        (900_001, "tx", InvalidTransactionTimeout),
        (1_000, "", InvalidRequest),
    ] {
        let response = client.ask(4, &initialize_with(timeout_ms, name)).await;
        assert_eq!(response.error_code, error.code(), "{timeout_ms} {name:?}");
    }
    let mut unknown = Transactional::start(&node, "tx", true).await;
    unknown.id = "other";
    refused(unknown.send(0, 0, "a").await, InvalidProducerIdMapping);
    refused(unknown.end(true).await, InvalidProducerIdMapping);
    refused(unknown.commit_offset("g", 1).await, InvalidProducerIdMapping);
    unknown.id = "tx";
    refused(unknown.end(true).await, InvalidTxnState);
    assert_eq!(unknown.end(false).await, Ok(()), "nothing of it arrived, for all the client knows");
    // A batch of a transaction in a request without one, and one of no producer.
    let options = BatchOptions { transactional: true, ..BatchOptions::default() };
    let batch = batch_of(options, &[(None, "a")]);
    let mut request = produce("orders", 0, -1, batch.into());
    let response = only_partition(client.ask(12, &request).await);
    assert_eq!(response.error_code, InvalidRequest.code());
    request.transactional_id = Some(id("tx"));
    let response = only_partition(client.ask(12, &request).await);
    assert_eq!(response.error_code, InvalidRecord.code());
}

#[tokio::test]
async fn transactions_are_found_listed_and_described() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", PARTITIONS, &[]).await;
    let versions = ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1"));
    let features = client.ask(4, &versions).await.finalized_features;
    let feature = features.iter().find(|feature| &*feature.name == "transaction.version");
    assert_eq!(feature.map(|feature| feature.max_version_level), Some(2));
    let find = FindCoordinatorRequest::default()
        .with_key_type(1)
        .with_coordinator_keys(vec![text("tx"), text("other")]);
    let own = node.broker.node() as i32;
    let found = client.ask(6, &find).await;
    assert!(found.coordinators.iter().all(|it| it.error_code == 0 && it.node_id.0 == own));
    let mut producer = Transactional::start(&node, "tx", true).await;
    for partition in [1, 4] {
        producer.send(partition, 0, "a").await.expect("it may");
    }
    Transactional::start(&node, "idle", true).await;
    let list = |states: &[&str], pattern: Option<&str>| {
        ListTransactionsRequest::default()
            .with_state_filters(states.iter().map(|state| text(state)).collect())
            .with_transactional_id_pattern(pattern.map(text))
    };
    for (request, expected) in [
        (list(&[], None), &["idle", "tx"][..]),
        (list(&["Ongoing"], None), &["tx"]),
        (list(&["Empty", "Odd"], None), &["idle"]),
        (list(&["Odd"], None), &[]),
        (list(&[], Some("t.*")), &["tx"]),
    ] {
        let listed = client.ask(2, &request).await;
        assert_eq!(listed.error_code, 0);
        let mut names: Vec<_> =
            listed.transaction_states.iter().map(|it| it.transactional_id.to_string()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{request:?}");
    }
    let invalid = client.ask(2, &list(&[], Some("("))).await;
    assert_eq!(invalid.error_code, InvalidRegularExpression.code());
    let describe =
        DescribeTransactionsRequest::default().with_transactional_ids(vec![id("tx"), id("nobody")]);
    let described = client.ask(0, &describe).await.transaction_states;
    assert_eq!(&*described[0].transaction_state, "Ongoing");
    assert_eq!((described[0].producer_id.0, described[0].producer_epoch), producer.producer);
    assert_eq!(described[0].transaction_timeout_ms, 60_000);
    assert_eq!(described[0].topics[0].partitions, [1, 4]);
    assert_eq!(described[1].error_code, TransactionalIdNotFound.code());
    assert_eq!(producer.end(false).await, Ok(()));
    let described = client.ask(0, &describe).await.transaction_states;
    assert_eq!(&*described[0].transaction_state, "CompleteAbort");
    assert!(described[0].topics.is_empty());
}
