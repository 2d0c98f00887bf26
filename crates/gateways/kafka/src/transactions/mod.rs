//! Transactions of producers: InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.
//!
//! The node that leads the shard of the id coordinates. Clients at `transaction.version` 2 register nothing (KIP-890):
//! Produce and TxnOffsetCommit join the transaction by themselves, and each end changes the producer's epoch.
//!
//! * `offsets`: TxnOffsetCommit; `produced`: batches of a Produce request; `listing`: ListTransactions and
//!   DescribeTransactions

mod listing;
pub(crate) mod offsets;
pub(crate) mod produced;

use broker::{ExecuteError, ProducerKey, Refusal, TransactionRefusal};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, ApiKey, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    ProducerId, TransactionalId,
};

use base::PartitionId;

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::errors::Fault;
use crate::groups::committed::coordinator_unavailable;
use crate::limits::TRANSACTION_TIMEOUT_MS_MAX;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::{Gateway, Session};
use crate::topic_ref::RequestedTopic;
use crate::unsupported::transactions::no_transactions_for;

/// First version whose clients know PRODUCER_FENCED. Before it the code is INVALID_PRODUCER_EPOCH.
const INIT_FENCED_SINCE: i16 = 4;
const ADD_FENCED_SINCE: i16 = 2;
const END_FENCED_SINCE: i16 = 2;
/// First version of EndTxn that changes the epoch (KIP-890).
const NEXT_EPOCH_SINCE: i16 = 5;
/// First version of AddPartitionsToTxn with several transactions, which brokers send to each other (KIP-890).
const BATCHED_SINCE: i16 = 4;

pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    request: Request,
) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::AddPartitionsToTxn => add_partitions(gateway, session, request).await,
        ApiKey::AddOffsetsToTxn => add_offsets(gateway, session, request).await,
        ApiKey::TxnOffsetCommit => offsets::commit(gateway, session, request).await,
        ApiKey::EndTxn => end(gateway, session, request).await,
        ApiKey::DescribeTransactions => listing::describe(gateway, request),
        _ => listing::list(gateway, request),
    }
}

/// Maps an error of the coordinator to its code. `knows_fenced`: the client's version knows PRODUCER_FENCED.
fn code_of(error: ExecuteError, knows_fenced: bool) -> ResponseError {
    match error {
        ExecuteError::Refused(Refusal::Transaction(TransactionRefusal::Fenced { .. }))
            if !knows_fenced =>
        {
            ResponseError::InvalidProducerEpoch
        }
        ExecuteError::Refused(refusal) => Fault::from(refusal).error,
        ExecuteError::Unavailable(unavailable) => coordinator_unavailable(unavailable),
    }
}

/// Refuses a request if the cluster has not reached the feature level of transactions, or the caller has no right to the
/// transactional id.
fn admit(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    id: &str,
) -> Result<(), ResponseError> {
    if !gateway.broker.has_transactions() {
        return Err(no_transactions_for(session).error);
    }
    caller.transactional_id(id)
}

fn key(id: ProducerId, epoch: i16) -> ProducerKey {
    ProducerKey { id: id.0, epoch }
}

/// The next producer of a transactional id.
pub(crate) async fn initialize(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    message: &InitProducerIdRequest,
    id: &TransactionalId,
    version: i16,
) -> Result<ProducerKey, ResponseError> {
    admit(gateway, session, caller, id)?;
    let timeout_ms = u32::try_from(message.transaction_timeout_ms).unwrap_or(0);
    if !(1..=TRANSACTION_TIMEOUT_MS_MAX).contains(&timeout_ms) {
        return Err(ResponseError::InvalidTransactionTimeout);
    }
    let expect = match (message.producer_id.0, message.producer_epoch) {
        (-1, -1) => None,
        (0.., 0..) => Some(key(message.producer_id, message.producer_epoch)),
        _ => return Err(ResponseError::InvalidRequest),
    };
    let initialized = gateway.broker.initialize_producer(id, expect, timeout_ms).await;
    initialized.map_err(|error| code_of(error, version >= INIT_FENCED_SINCE))
}

// ------------------------------------------------------------------------------------ partitions

