//! Producer ids, and what partitions remember of producers.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProducerId,
};
use machine::{Command, Outcome};
use tracing::warn;

use crate::errors::{Fault, code_of};
use crate::gateway::{Gateway, Session};
use crate::no_transactions::no_transactions_for;
use crate::offsets::find_partition;
use crate::request::{Request, RequestError};
use crate::response::Response;

pub(crate) async fn init_producer_id(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: InitProducerIdRequest = request.decode()?;
    let allocated = match &message.transactional_id {
        Some(transactional_id) => {
            // The response has no room for a reason, so it is said here.
            warn!(
                peer = %session.connection.peer(),
                transactional_id = %&**transactional_id,
                "a producer asked for transactions, which are not offered"
            );
            Err(no_transactions_for(session))
        }
        None => allocate(gateway).await,
    };
    let response = InitProducerIdResponse::default().with_error_code(code_of(&allocated));
    let (id, epoch) = allocated.unwrap_or((-1, -1));
    let response = response.with_producer_id(ProducerId(id)).with_producer_epoch(epoch);
    Response::encode(&request.head, &response)
}

/// A new id with epoch 0, also for a producer that has one and asks to go on with a higher epoch
/// (KIP-360): its sequences start anew with either.
async fn allocate(gateway: &Gateway) -> Result<(i64, i16), Fault> {
    match gateway.broker.execute(Command::AllocateProducerId).await? {
        Outcome::ProducerId { id, epoch } => Ok((id, epoch)),
        _ => Err(Fault::plain(ResponseError::UnknownServerError)),
    }
}

pub(crate) fn describe_producers(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeProducersRequest = request.decode()?;
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let described = PartitionResponse::default().with_partition_index(*index);
            match find_partition(gateway, &topic.name, *index) {
                Ok(id) => described.with_active_producers(active_producers(gateway, id)),
                Err(fault) => described
                    .with_error_code(fault.code())
                    .with_error_message(fault.message_bytes()),
            }
        });
        let partitions = partitions.collect();
        TopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    let response = DescribeProducersResponse::default().with_topics(topics.collect());
    Response::encode(&request.head, &response)
}

fn active_producers(gateway: &Gateway, partition: base::PartitionId) -> Vec<ProducerState> {
    gateway.broker.read(|state| {
        let Some(partition) = state.partition(partition) else { return Vec::new() };
        let describe = |(id, producer): &(i64, machine::producer::ProducerState)| {
            ProducerState::default()
                .with_producer_id(ProducerId(*id))
                .with_producer_epoch(i32::from(producer.epoch()))
                .with_last_sequence(producer.last_sequence())
                .with_last_timestamp(producer.last_ms())
                .with_coordinator_epoch(-1)
                .with_current_txn_start_offset(-1)
        };
        partition.producers().iter().map(describe).collect()
    })
}
