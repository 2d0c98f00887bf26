//! Discovery for clients: brokers, topics, partitions and their leaders.
//!
//! Above [`crate::catalog`] and [`crate::leaders`]. `response`: writes the response to Metadata in parts.

mod response;

use std::collections::BTreeMap;
use std::ops::Bound;

use broker::catalog::Topic;
use broker::{Leaders, NewTopic, validate_topic_name};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponseBroker, MetadataResponseTopic};
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, MetadataRequest, MetadataResponse, TopicName,
};

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::catalog::{TopicSummary, all_topics, message_name};
use crate::errors::Fault;
use crate::leaders::{KnownLeaders, PartitionState, broker_id, host_of, port_of, rack_of};
use crate::messages::{RequestError, Response};
use crate::metadata::response::MetadataWriter;
use crate::quotas::Mutations;
use crate::request::Request;
use crate::state::Gateway;
use crate::topic_ref::RequestedTopic;

/// Authorized operations if they were not requested.
const OPERATIONS_OMITTED: i32 = i32::MIN;

pub(crate) async fn metadata(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: MetadataRequest = request.decode()?;
    let Request { head, session, caller, .. } = request;
    // In version 0 an empty list means all topics; later null does.
    let wanted = message.topics.filter(|topics| head.version > 0 || !topics.is_empty());
    let named = wanted.iter().flatten().map(|topic| match &topic.name {
        Some(name) if topic.topic_id.is_nil() => RequestedTopic::Name(name),
        _ => RequestedTopic::Id(topic.topic_id),
    });
    ensure_known(gateway, named).await;
    let tells_operations = message.include_topic_authorized_operations;
    let cluster_operations = match message.include_cluster_authorized_operations {
        true => caller.cluster_bits(),
        false => OPERATIONS_OMITTED,
    };
    // The copies of all topics are small compared with the response.
    let (topics, partitions) = match &wanted {
        None => {
            let catalog = gateway.broker.catalog();
            (catalog.topic_count(), catalog.partition_count())
        }
        Some(wanted) => (wanted.len(), find_partitions(gateway, &caller, wanted)),
    };
    let permit = gateway.answer_room(MetadataWriter::estimate(topics, partitions)).await;
    let rows: Vec<Row> = match wanted {
        None => {
            let all = all_topics(gateway).await.into_iter();
            all.filter(|topic| caller.may_topic(&topic.name)).map(Row::Found).collect()
        }
        Some(wanted) => {
            let create = message.allow_auto_topic_creation && gateway.options.auto_create_topics;
            let mutations = create.then(|| Mutations::accepted(&session, &head));
            rows(gateway, &caller, wanted, mutations).await
        }
    };
    let known = KnownLeaders::once_led(gateway, session.is_encrypted()).await;
    let brokers = known.listed().iter().map(|node| {
        MetadataResponseBroker::default()
            .with_node_id(broker_id(node.id))
            .with_host(host_of(node))
            .with_port(port_of(node))
            .with_rack(rack_of(node))
    });
    let response = MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(gateway.cluster_id()))
        .with_controller_id(known.controller(gateway))
        .with_cluster_authorized_operations(cluster_operations);
    let mut writer =
        MetadataWriter::new(&head, &response, rows.len(), &known.states(), gateway.broker.turns())?;
    for row in rows {
        let leaders = row.leaders(gateway, &known);
        let operations = match &row {
            Row::Found(topic) if tells_operations => caller.topic_bits(&topic.name),
            _ => OPERATIONS_OMITTED,
        };
        let (topic, partitions) = row.describe(head.version, operations);
        writer.push(&topic, partitions, &leaders).await?;
    }
    let mut response = writer.finish();
    response.permit = permit;
    Ok(response)
}

/// Total partitions of the topics that exist.
fn find_partitions(gateway: &Gateway, caller: &Caller, wanted: &[MetadataRequestTopic]) -> u64 {
    let counts = find(gateway, caller, wanted).into_iter().flatten();
    counts.map(|topic| u64::from(topic.partitions)).sum()
}

/// First version in which a topic's name may be null in the response (KIP-516): if its requested id is
/// unknown.
const NULL_NAMES_SINCE: i16 = 12;

/// A topic of the response.
enum Row {
    Found(TopicSummary),
    Missing(MetadataRequestTopic, Fault),
}

async fn rows(
    gateway: &Gateway,
    caller: &Caller,
    wanted: Vec<MetadataRequestTopic>,
    creating: Option<Mutations<'_>>,
) -> Vec<Row> {
    let mut found = find(gateway, caller, &wanted);
    if let Some(mutations) = creating {
        create_missing(gateway, caller, &mutations, &wanted, &mut found).await;
    }
    let rows = wanted.into_iter().zip(found).map(|(wanted, found)| match found {
        Ok(topic) => Row::Found(topic),
        Err(fault) => Row::Missing(wanted, fault),
    });
    rows.collect()
}

impl Row {
    fn leaders(&self, gateway: &Gateway, known: &KnownLeaders) -> Leaders {
        match self {
            Self::Found(topic) => known.topic_leaders(gateway, topic.id),
            Self::Missing(..) => Leaders::default(),
        }
    }