async fn add_partitions(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AddPartitionsToTxnRequest = request.decode()?;
    let version = request.head.version;
    let response = AddPartitionsToTxnResponse::default();
    if version < BATCHED_SINCE {
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(message.v3_and_below_transactional_id)
            .with_producer_id(message.v3_and_below_producer_id)
            .with_producer_epoch(message.v3_and_below_producer_epoch)
            .with_topics(message.v3_and_below_topics);
        let knows_fenced = version >= ADD_FENCED_SINCE;
        let results =
            add_to_one(gateway, session, &request.caller, transaction, knows_fenced).await;
        let response = response.with_results_by_topic_v3_and_below(results);
        return Response::encode(&request.head, &response);
    }
    // Nodes do not send it to each other here, so it comes from a client that plays a broker.
    if let Err(fault) = request.caller.cluster() {
        let response = response.with_error_code(fault.code());
        return Response::encode(&request.head, &response);
    }
    let mut results = Vec::with_capacity(message.transactions.len());
    for transaction in message.transactions {
        let id = transaction.transactional_id.clone();
        let of_one = add_to_one(gateway, session, &request.caller, transaction, true).await;
        let result = AddPartitionsToTxnResult::default().with_transactional_id(id);
        results.push(result.with_topic_results(of_one));
    }
    Response::encode(&request.head, &response.with_results_by_transaction(results))
}

/// Registers all partitions of a transaction or, as in Kafka, none: if one is refused, the others get
/// OPERATION_NOT_ATTEMPTED.
async fn add_to_one(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    transaction: AddPartitionsToTxnTransaction,
    knows_fenced: bool,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let AddPartitionsToTxnTransaction { transactional_id: id, topics, verify_only, .. } =
        transaction;
    let producer = key(transaction.producer_id, transaction.producer_epoch);
    if let Err(error) = admit(gateway, session, caller, &id) {
        return results(&topics, |_, _| Err(error));
    }
    ensure_known(gateway, topics.iter().map(|topic| RequestedTopic::Name(&topic.name))).await;
    let found = |topic: &AddPartitionsToTxnTopic, index: i32| {
        caller.topic(&topic.name).map_err(|fault| fault.error)?;
        let catalog = gateway.broker.catalog();
        let known = catalog.topic_named(&topic.name).and_then(|known| known.partition(index));
        known.ok_or(ResponseError::UnknownTopicOrPartition)
    };
    if verify_only {
        return results(&topics, |topic, index| {
            let registered = gateway.broker.is_registered(&id, producer, found(topic, index)?);
            match registered.map_err(|error| code_of(error, knows_fenced))? {
                true => Ok(()),
                false => Err(ResponseError::InvalidTxnState),
            }
        });
    }
    let each = topics.iter().flat_map(|topic| topic.partitions.iter().map(move |it| (topic, *it)));
    let partitions: Result<Vec<PartitionId>, _> =
        each.map(|(topic, index)| found(topic, index)).collect();
    match partitions {
        Ok(partitions) => {
            let added = gateway.broker.add_partitions(&id, producer, partitions).await;
            let added = added.map_err(|error| code_of(error, knows_fenced));
            results(&topics, |_, _| added)
        }
        Err(_) => results(&topics, |topic, index| match found(topic, index) {
            Ok(_) => Err(ResponseError::OperationNotAttempted),
            Err(error) => Err(error),
        }),
    }
}

/// One result for each partition of a request.
fn results(
    topics: &[AddPartitionsToTxnTopic],
    result: impl Fn(&AddPartitionsToTxnTopic, i32) -> Result<(), ResponseError>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let of_partition = |index: &i32| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(result(topic, *index).err().map_or(0, |it| it.code()))
        };
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(topic.partitions.iter().map(of_partition).collect())
    };
    topics.iter().map(of_topic).collect()
}

// ------------------------------------------------------------------------------- offsets and end

async fn add_offsets(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AddOffsetsToTxnRequest = request.decode()?;
    let id = &message.transactional_id;
    let knows_fenced = request.head.version >= ADD_FENCED_SINCE;
    let admitted = admit(gateway, session, &request.caller, id)
        .and_then(|()| request.caller.group(&message.group_id));
    let added = match admitted {
        Ok(()) => {
            let producer = key(message.producer_id, message.producer_epoch);
            let added = gateway.broker.add_offsets(id, producer, &message.group_id).await;
            added.map_err(|error| code_of(error, knows_fenced))
        }
        Err(error) => Err(error),
    };
    let code = added.err().map_or(0, |error| error.code());
    Response::encode(&request.head, &AddOffsetsToTxnResponse::default().with_error_code(code))
}

async fn end(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: EndTxnRequest = request.decode()?;
    let (id, version) = (&message.transactional_id, request.head.version);
    let producer = key(message.producer_id, message.producer_epoch);
    let ended = match admit(gateway, session, &request.caller, id) {
        Ok(()) => {
            let changes_epoch = version >= NEXT_EPOCH_SINCE;
            let ended = gateway
                .broker
                .end_transaction(id, producer, message.committed, changes_epoch)
                .await;
            ended.map_err(|error| code_of(error, version >= END_FENCED_SINCE))
        }
        Err(error) => Err(error),
    };
    let response = match ended {
        Ok(ProducerKey { id, epoch }) => {
            EndTxnResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(epoch)
        }
        Err(error) => EndTxnResponse::default().with_error_code(error.code()),
    };
    Response::encode(&request.head, &response)
}
