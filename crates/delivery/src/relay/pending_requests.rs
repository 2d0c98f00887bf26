//! Requests that await a reply of the leader's driver, and their fate when the relay ends.

use std::collections::BTreeMap;

use base::limits::OPERATION_RECORDS_MAX;
use base::{LeaseGroupId, ShardId};
use bytes::Bytes;
use dispatch::{ConsumerId, SessionId};
use shard::append::AppendBatch;
use shard::delivery::error::{RemoveError, SettleError, TakeError, TransferError};
use shard::delivery::event::Delivery;
use shard::delivery::handle::{DriverQuery, SettlesElsewhere, TransferResult, WithholdResult};
use shard::delivery::options::{Settle, TakeOptions};
use shard::delivery::settle_reply::{Fold, SettleSender};
use shard::error::{AppendError, Unavailable};
use shard::receipts::UnitResult;
use shard_peers::wire::{Batch, divide, elsewhere, elsewhere_append};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::items::{DriverReply, OperatorRequest, RelayCommand, RequestId, take_options};
use super::leased_records::{LeaseSettles, LeasedRecords};
use crate::takes::TakeReply;

/// A request that awaits a reply.
pub(super) enum PendingRequest {
    /// The reply channel is in the consumer's entry of the registry.
    Consume(ConsumerId),
    Cancel(oneshot::Sender<()>),
    Take(RelayedTake),
    Settle {
        session: SessionId,
        settles: Vec<Settle>,
        /// Settles that are sent in their place when the request is repeated.
        named: Option<LeaseSettles>,
        /// An earlier leader may have applied it.
        again: bool,
        reply: SettleSender,
    },
    Transfer(RelayedTransfer),
    Withhold {
        session: SessionId,
        settles: Vec<Settle>,
        reply: oneshot::Sender<WithholdResult>,
    },
    Query(DriverQuery),
}

/// Its content is here until it is sent.
pub(super) struct RelayedTransfer {
    pub(super) session: SessionId,
    pub(super) settles: Vec<Settle>,
    pub(super) batches: Vec<AppendBatch>,
    pub(super) elsewhere: BTreeMap<ShardId, SettlesElsewhere>,
    pub(super) rows: usize,
    pub(super) reply: oneshot::Sender<TransferResult>,
}

pub(super) struct RelayedTake {
    pub(super) session: SessionId,
    pub(super) group: LeaseGroupId,
    pub(super) options: TakeOptions,
    pub(super) deadline: Instant,
    pub(super) reply: TakeReply,
    pub(super) abandoned: bool,
}

/// The content of a reply, once its records are read.
pub(super) enum ReplyContent {
    Taken(Result<Vec<Delivery>, TakeError>),
    Plain(DriverReply),
}

/// Next action after a reply.
pub(super) enum AfterReply {
    Nothing,
    /// The caller is gone: release these.
    Release(SessionId, Vec<Delivery>),
    /// Repeat it at the next leader; the node that replied does not lead the shard any more.
    Repeat(PendingRequest),
    /// The reply does not fit the request.
    Mismatch,
}

/// The node did not apply the request.
fn is_not_leader(why: &Unavailable) -> bool {
    matches!(why, Unavailable::NotLeader | Unavailable::Stopping)
}

impl PendingRequest {
    /// Returns the message that sends the request. It is repeated only if [`Self::on_lost`] permits it. `leases`:
    /// leases of this node's sessions.
    pub(super) fn command(
        &mut self,
        id: RequestId,
        leases: &LeasedRecords,
        now: Instant,
    ) -> Option<(RelayCommand, Vec<Bytes>)> {
        let mut body = Vec::new();
        let command = match self {
            // The registry sends it.
            Self::Consume(_) | Self::Cancel(_) => return None,
            Self::Take(take) => {
                let (session, group) = (take.session, take.group);
                let wait = take.deadline.saturating_duration_since(now);
                RelayCommand::Take {
                    id,
                    session,
                    group,
                    options: take_options(&take.options, wait),
                }
            }
            Self::Settle { session, settles, named, .. } => {
                *named = leases.named(*session, settles);
                RelayCommand::Settle { id: Some(id), session: *session, settles: settles.clone() }
            }
            Self::Transfer(transfer) => {
                let RelayedTransfer { session, settles, batches, elsewhere, .. } = transfer;
                let (session, settles) = (*session, std::mem::take(settles));
                let batches = divided(batches, &mut body);
                match std::mem::take(elsewhere) {
                    none if none.is_empty() => {
                        RelayCommand::Transfer { id, session, settles, batches }
                    }
                    elsewhere => {
                        RelayCommand::TransferWith { id, session, settles, batches, elsewhere }
                    }
                }
            }
            Self::Withhold { session, settles, .. } => {
                RelayCommand::Withhold { id, session: *session, settles: std::mem::take(settles) }
            }
            Self::Query(query) => {
                RelayCommand::Query { id, query: operator_request(query, &mut body) }
            }
        };
        Some((command, body))
    }

