//! Conversion of another node's messages to those of this node's driver, and of the driver's replies.

use std::collections::BTreeMap;

use bytes::Bytes;
use dispatch::SessionId;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use machine::GroupSettle;
use shard::append::AppendBatch;
use shard::delivery::divided_credit::CreditKind;
use shard::delivery::error::{RemoveError, TakeError, TransferError};
use shard::delivery::event::Delivery;
use shard::delivery::handle::{
    ConsumerRegistration, DriverQuery, Message, SettleResults, TransferResult, WithholdResult,
};
use shard::error::Unavailable;
use shard_peers::wire::{self, Batch};
use tokio::sync::oneshot;

use super::frame::MalformedFrame;
use super::items::{DriverReply, OperatorRequest, RelayCommand, RequestId};

/// Minimum weight of a pending request.
const REQUEST_BYTES: usize = 256;
const SETTLE_BYTES: usize = 64;

/// A message to the driver, with or without a reply.
pub(super) enum DriverMessage {
    OneWay(Message),
    Request(RelayedRequest),
}

pub(super) struct RelayedRequest {
    pub(super) message: Message,
    pub(super) pending: PendingReply,
    /// The take is cancelled when this is dropped.
    pub(super) waits_for: Option<(RequestId, oneshot::Sender<()>)>,
}

/// A pending reply.
pub(super) struct PendingReply {
    id: RequestId,
    pub(super) weight: usize,
    answer: BoxFuture<'static, RelayReply>,
}

pub(super) enum RelayReply {
    Taken(SessionId, Vec<Delivery>),
    Plain(DriverReply),
}

impl PendingReply {
    /// The reply, with the id and weight of its request.
    pub(super) async fn answered(self) -> (RequestId, usize, RelayReply) {
        (self.id, self.weight, self.answer.await)
    }
}

impl RelayCommand {
    /// The sessions and consumers that it names: they must be the other node's.
    pub(super) fn ids(&self) -> [Option<u64>; 3] {
        let of_kind = |kind: &CreditKind| match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => Some(*consumer),
            CreditKind::Session => None,
        };
        match self {
            Self::Open { session }
            | Self::Close { session }
            | Self::Limit { session, .. }
            | Self::Take { session, .. }
            | Self::Settle { session, .. }
            | Self::Present { session, .. }
            | Self::Transfer { session, .. }
            | Self::TransferWith { session, .. }
            | Self::Withhold { session, .. }
            | Self::Restore { session, .. }
            | Self::Read { session, .. } => [Some(*session), None, None],
            Self::Consume { session, consumer, .. }
            | Self::Grant { session, consumer, .. }
            | Self::SetCredit { session, consumer, .. }
            | Self::Cancel { session, consumer, .. } => [Some(*session), Some(*consumer), None],
            Self::Lend { session, kind, .. } | Self::Share { session, kind, .. } => {
                [Some(*session), of_kind(kind), None]
            }
            Self::CancelTake { .. } | Self::Query { .. } | Self::Presented => [None; 3],
        }
    }
}

fn with_reply(
    id: RequestId,
    weight: usize,
    message: Message,
    answer: impl Future<Output = DriverReply> + Send + 'static,
) -> DriverMessage {
    let answer = answer.map(RelayReply::Plain).boxed();
    let pending = PendingReply { id, weight: weight + REQUEST_BYTES, answer };
    DriverMessage::Request(RelayedRequest { message, pending, waits_for: None })
}

/// The reply, or [`DriverReply::None`] if the driver ends without one.
async fn or_none<T>(
    answer: oneshot::Receiver<T>,
    of: impl FnOnce(T) -> DriverReply,
) -> DriverReply {
    answer.await.map_or(DriverReply::None, of)
}

