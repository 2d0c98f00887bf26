//! Producer ids, and the producer state of partitions.

use base::PartitionId;
use broker::{Producer, ProducerIdentity, ProducerKey, YieldBudget};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProducerId,
};

use crate::authorization::Caller;
use crate::catalog::partitions::{PARTITIONS_AT_ONCE, find_led_partitions, with_answers};
use crate::errors::{Fault, code_of};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};
use crate::transactions;

pub(crate) async fn init_producer_id(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: InitProducerIdRequest = request.decode()?;
    let allocated = match &message.transactional_id {
        Some(id) => {
            let version = request.head.version;
            let initialized =
                transactions::initialize(gateway, session, &request.caller, &message, id, version);
            let of = |ProducerKey { id, epoch }: ProducerKey| ProducerIdentity { id, epoch };
            initialized.await.map(of).map_err(Fault::plain)
        }
        None => match request.caller.cluster() {
            Err(fault) if !request.caller.may_write_to_some_topic() => Err(fault),
            _ => allocate(gateway).await,
        },
    };
    let response = InitProducerIdResponse::default().with_error_code(code_of(&allocated));
    let ProducerIdentity { id, epoch } =
        allocated.unwrap_or(ProducerIdentity { id: -1, epoch: -1 });
    let response = response.with_producer_id(ProducerId(id)).with_producer_epoch(epoch);
    Response::encode(&request.head, &response)
}

/// Allocates a new id with epoch 0, even if the producer has an id and requests a higher epoch (KIP-360): its
/// sequences restart in both cases.
async fn allocate(gateway: &Gateway) -> Result<ProducerIdentity, Fault> {
    Ok(gateway.broker.allocate_producer_id().await?)
}

pub(crate) async fn describe_producers(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeProducersRequest = request.decode()?;
    let mut topics = Vec::with_capacity(message.topics.len());
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE as u32);
    for topic in message.topics {
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for indexes in topic.partition_indexes.chunks(PARTITIONS_AT_ONCE) {
            pace.step(indexes.len() as u32).await;
            partitions
                .extend(describe_partitions(gateway, &request.caller, &topic.name, indexes).await);
        }
        topics.push(TopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    Response::encode(&request.head, &DescribeProducersResponse::default().with_topics(topics))
}

async fn describe_partitions(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    indexes: &[i32],
) -> Vec<PartitionResponse> {
    let found = find_led_partitions(gateway, caller, topic, indexes.iter().copied());
    let ids: Vec<PartitionId> = found.iter().flatten().copied().collect();
    let producers = gateway.broker.shards().producers(&ids).await;
    let partitions = indexes.iter().zip(with_answers(found, producers)).map(|(index, found)| {
        let described = PartitionResponse::default().with_partition_index(*index);
        let producers =
            found.and_then(|(_, producers)| producers.ok_or_else(Fault::unknown_partition));
        match producers {
            Ok(producers) => {
                described.with_active_producers(producers.iter().map(active_producer).collect())
            }
            Err(fault) => {
                described.with_error_code(fault.code()).with_error_message(fault.message_bytes())
            }
        }
    });
    partitions.collect()
}

fn active_producer(producer: &Producer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(producer.id))
        .with_producer_epoch(i32::from(producer.epoch))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_ms)
        .with_coordinator_epoch(-1)
        .with_current_txn_start_offset(-1)
}
