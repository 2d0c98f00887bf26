//! TxnOffsetCommit: offsets that are committed with the end of the transaction.

use broker::{CommitOffset, ProducerKey};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    OffsetCommitRequest, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

use crate::groups::offset_requests::{self, CommitPlan, OffsetChange};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};

/// First version that needs no AddOffsetsToTxn before it (KIP-890).
const UNREGISTERED_SINCE: i16 = 5;

pub(super) async fn commit(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: TxnOffsetCommitRequest = request.decode()?;
    let as_commit = as_commit(&message);
    let admitted = super::admit(gateway, session, &request.caller, &message.transactional_id);
    let mut plans = offset_requests::permitted(gateway, &request.caller, &as_commit).await;
    match admitted {
        Ok(()) => {
            let registers = request.head.version < UNREGISTERED_SINCE;
            execute(gateway, &message, &mut plans, registers).await;
        }
        Err(error) => plans.iter_mut().for_each(|plan| *plan = Err(error)),
    }
    Response::encode(&request.head, &response(&message, &plans))
}

/// The request as a commit outside of a transaction, whose rules apply.
fn as_commit(message: &TxnOffsetCommitRequest) -> OffsetCommitRequest {
    let topics = message.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_committed_metadata(partition.committed_metadata.clone())
        });
        OffsetCommitRequestTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    OffsetCommitRequest::default()
        .with_group_id(message.group_id.clone())
        .with_generation_id_or_member_epoch(message.generation_id)
        .with_member_id(message.member_id.clone())
        .with_group_instance_id(message.group_instance_id.clone())
        .with_topics(topics.collect())
}

async fn execute(
    gateway: &Gateway,
    message: &TxnOffsetCommitRequest,
    plans: &mut [CommitPlan],
    registers: bool,
) {
    let mut offsets: Vec<CommitOffset> = Vec::new();
    for plan in plans.iter_mut() {
        match plan {
            Ok(OffsetChange::Commit(commit)) => offsets.push(commit.clone()),
            Ok(OffsetChange::Forget(_)) => *plan = Err(ResponseError::InvalidRequest),
            Err(_) => {}
        }
    }
    if offsets.is_empty() {
        return;
    }
    let producer = ProducerKey { id: message.producer_id.0, epoch: message.producer_epoch };
    let (id, group) = (&message.transactional_id, &message.group_id);
    match gateway.broker.add_pending_offsets(id, producer, group, offsets, registers).await {
        Ok(refused) => offset_requests::note_refused(plans, refused),
        // As in Kafka, which writes these offsets as a batch of the producer.
        Err(error) => offset_requests::refuse_rest(plans, super::code_of(error, false)),
    }
}

fn response(message: &TxnOffsetCommitRequest, plans: &[CommitPlan]) -> TxnOffsetCommitResponse {
    let mut plans = plans.iter();
    let topics = message.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(plans.by_ref()).map(|(partition, plan)| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(plan.as_ref().err().map_or(0, |error| error.code()))
        });
        TxnOffsetCommitResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}
