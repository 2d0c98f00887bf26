//! Messages of a relay: from sessions of one node to the driver of another, and back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::RELAY_TAKE_BYTES_MAX;
use base::limits::{FETCH_WAIT_MAX, OPERATION_RECORDS_MAX};
use base::{LeaseGroupId, Level, Offset, ShardId};
use bytes::Bytes;
use dispatch::{Claim, ConsumerId, LeaseView, RecordInfo, Selection, SessionId};
use machine::Preparation;
use serde::{Deserialize, Serialize};
use shard::append::AppendedBatch;
use shard::delivery::borrowed_credit::BorrowedCreditState;
use shard::delivery::divided_credit::{Change, CreditKind, Notice};
use shard::delivery::error::{ConsumeError, RemoveError, SettleError, TakeError, TransferError};
use shard::delivery::event::GoneReason;
use shard::delivery::handle::{SettleResults, SettlesElsewhere, WithheldSettles};
use shard::delivery::inspect::Counters;
use shard::delivery::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use shard::error::{AppendError, Unavailable};
use shard_peers::wire::{self, Batch, divide};

use super::delivery_runs::DeliveryRuns;

/// Matches a reply to its request.
pub(super) type RequestId = u64;

/// A message to the leader's driver. A variant is only ever added at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RelayCommand {
    Open {
        session: SessionId,
    },
    Close {
        session: SessionId,
    },
    Limit {
        session: SessionId,
        records: Option<u32>,
    },
    Consume {
        id: RequestId,
        session: SessionId,
        consumer: ConsumerId,
        group: LeaseGroupId,
        options: ConsumeOptions,
    },
    Lend {
        session: SessionId,
        kind: CreditKind,
        loan: BorrowedCreditState,
    },
    Grant {
        session: SessionId,
        consumer: ConsumerId,
        credit: Credit,
    },
    SetCredit {
        session: SessionId,
        consumer: ConsumerId,
        credit: Credit,
    },
    Share {
        session: SessionId,
        kind: CreditKind,
        change: Change,
    },
    Cancel {
        id: RequestId,
        session: SessionId,
        consumer: ConsumerId,
    },
    Take {
        id: RequestId,
        session: SessionId,
        group: LeaseGroupId,
        options: TakeOptions,
    },
    /// Cancels that take.
    CancelTake {
        id: RequestId,
    },
    Settle {
        /// `None`: no reply is needed.
        id: Option<RequestId>,
        session: SessionId,
        settles: Vec<Settle>,
    },
    Transfer {
        id: RequestId,
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<Batch>,
    },
    /// The session has read this many bytes of deliveries.
    Read {
        session: SessionId,
        bytes: u64,
    },
    Query {
        id: RequestId,
        query: OperatorRequest,
    },
    /// The session's leases of an earlier leader; deadlines are remaining times.
    Present {
        session: SessionId,
        group: LeaseGroupId,
        claims: Vec<Claim>,
    },
    /// All sessions and leases of the relay's beginning have been sent.
    Presented,
    /// As `Transfer`, with settles that the drivers of other shards withhold.
    TransferWith {
        id: RequestId,
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<Batch>,
        elsewhere: BTreeMap<ShardId, SettlesElsewhere>,
    },
    Withhold {
        id: RequestId,
        session: SessionId,
        settles: Vec<Settle>,
    },
    Restore {
        session: SessionId,
        preparation: Preparation,
        is_refused: bool,
    },
}

base::levels!(RelayCommand {
    Level::FIRST => Open | Close | Limit | Consume | Lend | Grant | SetCredit | Share | Cancel
        | Take | CancelTake | Settle | Transfer | Read | Query | Present | Presented;
    Level::MESSAGE_COMMANDS => TransferWith | Withhold | Restore;
});

/// Operators' requests ([`shard::delivery::handle::DriverQuery`]).
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum OperatorRequest {
    Counters { group: LeaseGroupId },
    Unsettled { group: LeaseGroupId, partition: u32, from: Offset, records_max: u32 },
    Leases { group: LeaseGroupId, after: Option<(u32, Offset)>, leases_max: u32 },
    Purge { group: LeaseGroupId },
    Remove { group: LeaseGroupId, partition: u32, offset: Offset },
    Free { group: LeaseGroupId, partition: u32, offsets: Vec<Offset> },
    MoveAway { group: LeaseGroupId, partition: u32, offsets: Vec<Offset>, batches: Vec<Batch> },
}

/// A message to sessions of the other node. A variant is only ever added at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RelayNotification {
    Deliveries {
        session: SessionId,
        /// Bytes that it counts, until [`RelayCommand::Read`] reports them as read.
        weight: u64,
        runs: DeliveryRuns,
    },
    Active {
        session: SessionId,
        consumer: ConsumerId,
        active: bool,
    },
    Gone {
        session: SessionId,
        consumer: ConsumerId,
        reason: GoneReason,
    },
    Notice {
        session: SessionId,
        notice: Notice,
    },
    Answer {
        id: RequestId,
        answer: DriverReply,
    },
}