pub(super) fn driver_message(
    command: RelayCommand,
    body: &mut Bytes,
) -> Result<DriverMessage, MalformedFrame> {
    Ok(match command {
        RelayCommand::Limit { session, records } => {
            DriverMessage::OneWay(Message::Limit { session, records })
        }
        RelayCommand::Lend { session, kind, loan } => {
            DriverMessage::OneWay(Message::Lend { session, kind, loan })
        }
        RelayCommand::Grant { session, consumer, credit } => {
            DriverMessage::OneWay(Message::Grant { session, consumer, credit })
        }
        RelayCommand::SetCredit { session, consumer, credit } => {
            DriverMessage::OneWay(Message::SetCredit { session, consumer, credit })
        }
        RelayCommand::Share { session, kind, change } => {
            DriverMessage::OneWay(Message::Share { session, kind, change })
        }
        RelayCommand::Consume { id, session, consumer, group, options } => {
            let (reply, answer) = oneshot::channel();
            let joining = ConsumerRegistration { consumer, options, divided: Vec::new() };
            let message = Message::Consume { session, group, joining, reply };
            with_reply(id, 0, message, or_none(answer, DriverReply::Consumed))
        }
        RelayCommand::Cancel { id, session, consumer } => {
            let (reply, answer) = oneshot::channel();
            let message = Message::Cancel { session, consumer, reply };
            with_reply(id, 0, message, or_none(answer, |()| DriverReply::Cancelled))
        }
        RelayCommand::Take { id, session, group, options } => {
            let (reply, answer) = oneshot::channel();
            let (waits, cancelled) = oneshot::channel();
            let message = Message::Take { session, group, options, reply };
            let answer = take_reply(session, answer, cancelled).boxed();
            let pending = PendingReply { id, weight: REQUEST_BYTES, answer };
            DriverMessage::Request(RelayedRequest {
                message,
                pending,
                waits_for: Some((id, waits)),
            })
        }
        RelayCommand::Settle { id, session, settles } => {
            let (reply, answer) = oneshot::channel();
            let items = settles.len();
            let message = Message::Settle { session, settles, again: false, reply: reply.into() };
            match id {
                Some(id) => {
                    let weight = items * SETTLE_BYTES;
                    with_reply(id, weight, message, or_none(answer, DriverReply::Settled))
                }
                None => DriverMessage::OneWay(message),
            }
        }
        RelayCommand::Transfer { id, session, settles, batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = joined(batches, body)?;
            let weight = settles.len() * SETTLE_BYTES + bytes_of(&batches);
            let elsewhere = BTreeMap::new();
            let message = Message::Transfer { session, settles, batches, elsewhere, reply };
            with_reply(id, weight, message, transferred(answer))
        }
        RelayCommand::TransferWith { id, session, settles, batches, elsewhere } => {
            let (reply, answer) = oneshot::channel();
            let batches = joined(batches, body)?;
            let others = elsewhere.values().flat_map(|it| &it.settles);
            let of_others: usize = others.map(GroupSettle::weight).sum();
            let weight = settles.len() * SETTLE_BYTES + bytes_of(&batches) + of_others;
            let message = Message::Transfer { session, settles, batches, elsewhere, reply };
            with_reply(id, weight, message, transferred(answer))
        }
        RelayCommand::Withhold { id, session, settles } => {
            let (reply, answer) = oneshot::channel();
            let weight = settles.len() * SETTLE_BYTES;
            let message = Message::Withhold { session, settles, reply };
            with_reply(id, weight, message, withheld(answer))
        }
        RelayCommand::Restore { session, preparation, is_refused } => {
            DriverMessage::OneWay(Message::Restore { session, preparation, is_refused })
        }
        RelayCommand::Query { id, query } => query_message(id, query, body)?,
        // Handled by the relay itself.
        RelayCommand::Open { .. }
        | RelayCommand::Close { .. }
        | RelayCommand::Present { .. }
        | RelayCommand::Presented
        | RelayCommand::Read { .. }
        | RelayCommand::CancelTake { .. } => {
            return Err(MalformedFrame::Invalid);
        }
    })
}

