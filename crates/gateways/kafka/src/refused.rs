//! What clients ask for that a broker without transactions and reassignments does not have. Each gets
//! the answer that Kafka gives in that case, so that tools say something sensible.

use base::PartitionId;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ApiKey,
    DescribeTransactionsRequest, DescribeTransactionsResponse, ElectLeadersRequest,
    ElectLeadersResponse, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    ListTransactionsRequest, ListTransactionsResponse, describe_transactions_response,
};

use crate::errors::Fault;
use crate::gateway::Gateway;
use crate::leaders::names_all;
use crate::metadata::message_name;
use crate::partitions::find_partition;
use crate::refused_share_state;
use crate::request::{Request, RequestError};
use crate::response::Response;

pub(crate) fn handle(gateway: &Gateway, request: Request) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::DescribeTransactions => describe_transactions(request),
        ApiKey::ListTransactions => list_transactions(request),
        ApiKey::ElectLeaders => elect_leaders(gateway, request),
        ApiKey::AlterPartitionReassignments => alter_reassignments(gateway, request),
        ApiKey::ListPartitionReassignments => list_reassignments(request),
        _ => refused_share_state::handle(request),
    }
}

fn describe_transactions(mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeTransactionsRequest = request.decode()?;
    let states = message.transactional_ids.into_iter().map(|id| {
        describe_transactions_response::TransactionState::default()
            .with_transactional_id(id)
            .with_error_code(ResponseError::TransactionalIdNotFound.code())
    });
    let response =
        DescribeTransactionsResponse::default().with_transaction_states(states.collect());
    Response::encode(&request.head, &response)
}

/// The states that a transaction may have in Kafka.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// There are none, whatever the filter.
fn list_transactions(mut request: Request) -> Result<Response, RequestError> {
    let message: ListTransactionsRequest = request.decode()?;
    let unknown = message.state_filters.into_iter();
    let unknown = unknown.filter(|state| !TRANSACTION_STATES.contains(&state.as_str()));
    let response =
        ListTransactionsResponse::default().with_unknown_state_filters(unknown.collect());
    Response::encode(&request.head, &response)
}

/// Shards elect their leaders by themselves, and every partition of a shard goes with it: nobody else says who leads.
fn elect_leaders(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: ElectLeadersRequest = request.decode()?;
    let refused = request.asker.cluster().err();
    // For all partitions (null) Kafka names only those whose election was tried: none.
    let topics = message.topic_partitions.unwrap_or_default().into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|index| {
            let fault = match find_partition(gateway, &topic.topic, *index) {
                _ if refused.is_some() => refused.clone().unwrap_or_else(Fault::unknown_partition),
                Ok(partition) => no_election(gateway, partition),
                Err(unknown) => unknown,
            };
            PartitionResult::default()
                .with_partition_id(*index)
                .with_error_code(fault.code())
                .with_error_message(fault.message_bytes())
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default().with_topic(topic.topic).with_partition_result(partitions)
    });
    let response = ElectLeadersResponse::default()
        .with_error_code(refused.as_ref().map_or(0, Fault::code))
        .with_replica_election_results(topics.collect());
    Response::encode(&request.head, &response)
}

fn no_election(gateway: &Gateway, partition: PartitionId) -> Fault {
    match gateway.broker.leaders(partition.topic).of(partition.index).node {
        Some(leader) => Fault::new(
            ResponseError::ElectionNotNeeded,
            format!("broker {leader} leads this partition already"),
        ),
        None => Fault::new(
            ResponseError::EligibleLeadersNotAvailable,
            "the brokers that have this partition are electing a leader by themselves, \
             for which a majority of them must live",
        ),
    }
}

fn alter_reassignments(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: AlterPartitionReassignmentsRequest = request.decode()?;
    if let Err(fault) = request.asker.cluster() {
        let refused = AlterPartitionReassignmentsResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes());
        return Response::encode(&request.head, &refused);
    }
    let here = gateway.broker.replicas();
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let index = partition.partition_index;
            let response = ReassignablePartitionResponse::default().with_partition_index(index);
            let known = find_partition(gateway, &topic.name, index);
            let fault = match (known, partition.replicas) {
                (Err(unknown), _) => unknown,
                // It is where it is to go.
                (Ok(_), Some(replicas)) if names_all(&replicas, &here) => return response,
                (Ok(_), Some(_)) => Fault::new(
                    ResponseError::InvalidReplicaAssignment,
                    format!("partitions are not moved: each has a replica on each of {here:?}"),
                ),
                (Ok(_), None) => Fault::plain(ResponseError::NoReassignmentInProgress),
            };
            response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default()
            .with_name(message_name(&topic.name))
            .with_partitions(partitions)
    });
    let response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(message.allow_replication_factor_change)
        .with_responses(topics.collect());
    Response::encode(&request.head, &response)
}

/// Nothing is under way.
fn list_reassignments(mut request: Request) -> Result<Response, RequestError> {
    request.decode::<ListPartitionReassignmentsRequest>()?;
    let response = ListPartitionReassignmentsResponse::default();
    let response = match request.asker.cluster() {
        Ok(()) => response,
        Err(fault) => {
            response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
        }
    };
    Response::encode(&request.head, &response)
}