base::levels!(RelayNotification {
    Level::FIRST => Deliveries | Active | Gone | Notice | Answer;
});

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DriverReply {
    Consumed(Result<bool, ConsumeError>),
    Cancelled,
    Taken(Result<DeliveryRuns, TakeError>),
    Settled(SettleResults),
    Transferred(Result<Vec<Option<AppendedBatch>>, TransferRefusal>),
    Counters(Option<Counters>),
    Unsettled(Option<Vec<RecordInfo>>),
    Leases(Vec<LeaseView>),
    /// With the results of its settles.
    Purged(Result<(u64, SettleResults), RemoveError>),
    Removed(Result<SettleResults, RemoveError>),
    Free(Option<Vec<bool>>),
    /// The driver has ended without a reply.
    None,
    Withheld(Result<WithheldItems, TransferRefusal>),
}

/// See [`WithheldSettles`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WithheldItems {
    settles: SettlesElsewhere,
    /// Each with its bytes: they are few.
    dead_letters: Vec<(Batch, Vec<u8>)>,
}

impl From<WithheldSettles> for WithheldItems {
    fn from(withheld: WithheldSettles) -> Self {
        let WithheldSettles { settles, dead_letters } = withheld;
        let (batches, bytes) = divide(dead_letters);
        let bytes = bytes.into_iter().map(Vec::from);
        Self { settles, dead_letters: batches.into_iter().zip(bytes).collect() }
    }
}

impl WithheldItems {
    /// `None` if it has an invalid batch.
    pub(super) fn settles(self) -> Option<WithheldSettles> {
        let Self { settles, dead_letters } = self;
        let mut read = Vec::new();
        for (batch, bytes) in dead_letters {
            read.extend(wire::take(vec![batch], &mut Bytes::from(bytes))?);
        }
        Some(WithheldSettles { settles, dead_letters: read })
    }
}

impl DriverReply {
    /// Whether the reply to a settle only means that the node no longer leads.
    pub(super) fn is_of_lost_leader(&self) -> bool {
        let is_unknown =
            |result: &Result<(), SettleError>| matches!(result, Err(SettleError::Unavailable(_)));
        match self {
            Self::None => true,
            Self::Settled(results) => results.iter().any(is_unknown),
            _ => false,
        }
    }
}

/// Why a driver refused a transfer; it has no parts in other shards.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum TransferRefusal {
    Settle { item: u64, source: SettleError },
    Append { batch: u64, source: AppendError },
    Unavailable(Unavailable),
}

impl From<TransferError> for TransferRefusal {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Settle { item, source } => Self::Settle { item: item as u64, source },
            TransferError::Append { batch, source } => Self::Append { batch: batch as u64, source },
            TransferError::Unavailable(why) => Self::Unavailable(why),
            // A driver knows its own shard only.
            TransferError::Partly(_) => Self::Unavailable(Unavailable::Unanswered),
        }
    }
}

impl From<TransferRefusal> for TransferError {
    fn from(refused: TransferRefusal) -> Self {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match refused {
            TransferRefusal::Settle { item, source } => Self::Settle { item: place(item), source },
            TransferRefusal::Append { batch, source } => {
                Self::Append { batch: place(batch), source }
            }
            TransferRefusal::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// Offsets are limited to Kafka's `i64`, here as everywhere else.
const OFFSET_MAX: Offset = i64::MAX as Offset;

impl RelayCommand {
    /// Whether a driver may get this: a message that no session of its own node could send is rejected.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Self::Take { options, .. } => {
                options.wait <= FETCH_WAIT_MAX
                    && options.records_max > 0
                    && options.bytes_max <= RELAY_TAKE_BYTES_MAX
                    && options.partitions.is_sorted()
            }
            Self::Settle { settles, .. }
            | Self::Transfer { settles, .. }
            | Self::TransferWith { settles, .. }
            | Self::Withhold { settles, .. } => settles.iter().all(is_valid),
            Self::Present { session, claims, .. } => claims.iter().all(|claim| {
                let (_, offset) = claim.place();
                claim.session() == *session && offset < OFFSET_MAX && claim.deadline_ms() > 0
            }),
            Self::Query { query, .. } => query.is_valid(),
            _ => true,
        }
    }
}

fn is_valid(settle: &Settle) -> bool {
    match settle.what {
        Selection::Lease { .. } | Selection::Held { .. } => true,
        Selection::Range { first, last, .. } => first <= last && last < OFFSET_MAX,
        Selection::UpTo { last, .. } => last < OFFSET_MAX,
    }
}

impl OperatorRequest {
    fn is_valid(&self) -> bool {
        let at_most = OPERATION_RECORDS_MAX as u32;
        match self {
            Self::Counters { .. } | Self::Purge { .. } => true,
            Self::Unsettled { from, records_max, .. } => {
                *from < OFFSET_MAX && *records_max <= at_most
            }
            Self::Leases { after, leases_max, .. } => {
                after.is_none_or(|(_, offset)| offset < OFFSET_MAX) && *leases_max <= at_most
            }
            Self::Remove { offset, .. } => *offset < OFFSET_MAX,
            Self::Free { offsets, .. } | Self::MoveAway { offsets, .. } => {
                offsets.iter().all(|offset| *offset < OFFSET_MAX)
            }
        }
    }
}

/// Options of a take through a relay, with the remaining wait.
pub(super) fn take_options(options: &TakeOptions, wait: Duration) -> TakeOptions {
    TakeOptions {
        records_max: options.records_max.max(1),
        bytes_max: options.bytes_max.min(RELAY_TAKE_BYTES_MAX),
        wait: wait.min(FETCH_WAIT_MAX),
        ..options.clone()
    }
}
