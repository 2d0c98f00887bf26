//! Creates topics, adds partitions, and deletes topics.

use base::{HashMap, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{NewTopic, validate_topic_name};
use futures_util::future::join_all;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};
use uuid::Uuid;

use crate::authorization::Caller;
use crate::catalog::message_name;
use crate::configs::describe::creatable_configs;
use crate::errors::{Fault, code_of};
use crate::leaders::names_all;
use crate::messages::{RequestError, Response};
use crate::quotas::Mutations;
use crate::request::Request;
use crate::state::Gateway;

/// First versions whose clients know THROTTLING_QUOTA_EXCEEDED, and retry later (KIP-599).
const CREATE_STRICT_SINCE: i16 = 6;
const DELETE_STRICT_SINCE: i16 = 5;
const GROW_STRICT_SINCE: i16 = 3;

pub(crate) async fn create(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: CreateTopicsRequest = request.decode()?;
    let mut wanted: Vec<Result<NewTopic, Fault>> =
        message.topics.iter().map(|topic| new_topic(gateway, &request.caller, topic)).collect();
    refuse_duplicates(&message.topics, &mut wanted);
    let mutations = Mutations::new(&request, CREATE_STRICT_SINCE);
    if !message.validate_only {
        let charged = |wanted: Result<NewTopic, Fault>| {
            let new = wanted?;
            mutations.take(new.partitions).map(|()| new)
        };
        wanted = make(gateway, wanted.into_iter().map(charged).collect()).await;
    } else {
        let catalog = gateway.broker.catalog();
        let check = |wanted: Result<NewTopic, Fault>| {
            let new = wanted?;
            catalog.check_new_topic(&new)?;
            gateway.broker.check_level_of(&new.config)?;
            Ok(new)
        };
        wanted = wanted.into_iter().map(check).collect();
    }
    let replicas = gateway.broker.replicas().len();
    let results = message.topics.into_iter().zip(wanted).map(|(topic, made)| {
        let result =
            CreatableTopicResult::default().with_name(topic.name).with_error_code(code_of(&made));
        match made {
            Ok(made) => result
                .with_topic_id(if message.validate_only { Uuid::nil() } else { made.uuid })
                .with_num_partitions(made.partitions as i32)
                .with_replication_factor(replicas as i16)
                .with_configs(Some(creatable_configs(gateway, &made.config))),
            Err(fault) => result
                .with_error_message(fault.message_bytes())
                .with_num_partitions(-1)
                .with_replication_factor(-1),
        }
    });
    let response = CreateTopicsResponse::default()
        .with_throttle_time_ms(mutations.throttle_ms())
        .with_topics(results.collect());
    Response::encode(&request.head, &response)
}

/// Converts a requested topic to the broker's type.
fn new_topic(
    gateway: &Gateway,
    caller: &Caller,
    topic: &CreatableTopic,
) -> Result<NewTopic, Fault> {
    caller.creates_topic(&topic.name)?;
    validate_topic_name(&topic.name)
        .map_err(|error| Fault::new(ResponseError::InvalidTopicException, error.to_string()))?;
    let partitions = if topic.assignments.is_empty() {
        check_replication_factor(gateway, topic.replication_factor)?;
        match topic.num_partitions {
            // The node's default (KIP-464).
            -1 => gateway.options.partitions_default,
            number => u32::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
                Fault::new(
                    ResponseError::InvalidPartitions,
                    "the number of partitions must be 1 or more, or -1 for the default",
                )
            })?,
        }
    } else {
        assigned_partitions(gateway, topic)?
    };
    let mut config = BTreeMap::new();
    for entry in &topic.configs {
        let value = entry.value.as_ref().ok_or_else(|| {
            Fault::new(ResponseError::InvalidConfig, format!("{} has no value", entry.name))
        })?;
        config.insert(entry.name.to_string(), value.to_string());
    }
    Ok(NewTopic {
        name: topic.name.to_string(),
        uuid: gateway.broker.entropy().uuid(),
        partitions,
        config,
    })
}

/// The replication factor is a minimum: every node has a replica of every partition, or three nodes have one.
pub(crate) fn check_replication_factor(gateway: &Gateway, factor: i16) -> Result<(), Fault> {
    let replicas = gateway.broker.replicas().len();
    let reason = match factor {
        -1 => return Ok(()),
        ..=0 => "the replication factor must be 1 or more, or -1 for the default".to_owned(),
        factor if usize::from(factor.unsigned_abs()) <= replicas => return Ok(()),
        more => {
            let there = if replicas == 1 { "is one".to_owned() } else { format!("are {replicas}") };
            format!("a replication factor of {more} needs {more} brokers, and there {there}")
        }
    };
    Err(Fault::new(ResponseError::InvalidReplicationFactor, reason))
}