    /// Whether the caller is gone, and the request changes nothing.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Take(take) => take.reply.is_closed(),
            Self::Query(query) => match query {
                DriverQuery::Counters { reply, .. } => reply.is_closed(),
                DriverQuery::Unsettled { reply, .. } => reply.is_closed(),
                DriverQuery::Leases { reply, .. } => reply.is_closed(),
                DriverQuery::Free { reply, .. } => reply.is_closed(),
                DriverQuery::Purge { .. }
                | DriverQuery::Remove { .. }
                | DriverQuery::MoveAway { .. } => false,
            },
            _ => false,
        }
    }

    /// The relay is over. A sent request that changes something may have been applied. Requests that were not
    /// sent are repeated, and so are those that change nothing, or nothing more if they were applied.
    pub(super) fn on_lost(self, sent: bool) -> Option<Self> {
        match self {
            Self::Consume(_) => None,
            Self::Cancel(reply) => {
                let _ = reply.send(());
                None
            }
            Self::Settle { .. } if !sent => Some(self),
            Self::Settle { .. } => Some(self.into_repeat()),
            Self::Transfer(transfer) if sent => {
                let _ = transfer.reply.send(Err(Unavailable::Unanswered.into()));
                None
            }
            Self::Withhold { reply, .. } if sent => {
                let _ = reply.send(Err(Unavailable::Unanswered.into()));
                None
            }
            Self::Query(
                DriverQuery::Purge { .. }
                | DriverQuery::Remove { .. }
                | DriverQuery::MoveAway { .. },
            ) if sent => {
                self.refuse(&Unavailable::Unanswered);
                None
            }
            Self::Take(take) if take.abandoned => None,
            waiting => Some(waiting),
        }
    }

    /// Marks it as a repetition: an earlier leader may have applied it.
    pub(super) fn into_repeat(self) -> Self {
        let Self::Settle { session, mut settles, named, mut reply, .. } = self else { return self };
        if let Some(LeaseSettles { settles: names, counts }) = named {
            settles = names;
            let fold = |count| match count {
                // It had no leases, or they ended meanwhile.
                0 => Fold::Known(Err(Unavailable::Unanswered.into())),
                count => Fold::Next(count),
            };
            reply = reply.folded(counts.into_iter().map(fold).collect());
        }
        Self::Settle { session, settles, named: None, again: true, reply }
    }

    /// The leases that a settle ends, as it was sent.
    pub(super) fn ends(&self) -> Option<(SessionId, &[Settle])> {
        let Self::Settle { session, settles, named, .. } = self else { return None };
        Some((*session, named.as_ref().map_or(settles, |named| &named.settles)))
    }

    /// It timed out, or cannot be sent.
    pub(super) fn refuse(self, why: &Unavailable) {
        match self {
            Self::Consume(_) => {}
            Self::Cancel(reply) => drop(reply.send(())),
            Self::Take(take) => drop(take.reply.send(Err(why.clone().into()))),
            Self::Settle { settles, reply, .. } => {
                reply.send(vec![Err(why.clone().into()); settles.len()]);
            }
            Self::Transfer(transfer) => drop(transfer.reply.send(Err(why.clone().into()))),
            Self::Withhold { reply, .. } => drop(reply.send(Err(why.clone().into()))),
            Self::Query(query) => match query {
                DriverQuery::Purge { reply, .. } => drop(reply.send(Err(why.clone().into()))),
                DriverQuery::Remove { reply, .. } => drop(reply.send(Err(why.clone().into()))),
                DriverQuery::MoveAway { reply, .. } => drop(reply.send(Err(why.clone().into()))),
                // The caller's reply channel is dropped.
                DriverQuery::Counters { .. }
                | DriverQuery::Unsettled { .. }
                | DriverQuery::Leases { .. }
                | DriverQuery::Free { .. } => {}
            },
        }
    }

    pub(super) fn on_answer(self, got: ReplyContent) -> AfterReply {
        match (self, got) {
            (Self::Cancel(to), ReplyContent::Plain(DriverReply::Cancelled)) => drop(to.send(())),
            (Self::Take(take), ReplyContent::Taken(answer)) => return take.on_answer(answer),
            (
                Self::Settle { settles, again, reply, .. },
                ReplyContent::Plain(DriverReply::Settled(results)),
            ) if results.len() == settles.len() => {
                let results = results.into_iter().map(|result| match result {
                    Err(SettleError::NotLeased) if again => Err(Unavailable::Unanswered.into()),
                    result => settled_elsewhere(result),
                });
                reply.send(results.collect());
            }
            (
                Self::Transfer(RelayedTransfer { rows, reply, .. }),
                ReplyContent::Plain(DriverReply::Transferred(result)),
            ) => {
                drop(reply.send(transferred(result.map_err(Into::into), rows)));
            }
            (Self::Withhold { reply, .. }, ReplyContent::Plain(DriverReply::Withheld(result))) => {
                let withheld = result.map_err(|refused| refused_elsewhere(refused.into()));
                let unread = Unavailable::Unanswered;
                let withheld =
                    withheld.and_then(|items| items.settles().ok_or_else(|| unread.into()));
                drop(reply.send(withheld));
            }
            (Self::Query(query), ReplyContent::Plain(answer)) => {
                return on_answer(query, answer);
            }
            (waiting, _) => {
                waiting.refuse(&Unavailable::Unanswered);
                return AfterReply::Mismatch;
            }
        }
        AfterReply::Nothing
    }
}

