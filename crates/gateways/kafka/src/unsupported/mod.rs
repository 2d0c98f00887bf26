//! Requests that a broker without transactions does not serve. Each gets Kafka's response for that case, so
//! that tools react sensibly.
//!
//! `share_state`: requests for share group state; `transactions`: the refusal for clients that use transactions.

mod share_state;
pub(crate) mod transactions;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{
    ApiKey, DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, describe_transactions_response,
};

use crate::messages::{RequestError, Response};
use crate::request::Request;

pub(crate) fn handle(request: Request) -> Result<Response, RequestError> {
    match request.head.api {
        ApiKey::DescribeTransactions => describe_transactions(request),
        ApiKey::ListTransactions => list_transactions(request),
        _ => share_state::handle(request),
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

/// There are no transactions, whatever the filter.
fn list_transactions(mut request: Request) -> Result<Response, RequestError> {
    let message: ListTransactionsRequest = request.decode()?;
    let unknown = message.state_filters.into_iter();
    let unknown = unknown.filter(|state| !TRANSACTION_STATES.contains(&state.as_str()));
    let response =
        ListTransactionsResponse::default().with_unknown_state_filters(unknown.collect());
    Response::encode(&request.head, &response)
}