    /// Returns the topic without its partitions, and their number.
    fn describe(self, version: i16, operations: i32) -> (MetadataResponseTopic, u32) {
        match self {
            Self::Found(topic) => {
                let described = MetadataResponseTopic::default()
                    .with_name(Some(topic.message_name()))
                    .with_topic_id(topic.uuid)
                    .with_topic_authorized_operations(operations);
                (described, topic.partitions)
            }
            Self::Missing(wanted, fault) => {
                // Java clients that look for an id leave the name empty, not null.
                let name = wanted.name.filter(|name| wanted.topic_id.is_nil() || !name.is_empty());
                let name = if version >= NULL_NAMES_SINCE {
                    name
                } else {
                    name.or(Some(TopicName::default()))
                };
                let described = MetadataResponseTopic::default()
                    .with_error_code(fault.code())
                    .with_name(name)
                    .with_topic_id(wanted.topic_id)
                    .with_topic_authorized_operations(OPERATIONS_OMITTED);
                (described, 0)
            }
        }
    }
}

fn find(
    gateway: &Gateway,
    caller: &Caller,
    wanted: &[MetadataRequestTopic],
) -> Vec<Result<TopicSummary, Fault>> {
    let catalog = gateway.broker.catalog();
    let find = |topic: &MetadataRequestTopic| match &topic.name {
        // Java clients that look for an id leave the name empty, not null.
        Some(name) if topic.topic_id.is_nil() => {
            caller.topic(name)?;
            catalog.topic_named(name).map(TopicSummary::of).ok_or_else(|| unknown_name(name))
        }
        _ => catalog
            .topic_with_uuid(&topic.topic_id)
            // A topic that the caller may not describe is reported as unknown.
            .filter(|topic| caller.may_topic(topic.name()))
            .map(TopicSummary::of)
            .ok_or_else(Fault::unknown_topic_id),
    };
    wanted.iter().map(find).collect()
}

/// Distinguishes an invalid name from an unknown one.
fn unknown_name(name: &str) -> Fault {
    match validate_topic_name(name) {
        Ok(()) => Fault::unknown_partition(),
        Err(error) => Fault::new(ResponseError::InvalidTopicException, error.to_string()),
    }
}

/// Creates topics that were requested by name and do not exist.
async fn create_missing(
    gateway: &Gateway,
    caller: &Caller,
    mutations: &Mutations<'_>,
    wanted: &[MetadataRequestTopic],
    found: &mut [Result<TopicSummary, Fault>],
) {
    let mut places = Vec::new();
    let mut topics = Vec::new();
    for (place, wanted) in wanted.iter().enumerate() {
        if let (Some(name), Err(fault)) = (&wanted.name, &found[place])
            && fault.error == ResponseError::UnknownTopicOrPartition
        {
            if let Err(fault) = caller.creates_topic(name) {
                found[place] = Err(fault);
                continue;
            }
            mutations.note(gateway.options.partitions_default);
            places.push(place);
            topics.push(NewTopic {
                name: name.to_string(),
                uuid: gateway.broker.entropy().uuid(),
                partitions: gateway.options.partitions_default,
                config: BTreeMap::new(),
            });
        }
    }
    if topics.is_empty() {
        return;
    }
    let outcomes = match gateway.broker.create_topics(topics).await {
        Ok(outcomes) => outcomes,
        Err(error) => {
            let fault = Fault::from(error);
            places.iter().for_each(|place| found[*place] = Err(fault.clone()));
            return;
        }
    };
    let again = find(gateway, caller, wanted);
    for (place, outcome) in places.into_iter().zip(outcomes) {
        found[place] = match (&again[place], outcome) {
            // Created now, or by another request meanwhile.
            (Ok(topic), _) => Ok(topic.clone()),
            (Err(_), Err(refusal)) => Err(refusal.into()),
            (Err(fault), Ok(_)) => Err(fault.clone()),
        };
    }
}

/// Requested kind of endpoint: a broker.
const ENDPOINT_BROKERS: i8 = 1;

pub(crate) fn describe_cluster(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeClusterRequest = request.decode()?;
    let Request { head, session, caller, .. } = request;
    let cluster_operations = match message.include_cluster_authorized_operations {
        true => caller.cluster_bits(),
        false => OPERATIONS_OMITTED,
    };
    let known = KnownLeaders::now(gateway, session.is_encrypted());
    let mut response = DescribeClusterResponse::default()
        .with_cluster_id(gateway.cluster_id())
        .with_controller_id(known.controller(gateway))
        .with_endpoint_type(ENDPOINT_BROKERS)
        .with_cluster_authorized_operations(cluster_operations);
    if head.version >= 1 && message.endpoint_type != ENDPOINT_BROKERS {
        let fault = Fault::new(
            ResponseError::MismatchedEndpointType,
            "this is an endpoint of brokers; there are no controllers apart from them",
        );
        response = response
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes())
            .with_endpoint_type(message.endpoint_type);
        return Response::encode(&head, &response);
    }
    let brokers = known.listed().iter().map(|node| {
        DescribeClusterBroker::default()
            .with_broker_id(broker_id(node.id))
            .with_host(host_of(node))
            .with_port(port_of(node))
            .with_rack(rack_of(node))
    });
    Response::encode(&head, &response.with_brokers(brokers.collect()))
}