impl RelayedTake {
    fn on_answer(self, answer: Result<Vec<Delivery>, TakeError>) -> AfterReply {
        match answer {
            Err(TakeError::Unavailable(why)) if is_not_leader(&why) && !self.abandoned => {
                AfterReply::Repeat(PendingRequest::Take(self))
            }
            Err(TakeError::Unavailable(why)) => {
                let _ = self.reply.send(Err(elsewhere(why).into()));
                AfterReply::Nothing
            }
            answer => {
                let session = self.session;
                match self.reply.send(answer) {
                    Err(Ok(deliveries)) if !deliveries.is_empty() => {
                        AfterReply::Release(session, deliveries)
                    }
                    _ => AfterReply::Nothing,
                }
            }
        }
    }
}

fn on_answer(query: DriverQuery, answer: DriverReply) -> AfterReply {
    match (query, answer) {
        (DriverQuery::Counters { reply, .. }, DriverReply::Counters(it)) => drop(reply.send(it)),
        (DriverQuery::Unsettled { reply, .. }, DriverReply::Unsettled(answer)) => {
            drop(reply.send(answer))
        }
        (DriverQuery::Leases { reply, .. }, DriverReply::Leases(answer)) => {
            drop(reply.send(answer))
        }
        (DriverQuery::Purge { reply, durable, .. }, DriverReply::Purged(answer)) => {
            let answer = answer.map(|(purged, settled)| {
                let _ = durable.send(settled.into_iter().map(settled_elsewhere).collect());
                purged
            });
            let _ = reply.send(answer.map_err(removed_elsewhere));
        }
        (DriverQuery::Remove { reply, durable, .. }, DriverReply::Removed(answer)) => {
            let answer = answer.map(|settled| {
                let _ = durable.send(settled.into_iter().map(settled_elsewhere).collect());
            });
            let _ = reply.send(answer.map_err(removed_elsewhere));
        }
        (DriverQuery::Free { reply, offsets, .. }, DriverReply::Free(answer))
            if answer.as_ref().is_none_or(|free| free.len() == offsets.len()) =>
        {
            drop(reply.send(answer));
        }
        (DriverQuery::MoveAway { reply, .. }, DriverReply::Transferred(result)) => {
            let rows = result.as_ref().map_or(0, Vec::len);
            drop(reply.send(transferred(result.map_err(Into::into), rows)));
        }
        // The driver there has ended.
        (query, DriverReply::None) => match PendingRequest::Query(query).on_lost(true) {
            Some(request) => return AfterReply::Repeat(request),
            None => return AfterReply::Nothing,
        },
        (query, _) => {
            PendingRequest::Query(query).refuse(&Unavailable::Unanswered);
            return AfterReply::Mismatch;
        }
    }
    AfterReply::Nothing
}

fn settled_elsewhere(result: Result<(), SettleError>) -> Result<(), SettleError> {
    result.map_err(|error| match error {
        SettleError::Unavailable(why) => elsewhere(why).into(),
        error => error,
    })
}

fn removed_elsewhere(error: RemoveError) -> RemoveError {
    match error {
        RemoveError::Unavailable(why) => elsewhere(why).into(),
        error => error,
    }
}

/// When the leader replies, batches for other shards have arrived there.
fn transferred(
    result: Result<Vec<Option<shard::append::AppendedBatch>>, TransferError>,
    rows: usize,
) -> TransferResult {
    match result {
        Ok(appended) if appended.len() == rows => {
            Ok(UnitResult { rows: appended, sent: Vec::new() })
        }
        Ok(_) => Err(Unavailable::Unanswered.into()),
        Err(error) => Err(refused_elsewhere(error)),
    }
}

fn refused_elsewhere(error: TransferError) -> TransferError {
    match error {
        TransferError::Append { batch, source } => {
            let source: AppendError = elsewhere_append(source);
            TransferError::Append { batch, source }
        }
        TransferError::Unavailable(why) => elsewhere(why).into(),
        error => error,
    }
}