/// A manual assignment must name every partition once, and all brokers for each.
fn assigned_partitions(gateway: &Gateway, topic: &CreatableTopic) -> Result<u32, Fault> {
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        return Err(Fault::new(
            ResponseError::InvalidRequest,
            "with a manual assignment, partitions and replication factor must be -1",
        ));
    }
    let invalid = |message: String| Fault::new(ResponseError::InvalidReplicaAssignment, message);
    let count = topic.assignments.len();
    let mut named = vec![false; count];
    for CreatableReplicaAssignment { partition_index, broker_ids, .. } in &topic.assignments {
        check_brokers(gateway, broker_ids)?;
        let place = usize::try_from(*partition_index).ok().filter(|index| *index < count);
        let Some(place) = place.filter(|place| !named[*place]) else {
            return Err(invalid(format!(
                "partitions of an assignment must be 0 to {}, each once",
                count - 1
            )));
        };
        named[place] = true;
    }
    u32::try_from(count).map_err(|_| invalid("too many partitions".to_owned()))
}

fn check_brokers(gateway: &Gateway, brokers: &[BrokerId]) -> Result<(), Fault> {
    let refused = |reason| Err(Fault::new(ResponseError::InvalidReplicaAssignment, reason));
    if gateway.broker.is_spread() {
        let reason = "not every broker has every partition here, and the cluster chooses which have one: leave the \
                      assignment away";
        return refused(reason.to_owned());
    }
    let replicas = gateway.broker.replicas();
    if names_all(brokers, &replicas) {
        return Ok(());
    }
    let reason = match &replicas[..] {
        [only] => format!("a partition's replicas can only be [{only}], the one broker"),
        all => format!("a partition's replicas can only be {all:?}, all brokers"),
    };
    refused(reason)
}

/// A duplicate name is refused at each of its places, as in Kafka.
fn refuse_duplicates(topics: &[CreatableTopic], wanted: &mut [Result<NewTopic, Fault>]) {
    let mut named: HashMap<&str, usize> =
        HashMap::with_capacity_and_hasher(topics.len(), Default::default());
    for topic in topics {
        *named.entry(&topic.name).or_default() += 1;
    }
    for (topic, wanted) in topics.iter().zip(wanted) {
        if named[&**topic.name] > 1 {
            *wanted = Err(Fault::new(
                ResponseError::InvalidRequest,
                "the request has this topic more than once",
            ));
        }
    }
}

/// Creates all topics of a request in one log entry.
async fn make(
    gateway: &Gateway,
    wanted: Vec<Result<NewTopic, Fault>>,
) -> Vec<Result<NewTopic, Fault>> {
    let topics: Vec<NewTopic> =
        wanted.iter().filter_map(|wanted| wanted.as_ref().ok().cloned()).collect();
    if topics.is_empty() {
        return wanted;
    }
    let mut outcomes = match gateway.broker.create_topics(topics).await {
        Ok(outcomes) => outcomes.into_iter(),
        Err(error) => {
            let fault = Fault::from(error);
            return wanted.into_iter().map(|wanted| wanted.and(Err(fault.clone()))).collect();
        }
    };
    let made = wanted.into_iter().map(|wanted| {
        let new = wanted?;
        match outcomes.next() {
            Some(Ok(_)) => Ok(new),
            Some(Err(refusal)) => Err(refusal.into()),
            None => Err(Fault::plain(ResponseError::UnknownServerError)),
        }
    });
    made.collect()
}

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteTopicsRequest = request.decode()?;
    let by_name = message
        .topic_names
        .into_iter()
        .map(|name| DeleteTopicState::default().with_name(Some(name)));
    // Concurrently, so that they share a sync.
    let deleting = message.topics.into_iter().chain(by_name);
    let mutations = Mutations::new(&request, DELETE_STRICT_SINCE);
    let deleting = deleting.map(|topic| delete_one(gateway, &request.caller, &mutations, topic));
    let results = join_all(deleting).await;
    let response = DeleteTopicsResponse::default()
        .with_throttle_time_ms(mutations.throttle_ms())
        .with_responses(results);
    Response::encode(&request.head, &response)
}

