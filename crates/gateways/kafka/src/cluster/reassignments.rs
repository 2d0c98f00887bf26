//! Reassignments: each partition has its replicas by the cluster's choice. A request for exactly these
//! replicas succeeds.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, BrokerId,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::authorization::Caller;
use crate::catalog::message_name;
use crate::catalog::partitions::find_partition;
use crate::errors::Fault;
use crate::leaders::names_all;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

pub(crate) fn alter(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: AlterPartitionReassignmentsRequest = request.decode()?;
    if let Err(fault) = request.caller.cluster() {
        let refused = AlterPartitionReassignmentsResponse::default()
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes());
        return Response::encode(&request.head, &refused);
    }
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            let index = partition.partition_index;
            let altered = alter_one(
                gateway,
                &request.caller,
                &topic.name,
                index,
                partition.replicas.as_deref(),
            );
            let response = ReassignablePartitionResponse::default().with_partition_index(index);
            match altered {
                Ok(()) => response,
                Err(fault) => {
                    response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
                }
            }
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

/// A target of `None` cancels a reassignment; there is none in progress.
fn alter_one(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    index: i32,
    target: Option<&[BrokerId]>,
) -> Result<(), Fault> {
    let partition = find_partition(gateway, caller, topic, index)?;
    let target = target.ok_or_else(|| Fault::plain(ResponseError::NoReassignmentInProgress))?;
    let leaders = gateway.broker.leaders(partition.topic);
    let replicas = leaders.replicas(partition.index);
    match names_all(target, replicas) {
        true => Ok(()),
        false => Err(Fault::new(ResponseError::InvalidReplicaAssignment, elsewhere(replicas))),
    }
}

/// Message with the commands to use instead.
fn elsewhere(replicas: &[u32]) -> String {
    match replicas {
        [only] => format!("this partition is on broker {only}, which is alone"),
        all => format!(
            "this partition is on brokers {all:?}, as the cluster chooses; to have another broker in the place of one of them, \
             start it with `postroad serve --join` and type `postroad node replace N --with NEW`"
        ),
    }
}

/// No reassignment is ever in progress.
pub(crate) fn list(mut request: Request) -> Result<Response, RequestError> {
    request.decode::<ListPartitionReassignmentsRequest>()?;
    let response = ListPartitionReassignmentsResponse::default();
    let response = match request.caller.cluster() {
        Ok(()) => response,
        Err(fault) => {
            response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
        }
    };
    Response::encode(&request.head, &response)
}