/// Kafka's `max.request.partition.size.limit`: a larger result goes out in pages.
const DESCRIBED_PARTITIONS_MAX: i32 = 2000;

pub(crate) fn describe_topic_partitions(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeTopicPartitionsRequest = request.decode()?;
    let limit = message.response_partition_limit.clamp(1, DESCRIBED_PARTITIONS_MAX) as u32;
    let caller = &request.caller;
    let mut wanted: Vec<(String, Option<TopicSummary>)> = if message.topics.is_empty() {
        let named = |topic: Topic<'_>| (topic.name().to_string(), Some(TopicSummary::of(topic)));
        // A topic has at least one partition, so a page has no more topics than partitions.
        let first = message.cursor.as_ref().map_or("", |cursor| &cursor.topic_name);
        let catalog = gateway.broker.catalog();
        let topics = catalog.topics_from(Bound::Included(first));
        let topics = topics.filter(|topic| caller.may_topic(topic.name()));
        topics.take(limit as usize + 1).map(named).collect()
    } else {
        let catalog = gateway.broker.catalog();
        let find = |name: &TopicName| catalog.topic_named(name).map(TopicSummary::of);
        message.topics.iter().map(|topic| (topic.name.to_string(), find(&topic.name))).collect()
    };
    // Pages are in the order of names.
    wanted.sort_by(|(one, _), (other, _)| one.cmp(other));
    wanted.dedup_by(|(one, _), (other, _)| one == other);

    let (first, mut from) = match &message.cursor {
        Some(cursor) => (cursor.topic_name.to_string(), cursor.partition_index.max(0) as u32),
        None => (String::new(), 0),
    };
    let mut page = Page::new(gateway, caller, request.session.is_encrypted(), limit);
    for (name, topic) in wanted.iter().filter(|(name, _)| *name >= first) {
        // The cursor's partition applies to the cursor's topic only.
        let start = if *name == first { std::mem::take(&mut from) } else { 0 };
        if !page.push(name, topic.as_ref(), start) {
            break;
        }
    }
    let response = DescribeTopicPartitionsResponse::default()
        .with_topics(page.topics)
        .with_next_cursor(page.next);
    Response::encode(&request.head, &response)
}

struct Page<'a> {
    gateway: &'a Gateway,
    caller: &'a Caller,
    known: KnownLeaders,
    states: Vec<PartitionState>,
    /// Partitions that still fit.
    left: u32,
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    next: Option<Cursor>,
}

impl<'a> Page<'a> {
    fn new(gateway: &'a Gateway, caller: &'a Caller, encrypted: bool, limit: u32) -> Self {
        let known = KnownLeaders::now(gateway, encrypted);
        let states = known.states();
        Self { gateway, caller, known, states, left: limit, topics: Vec::new(), next: None }
    }

    /// Adds a topic. Returns false once the page is full.
    fn push(&mut self, name: &str, topic: Option<&TopicSummary>, start: u32) -> bool {
        let described = DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(message_name(name)))
            .with_topic_authorized_operations(self.caller.topic_bits(name));
        let refused = self.caller.topic(name).err();
        let Some(topic) = topic.filter(|_| refused.is_none()) else {
            let code = refused.unwrap_or_else(Fault::unknown_partition).code();
            self.topics.push(
                described
                    .with_error_code(code)
                    .with_topic_authorized_operations(OPERATIONS_OMITTED),
            );
            return true;
        };
        if self.left == 0 {
            self.next = Some(cursor(name, start));
            return false;
        }
        let end = topic.partitions.min(start.saturating_add(self.left));
        let leaders = self.known.topic_leaders(self.gateway, topic.id);
        let partition = |index| self.partition(index, &leaders);
        let partitions: Vec<_> = (start..end).map(partition).collect();
        self.left -= partitions.len() as u32;
        self.topics.push(described.with_topic_id(topic.uuid).with_partitions(partitions));
        if end < topic.partitions {
            self.next = Some(cursor(name, end));
            return false;
        }
        true
    }

    fn partition(&self, index: u32, leaders: &Leaders) -> DescribeTopicPartitionsResponsePartition {
        let state = &self.states[leaders.place_of(index).min(self.states.len() - 1)];
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(index as i32)
            .with_error_code(state.error)
            .with_leader_id(state.leader)
            .with_leader_epoch(leaders.epoch_of(index, state.epoch))
            .with_replica_nodes(state.replicas.clone())
            .with_isr_nodes(state.in_sync.clone())
            .with_offline_replicas(state.offline.clone())
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    }
}

fn cursor(name: &str, partition: u32) -> Cursor {
    Cursor::default().with_topic_name(message_name(name)).with_partition_index(partition as i32)
}