async fn delete_one(
    gateway: &Gateway,
    caller: &Caller,
    mutations: &Mutations<'_>,
    topic: DeleteTopicState,
) -> DeletableTopicResult {
    let result = DeletableTopicResult::default();
    let found = find_deleted(gateway, caller, mutations, &topic);
    let deleted = match found {
        Ok((id, name, uuid)) => match gateway.broker.delete_topic(id).await {
            Ok(()) => Ok((name, uuid)),
            Err(error) => Err(caller.rejected(error)),
        },
        Err(fault) => Err(fault),
    };
    match deleted {
        Ok((name, uuid)) => result.with_name(Some(message_name(&name))).with_topic_id(uuid),
        Err(fault) => result
            .with_name(topic.name)
            .with_topic_id(topic.topic_id)
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes()),
    }
}

/// Finds the topic to delete, with its name and UUID.
fn find_deleted(
    gateway: &Gateway,
    caller: &Caller,
    mutations: &Mutations<'_>,
    topic: &DeleteTopicState,
) -> Result<(TopicId, Arc<str>, Uuid), Fault> {
    let catalog = gateway.broker.catalog();
    let found = match &topic.name {
        Some(name) if topic.topic_id.is_nil() => {
            caller.topic(name)?;
            catalog.topic_named(name).ok_or_else(|| caller.missing(Fault::unknown_partition()))?
        }
        Some(_) => {
            return Err(Fault::new(
                ResponseError::InvalidRequest,
                "a topic must be named by its name or by its id, not by both",
            ));
        }
        None => {
            let found = catalog.topic_with_uuid(&topic.topic_id);
            let found = found.ok_or_else(|| caller.missing(Fault::unknown_topic_id()))?;
            caller.topic(found.name())?;
            found
        }
    };
    mutations.take(found.partition_count())?;
    Ok((found.id(), Arc::clone(found.name()), found.uuid()))
}

pub(crate) async fn create_partitions(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: CreatePartitionsRequest = request.decode()?;
    let growing = message.topics.iter();
    let mutations = Mutations::new(&request, GROW_STRICT_SINCE);
    let growing = growing.map(|topic| {
        let charged = (!message.validate_only).then_some(&mutations);
        grow(gateway, &request.caller, topic, charged)
    });
    let grown = join_all(growing).await;
    let results = message.topics.into_iter().zip(grown).map(|(topic, grown)| {
        let result = CreatePartitionsTopicResult::default()
            .with_name(topic.name)
            .with_error_code(code_of(&grown));
        match grown {
            Ok(()) => result,
            Err(fault) => result.with_error_message(fault.message_bytes()),
        }
    });
    let response = CreatePartitionsResponse::default()
        .with_throttle_time_ms(mutations.throttle_ms())
        .with_results(results.collect());
    Response::encode(&request.head, &response)
}

async fn grow(
    gateway: &Gateway,
    caller: &Caller,
    wanted: &CreatePartitionsTopic,
    charged: Option<&Mutations<'_>>,
) -> Result<(), Fault> {
    caller.topic(&wanted.name)?;
    let (topic, present) = {
        let catalog = gateway.broker.catalog();
        let found = catalog.topic_named(&wanted.name);
        let found = found.ok_or_else(|| caller.missing(Fault::unknown_partition()))?;
        (found.id(), found.partition_count())
    };
    let total = u32::try_from(wanted.count).ok().filter(|total| *total > present);
    let total = total.ok_or_else(|| {
        let noun = if present == 1 { "partition" } else { "partitions" };
        Fault::new(
            ResponseError::InvalidPartitions,
            format!("the topic has {present} {noun}; {} would not be more", wanted.count),
        )
    })?;
    if let Some(assignments) = &wanted.assignments {
        if assignments.len() != (total - present) as usize {
            return Err(Fault::new(
                ResponseError::InvalidReplicaAssignment,
                format!(
                    "{} partitions are added and {} are assigned",
                    total - present,
                    assignments.len()
                ),
            ));
        }
        for assignment in assignments {
            check_brokers(gateway, &assignment.broker_ids)?;
        }
    }
    let Some(mutations) = charged else {
        let checked = gateway.broker.catalog().check_create_partitions(topic, total);
        return checked.map_err(|refusal| caller.rejected(refusal));
    };
    mutations.take(total - present)?;
    let grown = gateway.broker.create_partitions(topic, total).await;
    grown.map_err(|error| caller.rejected(error))
}
