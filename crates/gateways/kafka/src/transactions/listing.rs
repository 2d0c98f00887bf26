//! ListTransactions and DescribeTransactions (KIP-664): the transactional ids that this node coordinates.

use std::collections::BTreeMap;

use broker::{KnownTransaction, TransactionState, Unavailable};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_transactions_response::{self, TopicData};
use kafka_protocol::messages::list_transactions_response;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use regex::{Regex, RegexBuilder};

use crate::authorization::Caller;
use crate::groups::committed::coordinator_unavailable;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

/// States that a transaction may have in Kafka and never has here.
const OTHER_STATES: [&str; 2] = ["Dead", "PrepareEpochFence"];

/// First version that filters by duration.
const DURATIONS_SINCE: i16 = 1;
/// Memory of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeTransactionsRequest = request.decode()?;
    let ids = message.transactional_ids.into_iter();
    let states = ids.map(|id| described(gateway, &request.caller, id));
    let response =
        DescribeTransactionsResponse::default().with_transaction_states(states.collect());
    Response::encode(&request.head, &response)
}

fn described(
    gateway: &Gateway,
    caller: &Caller,
    id: TransactionalId,
) -> describe_transactions_response::TransactionState {
    let response = describe_transactions_response::TransactionState::default();
    let found = caller.transactional_id(&id).and_then(|()| {
        let found = gateway.broker.transaction(&id).map_err(|why| match why {
            Unavailable::NotLeader => ResponseError::NotCoordinator,
            why => coordinator_unavailable(why),
        })?;
        found.ok_or(ResponseError::TransactionalIdNotFound)
    });
    let response = response.with_transactional_id(id);
    let known = match found {
        Ok(known) => known,
        Err(error) => return response.with_error_code(error.code()),
    };
    response
        .with_transaction_state(StrBytes::from_static_str(known.state.name()))
        .with_transaction_timeout_ms(i32::try_from(known.timeout_ms).unwrap_or(i32::MAX))
        .with_transaction_start_time_ms(known.started_ms.unwrap_or(-1))
        .with_producer_id(ProducerId(known.producer.id))
        .with_producer_epoch(known.producer.epoch)
        .with_topics(topics(gateway, caller, &known))
}

/// Partitions of the open transaction, of topics that the caller may describe.
fn topics(gateway: &Gateway, caller: &Caller, known: &KnownTransaction) -> Vec<TopicData> {
    let catalog = gateway.broker.catalog();
    let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in &known.partitions {
        let Some(topic) = catalog.topic(partition.topic) else { continue };
        if caller.may_topic(topic.name()) {
            by_topic.entry(topic.name().to_string()).or_default().push(partition.index as i32);
        }
    }
    let topics = by_topic.into_iter().map(|(name, partitions)| {
        TopicData::default()
            .with_topic(TopicName(StrBytes::from_string(name)))
            .with_partitions(partitions)
    });
    topics.collect()
}

/// A pattern for whole names, bounded in memory.
fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(PATTERN_BYTES_MAX).build()
}

pub(super) fn list(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: ListTransactionsRequest = request.decode()?;
    let is_known = |state: &str| {
        TransactionState::ALL.iter().any(|known| known.name() == state)
            || OTHER_STATES.contains(&state)
    };
    let (states, unknown): (Vec<StrBytes>, Vec<StrBytes>) =
        message.state_filters.into_iter().partition(|state| is_known(state));
    let response = ListTransactionsResponse::default().with_unknown_state_filters(unknown.clone());
    let pattern = message.transactional_id_pattern.as_deref().filter(|pattern| !pattern.is_empty());
    let pattern = match pattern.map(compiled).transpose() {
        Ok(pattern) => pattern,
        Err(_) => {
            let response = response.with_error_code(ResponseError::InvalidRegularExpression.code());
            return Response::encode(&request.head, &response);
        }
    };
    let now_ms = gateway.broker.clock().now_ms();
    let min_ms = message.duration_filter;
    let filters_durations = request.head.version >= DURATIONS_SINCE && min_ms >= 0;
    let is_wanted = |known: &KnownTransaction| {
        let state = StrBytes::from_static_str(known.state.name());
        let lasts = known.started_ms.map(|since| now_ms.saturating_sub(since));
        (states.is_empty() && unknown.is_empty() || states.contains(&state))
            && (message.producer_id_filters.is_empty()
                || message.producer_id_filters.contains(&ProducerId(known.producer.id)))
            && (!filters_durations || lasts.is_some_and(|lasts| lasts > min_ms))
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(&known.id))
            && request.caller.transactional_id(&known.id).is_ok()
    };
    let found = gateway.broker.transactions().into_iter().filter(is_wanted).map(|known| {
        list_transactions_response::TransactionState::default()
            .with_producer_id(ProducerId(known.producer.id))
            .with_transaction_state(StrBytes::from_static_str(known.state.name()))
            .with_transactional_id(TransactionalId(StrBytes::from_string(known.id)))
    });
    Response::encode(&request.head, &response.with_transaction_states(found.collect()))
}