fn query_message(
    id: RequestId,
    query: OperatorRequest,
    body: &mut Bytes,
) -> Result<DriverMessage, MalformedFrame> {
    Ok(match query {
        OperatorRequest::Counters { group } => {
            let (reply, answer) = oneshot::channel();
            let query = DriverQuery::Counters { group, reply };
            with_reply(id, 0, Message::Query(query), or_none(answer, DriverReply::Counters))
        }
        OperatorRequest::Unsettled { group, partition, from, records_max } => {
            let (reply, answer) = oneshot::channel();
            let records_max = records_max as usize;
            let query = DriverQuery::Unsettled { group, partition, from, records_max, reply };
            with_reply(id, 0, Message::Query(query), or_none(answer, DriverReply::Unsettled))
        }
        OperatorRequest::Leases { group, after, leases_max } => {
            let (reply, answer) = oneshot::channel();
            let leases_max = leases_max as usize;
            let query = DriverQuery::Leases { group, after, leases_max, reply };
            with_reply(id, 0, Message::Query(query), or_none(answer, DriverReply::Leases))
        }
        OperatorRequest::Purge { group } => {
            let ((reply, answer), (durable, settled)) = (oneshot::channel(), oneshot::channel());
            let query = DriverQuery::Purge { group, durable, reply };
            with_reply(id, 0, Message::Query(query), async {
                match answer.await {
                    Ok(Ok(purged)) => DriverReply::Purged(Ok((purged, became(settled).await))),
                    Ok(Err(error)) => DriverReply::Purged(Err(error)),
                    Err(_) => DriverReply::Purged(Err(unanswered())),
                }
            })
        }
        OperatorRequest::Remove { group, partition, offset } => {
            let ((reply, answer), (durable, settled)) = (oneshot::channel(), oneshot::channel());
            let query = DriverQuery::Remove { group, partition, offset, durable, reply };
            with_reply(id, 0, Message::Query(query), async {
                match answer.await {
                    Ok(Ok(())) => DriverReply::Removed(Ok(became(settled).await)),
                    Ok(Err(error)) => DriverReply::Removed(Err(error)),
                    Err(_) => DriverReply::Removed(Err(unanswered())),
                }
            })
        }
        OperatorRequest::Free { group, partition, offsets } => {
            let (reply, answer) = oneshot::channel();
            let weight = offsets.len() * size_of::<u64>();
            let query = DriverQuery::Free { group, partition, offsets, reply };
            with_reply(id, weight, Message::Query(query), or_none(answer, DriverReply::Free))
        }
        OperatorRequest::MoveAway { group, partition, offsets, batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = joined(batches, body)?;
            let weight = bytes_of(&batches);
            let query = DriverQuery::MoveAway { group, partition, offsets, batches, reply };
            with_reply(id, weight, Message::Query(query), transferred(answer))
        }
    })
}

fn joined(batches: Vec<Batch>, body: &mut Bytes) -> Result<Vec<AppendBatch>, MalformedFrame> {
    wire::take(batches, body).ok_or(MalformedFrame::Records)
}

fn bytes_of(batches: &[AppendBatch]) -> usize {
    batches.iter().map(|batch| batch.bytes.len()).sum()
}

fn unanswered() -> RemoveError {
    RemoveError::Unavailable(Unavailable::Unanswered)
}

/// Result of an operator's change: an error if its outcome is unknown.
async fn became(settled: oneshot::Receiver<SettleResults>) -> SettleResults {
    settled.await.unwrap_or_else(|_| vec![Err(Unavailable::Unanswered.into())])
}

/// The reply is sent once batches for other shards have arrived there.
async fn transferred(answer: oneshot::Receiver<TransferResult>) -> DriverReply {
    let result = match answer.await {
        Ok(Ok(moved)) => moved.arrived().await.map_err(TransferError::from),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Unavailable::Unanswered.into()),
    };
    DriverReply::Transferred(result.map_err(Into::into))
}

async fn withheld(answer: oneshot::Receiver<WithholdResult>) -> DriverReply {
    let result = answer.await.unwrap_or_else(|_| Err(Unavailable::Unanswered.into()));
    DriverReply::Withheld(result.map(Into::into).map_err(Into::into))
}

async fn take_reply(
    session: SessionId,
    mut answer: oneshot::Receiver<Result<Vec<Delivery>, TakeError>>,
    cancelled: oneshot::Receiver<()>,
) -> RelayReply {
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer.ok(),
        // From here on the driver cannot send any more, unless it has sent just now.
        _ = cancelled => {
            answer.close();
            Some(answer.try_recv().unwrap_or_else(|_| Ok(Vec::new())))
        }
    };
    match answer {
        Some(Ok(deliveries)) => RelayReply::Taken(session, deliveries),
        Some(Err(error)) => RelayReply::Plain(DriverReply::Taken(Err(error))),
        None => RelayReply::Plain(DriverReply::Taken(Err(Unavailable::Unanswered.into()))),
    }
}