fn divided(batches: &mut Vec<AppendBatch>, body: &mut Vec<Bytes>) -> Vec<Batch> {
    let (apart, bytes) = divide(std::mem::take(batches));
    body.extend(bytes);
    apart
}

fn operator_request(query: &mut DriverQuery, body: &mut Vec<Bytes>) -> OperatorRequest {
    let bounded = |wanted: usize| wanted.min(OPERATION_RECORDS_MAX) as u32;
    match query {
        DriverQuery::Counters { group, .. } => OperatorRequest::Counters { group: *group },
        DriverQuery::Unsettled { group, partition, from, records_max, .. } => {
            OperatorRequest::Unsettled {
                group: *group,
                partition: *partition,
                from: *from,
                records_max: bounded(*records_max),
            }
        }
        DriverQuery::Leases { group, after, leases_max, .. } => OperatorRequest::Leases {
            group: *group,
            after: *after,
            leases_max: bounded(*leases_max),
        },
        DriverQuery::Purge { group, .. } => OperatorRequest::Purge { group: *group },
        DriverQuery::Remove { group, partition, offset, .. } => {
            OperatorRequest::Remove { group: *group, partition: *partition, offset: *offset }
        }
        DriverQuery::Free { group, partition, offsets, .. } => {
            OperatorRequest::Free { group: *group, partition: *partition, offsets: offsets.clone() }
        }
        DriverQuery::MoveAway { group, partition, offsets, batches, .. } => {
            OperatorRequest::MoveAway {
                group: *group,
                partition: *partition,
                offsets: offsets.clone(),
                batches: divided(batches, body),
            }
        }
    }
}

/// All pending requests, in order.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) all: BTreeMap<RequestId, Entry>,
    last: RequestId,
}

pub(super) struct Entry {
    pub(super) waiting: PendingRequest,
    /// It may have reached the leader.
    pub(super) sent: bool,
    /// Deadline while there is no relay.
    pub(super) until: Instant,
}

impl Waiters {
    pub(super) fn add(&mut self, waiting: PendingRequest, until: Instant) -> RequestId {
        self.last += 1;
        self.all.insert(self.last, Entry { waiting, sent: false, until });
        self.last
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<PendingRequest> {
        self.all.remove(&id).map(|entry| entry.waiting)
    }

    /// Queues it again, under its id.
    pub(super) fn requeue(&mut self, id: RequestId, waiting: PendingRequest, until: Instant) {
        self.all.insert(id, Entry { waiting, sent: false, until });
    }

    pub(super) fn on_lost(&mut self, until: Instant) {
        for (id, entry) in std::mem::take(&mut self.all) {
            if let Some(waiting) = entry.waiting.on_lost(entry.sent) {
                self.requeue(id, waiting, until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dispatch::{Selection, Settlement};

    use super::*;

    const RANGE: Selection = Selection::Range { partition: 0, first: 0, last: 9 };

    fn sent_settles(waiting: &mut PendingRequest) -> Vec<Selection> {
        match waiting.command(1, &LeasedRecords::default(), Instant::now()) {
            Some((RelayCommand::Settle { settles, .. }, _)) => {
                settles.iter().map(|it| it.what).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settle_is_repeated_by_token_and_a_range_without_leases_is_unanswered() {
        let lease = Selection::Lease { partition: 0, token: 7 };
        let settle = |what, settlement| Settle { group: LeaseGroupId(1), what, settlement };
        let release = Settlement::Release { delay_ms: None, count: true };
        let settles = vec![
            settle(lease, Settlement::Accept),
            settle(RANGE, release),
            settle(lease, Settlement::Reject),
            settle(RANGE, Settlement::Renew { lease_ms: Some(1) }),
        ];
        let (reply, mut answer) = oneshot::channel();
        let (named, reply) = (None, reply.into());
        let mut waiting =
            PendingRequest::Settle { session: 1, settles, named, again: false, reply };
        assert_eq!(sent_settles(&mut waiting), [lease, RANGE, lease, RANGE]);
        let mut waiting = waiting.on_lost(true).expect("it is repeated");
        assert_eq!(sent_settles(&mut waiting), [lease, lease, RANGE]);
        let waiting = waiting.on_lost(true).expect("it is repeated");
        let results = vec![Err(SettleError::NotLeased), Ok(()), Ok(())];
        let got = ReplyContent::Plain(DriverReply::Settled(results));
        assert!(matches!(waiting.on_answer(got), AfterReply::Nothing));
        let unanswered = || Err(SettleError::Unavailable(Unavailable::Unanswered));
        assert_eq!(answer.try_recv(), Ok(vec![unanswered(), unanswered(), Ok(()), Ok(())]));
    }
}
