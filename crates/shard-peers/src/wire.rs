//! Encoding of requests and replies in a message: the head has the request or reply, and the body its batches, one
//! after the other.

use std::collections::BTreeSet;

use base::{Level, Offset, PartitionId, ShardId};
use bytes::{Bytes, BytesMut};
use dispatch::SessionId;
use links::{Message, NodeId, ReceivedMessage};
use machine::moves::MOVES_SINCE;
use machine::{Command, MessageCommand, MoveStep, Origin, Outcome, RowSequence};
use record::verify_checksum;
use serde::{Deserialize, Serialize};
use shard::append::{AppendBatch, Appends};
use shard::barrier::CatalogVersions;
use shard::delivery::history::{HistoryQuery, HistoryReply, SessionUser};
use shard::error::{AppendError, ExecuteError, FetchError, Unavailable};
use shard::receipts::Receipt;
use shard::request::{self, CommandReply, ReceiveError, Request};
use tokio::sync::oneshot;

use crate::backup_parts::{BackupError, BackupPart, BackupStep};
use crate::group_status::GroupStatus;
use crate::shard_query::{ShardQuery, ShardQueryReply};
use crate::stored_status::StoredStatus;

mod backups;
mod members;
mod nodes;
mod rows;

pub use backups::encode_backup_reply;
pub(crate) use backups::{backed_up, encode_backup_request};
pub use members::encode_members_reply;
pub(crate) use members::{encode_members_request, members};
pub use nodes::*;
pub use rows::encode_rows_reply;
pub(crate) use rows::{decode_rows_reply, encode_rows_request};

/// A request to a shard's leader, or to a node. A variant is only ever added at the end.
#[derive(Debug, Serialize, Deserialize)]
enum RemoteRequest {
    Append {
        batches: Vec<Batch>,
    },
    Receive {
        from: ShardId,
        number: Offset,
        next: Offset,
        batches: Vec<Batch>,
    },
    Execute {
        command: Command,
    },
    /// The rest of the head belongs to a relay of lease sessions.
    Relay,
    /// To the catalog's leader: the newest version.
    CatalogVersions,
    /// Whether the node's disk is fit to lead on.
    WouldLead,
    /// To a shard's leader: the index up to which its log is applied, including all that was acknowledged before.
    ReadIndex,
    /// State of the groups of the node's shards.
    Groups,
    /// Findings about the node's stored data.
    Stored,
    /// To a shard's leader: transfer leadership to node `to`.
    HandOver {
        to: u64,
    },
    /// The node's knowledge of a record.
    Look(HistoryQuery),
    /// The users of these sessions of the node.
    SessionUsers(Vec<SessionId>),
    /// A part of a partition that moves to the shard.
    Import {
        step: MoveStep,
        batches: Vec<Batch>,
    },
    /// To a shard's leader: a query about its rows.
    Rows(ShardQuery),
    /// To a shard's leader: the committed and pending members of the group.
    Members,
    /// To a member of a shard's group: a step of a backup that another node sends.
    BackUp {
        backup: u64,
        step: BackupStep,
    },
    /// As `Append`, with the number of the first row.
    Bring {
        incarnation: u64,
        number: u64,
        batches: Vec<Batch>,
    },
    /// To any node: follow the catalog's log up to this index, then reply.
    FollowCatalog {
        index: u64,
    },
    /// As `Receive`, with commands.
    ReceiveWith {
        from: ShardId,
        number: Offset,
        next: Offset,
        batches: Vec<Batch>,
        commands: Vec<MessageCommand>,
    },
}

base::levels!(RemoteRequest {
    Level::FIRST => Append | Receive | Relay | CatalogVersions | WouldLead | ReadIndex
        | Groups | Stored | HandOver | Look | SessionUsers;
    MOVES_SINCE => Import;
    Level::REPLICAS => Members | BackUp;
    Level::NUMBERED => Bring;
    Level::PROPAGATION => FollowCatalog;
    Level::MESSAGE_COMMANDS => ReceiveWith;
    @ Self::Rows(question) => question.level();
    @ Self::Execute { command } => command.level();
});

impl RemoteRequest {
    /// Builds the request; the receiver knows the sending node, so its id is left out.
    fn appends(batches: Vec<Batch>, from: Option<RowSequence>) -> Self {
        match from {
            Some(RowSequence { incarnation, number, .. }) => {
                Self::Bring { incarnation, number, batches }
            }
            None => Self::Append { batches },
        }
    }
}

/// A batch without its bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Batch {
    partition: PartitionId,
    also: Vec<PartitionId>,
    expect: Option<Offset>,
    bytes: u32,
}

/// A variant is only ever added at the end.
#[derive(Debug, Serialize, Deserialize)]
enum RemoteReply {
    Append(Appends),
    Receive(Result<Receipt, ReceiveError>),
    Execute {
        /// Index up to which the shard's log was applied when the reply was sent.
        index: u64,
        result: Result<Outcome, ExecuteError>,
    },
    CatalogVersions(Result<CatalogVersions, Unavailable>),
    WouldLead(bool),
    ReadIndex(Result<u64, Unavailable>),
    Groups(Vec<GroupStatus>),
    Stored(StoredStatus),
    /// The error is the reason why it still leads.
    HandOver(Result<(), String>),
    Looked(HistoryReply),
    SessionUsers(Vec<Option<SessionUser>>),
    /// Batches of the reply are in the body.
    Rows(Result<ShardQueryReply, FetchError>),
    Members(Result<BTreeSet<u64>, Unavailable>),
    /// Bytes are in the body.
    BackedUp(Result<BackupPart, BackupError>),
    /// False: the node is behind, and knows it.
    FollowsCatalog(bool),
}

base::levels!(RemoteReply {
    Level::FIRST => Append | Receive | Execute | CatalogVersions | WouldLead | ReadIndex | Groups
        | Stored | HandOver | Looked | SessionUsers;
    Level::REPLICAS => Rows | Members | BackedUp;
    Level::PROPAGATION => FollowsCatalog;
});

/// A request awaiting the reply of another node.
#[derive(Debug)]
pub enum PendingRemoteRequest {
    Append { rows: usize, reply: oneshot::Sender<Appends> },
    Receive(oneshot::Sender<Result<Receipt, ReceiveError>>),
    Execute(CommandReply),
}

/// A command was executed or rejected; its reply is still to be sent.
#[derive(Debug)]
pub struct ExecutedCommand {
    pub(crate) index: u64,
    pub(crate) reply: CommandReply,
    pub(crate) result: Result<Outcome, ExecuteError>,
}

/// A request to this node's log, awaiting its result.
#[derive(Debug)]
pub enum PendingLogRequest {
    Append(oneshot::Receiver<Appends>),
    Receive(oneshot::Receiver<Result<Receipt, ReceiveError>>),
    Execute(oneshot::Receiver<Result<Outcome, ExecuteError>>),
}

/// A decoded request of another node.
#[derive(Debug)]
pub enum DecodedRequest {
    /// A request to a shard's log.
    Request(Request, PendingLogRequest),
    /// The rest of the head, and the body.
    Relay(Bytes, Bytes),
    CatalogVersions,
    WouldLead,
    FollowCatalog(u64),
    ReadIndex,
    Groups,
    Stored,
    /// The node that is to lead.
    HandOver(u64),
    Look(HistoryQuery),
    SessionUsers(Vec<SessionId>),
    Rows(ShardQuery),
    Members,
    BackUp(u64, BackupStep),
}

/// Returns the first bytes of a relay message's head.
pub fn relay_head() -> &'static [u8] {
    &[3]
}

/// Encodes a request; returns it if it is for this node only.
#[expect(clippy::result_large_err, reason = "it is moved once, and is no error")]
pub(crate) fn encode(request: Request) -> Result<(Message, PendingRemoteRequest), Request> {
    let (asked, body, awaiting) = match request {
        Request::Append { batches, from, reply } => {
            let rows = batches.iter().map(AppendBatch::rows).sum();
            let (batches, body) = divide(batches);
            (
                RemoteRequest::appends(batches, from),
                body,
                PendingRemoteRequest::Append { rows, reply },
            )
        }
        Request::Receive { message: request::Message { origin, batches, commands }, reply } => {
            let (batches, body) = divide(batches);
            let Origin { shard: from, number, next } = origin;
            let asked = match commands.is_empty() {
                true => RemoteRequest::Receive { from, number, next, batches },
                false => RemoteRequest::ReceiveWith { from, number, next, batches, commands },
            };
            (asked, body, PendingRemoteRequest::Receive(reply))
        }
        Request::Execute { command, reply } => {
            (RemoteRequest::Execute { command }, Vec::new(), PendingRemoteRequest::Execute(reply))
        }
        Request::Import { step, batches, reply } => {
            let (batches, body) = divide(batches);
            (RemoteRequest::Import { step, batches }, body, PendingRemoteRequest::Execute(reply))
        }
        Request::Unit { .. }
        | Request::KeepMembers { .. }
        | Request::Settle(_)
        | Request::MayWait(_)
        | Request::Closing => return Err(request),
    };
    Ok((Message { head: bytes_of(&asked), body }, awaiting))
}

pub fn divide(batches: Vec<AppendBatch>) -> (Vec<Batch>, Vec<Bytes>) {
    let apart = |batch: AppendBatch| {
        let AppendBatch { partition, also, expect, bytes, .. } = batch;
        // A batch is far shorter than 4 GiB (`BATCH_BYTES_MAX`).
        (Batch { partition, also, expect, bytes: bytes.len() as u32 }, bytes.freeze())
    };
    batches.into_iter().map(apart).unzip()
}

/// Encodes batches whose bytes are kept apart, so that they can be sent again.
pub fn encode_append_request(
    batches: &[AppendBatch],
    bytes: &[Bytes],
    from: Option<RowSequence>,
) -> Message {
    let apart = |(batch, bytes): (&AppendBatch, &Bytes)| Batch {
        partition: batch.partition,
        also: batch.also.clone(),
        expect: batch.expect,
        bytes: bytes.len() as u32,
    };
    let batches = batches.iter().zip(bytes).map(apart).collect();
    Message { head: bytes_of(&RemoteRequest::appends(batches, from)), body: bytes.to_vec() }
}

pub fn encode_catalog_versions_reply(versions: Result<CatalogVersions, Unavailable>) -> Bytes {
    bytes_of(&RemoteReply::CatalogVersions(versions))
}

pub(crate) fn encode_read_index_request() -> Message {
    Message { head: bytes_of(&RemoteRequest::ReadIndex), body: Vec::new() }
}

pub fn encode_read_index_reply(index: Result<u64, Unavailable>) -> Bytes {
    bytes_of(&RemoteReply::ReadIndex(index))
}

/// Decodes the leader's reply.
pub(crate) fn read_index(answer: &[u8]) -> Result<u64, Unavailable> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::ReadIndex(index)) => index.map_err(elsewhere),
        _ => Err(Unavailable::Unanswered),
    }
}

pub(crate) fn encode_would_lead_request() -> Message {
    Message { head: bytes_of(&RemoteRequest::WouldLead), body: Vec::new() }
}

pub fn encode_would_lead_reply(would: bool) -> Bytes {
    bytes_of(&RemoteReply::WouldLead(would))
}

pub(crate) fn would_lead(answer: &[u8]) -> Option<bool> {
    match postcard::from_bytes(answer) {
        Ok(RemoteReply::WouldLead(would)) => Some(would),
        _ => None,
    }
}

/// Decodes a request of another node; `None` if it is unknown or malformed.
pub fn decode(message: ReceivedMessage, asker: NodeId) -> Option<DecodedRequest> {
    let ReceivedMessage { head, body } = message;
    let (asked, rest) = postcard::take_from_bytes(&head).ok()?;
    let (request, asking) = match asked {
        RemoteRequest::Relay => return Some(DecodedRequest::Relay(head.slice_ref(rest), body)),
        RemoteRequest::Append { batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = join(batches, body)?;
            (Request::Append { batches, from: None, reply }, PendingLogRequest::Append(answer))
        }
        RemoteRequest::Bring { incarnation, number, batches } => {
            let (reply, answer) = oneshot::channel();
            let (batches, node) = (join(batches, body)?, u32::try_from(asker.0).ok()?);
            let from = Some(RowSequence { node, incarnation, number });
            (Request::Append { batches, from, reply }, PendingLogRequest::Append(answer))
        }
        RemoteRequest::Receive { from, number, next, batches } => {
            let (reply, answer) = oneshot::channel();
            let origin = Origin { shard: from, number, next };
            let (batches, commands) = (join(batches, body)?, Vec::new());
            let message = request::Message { origin, batches, commands };
            (Request::Receive { message, reply }, PendingLogRequest::Receive(answer))
        }
        RemoteRequest::ReceiveWith { from, number, next, batches, commands } => {
            let (reply, answer) = oneshot::channel();
            let origin = Origin { shard: from, number, next };
            let message = request::Message { origin, batches: join(batches, body)?, commands };
            (Request::Receive { message, reply }, PendingLogRequest::Receive(answer))
        }
        RemoteRequest::Execute { command } => {
            let (reply, answer) = oneshot::channel();
            (Request::Execute { command, reply }, PendingLogRequest::Execute(answer))
        }
        RemoteRequest::Import { step, batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = join(batches, body)?;
            (Request::Import { step, batches, reply }, PendingLogRequest::Execute(answer))
        }
        RemoteRequest::CatalogVersions => return Some(DecodedRequest::CatalogVersions),
        RemoteRequest::WouldLead => return Some(DecodedRequest::WouldLead),
        RemoteRequest::FollowCatalog { index } => {
            return Some(DecodedRequest::FollowCatalog(index));
        }
        RemoteRequest::ReadIndex => return Some(DecodedRequest::ReadIndex),
        RemoteRequest::Groups => return Some(DecodedRequest::Groups),
        RemoteRequest::Stored => return Some(DecodedRequest::Stored),
        RemoteRequest::HandOver { to } => return Some(DecodedRequest::HandOver(to)),
        RemoteRequest::Look(look) => return Some(DecodedRequest::Look(look)),
        RemoteRequest::SessionUsers(sessions) => {
            return Some(DecodedRequest::SessionUsers(sessions));
        }
        RemoteRequest::Rows(question) => return Some(DecodedRequest::Rows(question)),
        RemoteRequest::Members => return Some(DecodedRequest::Members),
        RemoteRequest::BackUp { backup, step } => {
            return Some(DecodedRequest::BackUp(backup, step));
        }
    };
    Some(DecodedRequest::Request(request, asking))
}

fn join(batches: Vec<Batch>, mut body: Bytes) -> Option<Vec<AppendBatch>> {
    let joined = take(batches, &mut body)?;
    body.is_empty().then_some(joined)
}

/// Takes the batches at the front of the body. The links do not check a body: the batches' own checksums do.
pub fn take(batches: Vec<Batch>, body: &mut Bytes) -> Option<Vec<AppendBatch>> {
    let mut joined = Vec::with_capacity(batches.len().min(body.len()));
    for Batch { partition, also, expect, bytes } in batches {
        let length = bytes as usize;
        if length > body.len() {
            return None;
        }
        // Copied, because the leader writes into a batch's bytes, which must not be shared.
        let bytes = BytesMut::from(&body.split_to(length)[..]);
        let header = verify_checksum(&bytes).ok()?;
        joined.push(AppendBatch { also, expect, ..AppendBatch::new(partition, header, bytes) });
    }
    Some(joined)
}

impl PendingLogRequest {
    /// Returns the encoded result, with the applied index of the shard's log.
    pub async fn answer(self, applied: impl Fn() -> u64) -> Option<Bytes> {
        let answer = match self {
            Self::Append(answer) => RemoteReply::Append(answer.await.ok()?),
            Self::Receive(answer) => RemoteReply::Receive(answer.await.ok()?),
            Self::Execute(answer) => {
                let result = answer.await.ok()?;
                RemoteReply::Execute { index: applied(), result }
            }
        };
        Some(bytes_of(&answer))
    }
}

impl PendingRemoteRequest {
    /// Sends the result to the waiting request. The result of a command is returned to the caller, who sends it.
    pub fn answered(self, answer: &[u8]) -> Option<ExecutedCommand> {
        match (self, postcard::from_bytes(answer)) {
            (Self::Append { rows, reply }, Ok(RemoteReply::Append(answers)))
                if answers.len() == rows =>
            {
                let answers = answers.into_iter().map(|answer| answer.map_err(elsewhere_append));
                let _ = reply.send(answers.collect());
                None
            }
            (Self::Receive(reply), Ok(RemoteReply::Receive(answer))) => {
                let _ = reply.send(answer.map_err(|error| match error {
                    ReceiveError::Refused(error) => ReceiveError::Refused(elsewhere_append(error)),
                    error @ ReceiveError::OutOfOrder { .. } => error,
                }));
                None
            }
            (Self::Execute(reply), Ok(RemoteReply::Execute { index, result })) => {
                let result = result.map_err(|error| match error {
                    ExecuteError::Unavailable(why) => elsewhere(why).into(),
                    error @ ExecuteError::Refused(_) => error,
                });
                Some(ExecutedCommand { index, reply, result })
            }
            // An unknown reply, of a node of a later version.
            (awaiting, _) => {
                awaiting.fail(&Unavailable::Unanswered);
                None
            }
        }
    }

    pub fn fail(self, why: &Unavailable) {
        match self {
            Self::Append { rows, reply } => {
                let _ = reply.send(vec![Err(why.clone().into()); rows]);
            }
            Self::Receive(reply) => {
                let _ = reply.send(Err(ReceiveError::Refused(why.clone().into())));
            }
            Self::Execute(reply) => {
                let _ = reply.send(Err(why.clone().into()));
            }
        }
    }
}

pub fn elsewhere_append(error: AppendError) -> AppendError {
    match error {
        AppendError::Unavailable(why) => elsewhere(why).into(),
        error => error,
    }
}

/// Maps errors of another node: that it stops or has failed does not stop this one, since a third may lead next.
pub fn elsewhere(why: Unavailable) -> Unavailable {
    match why {
        Unavailable::Stopping | Unavailable::Failed(_) => Unavailable::Unanswered,
        why @ (Unavailable::NotLeader | Unavailable::Unanswered) => why,
    }
}

fn bytes_of(value: &impl Serialize) -> Bytes {
    postcard::to_stdvec(value).expect("what is asked and answered can be written").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_a_relay_message_differs_from_all_requests() {
        assert_eq!(bytes_of(&RemoteRequest::Relay), relay_head());
        let head = [relay_head(), b"the rest"].concat().into();
        let received = ReceivedMessage { head, body: Bytes::from_static(b"body") };
        let Some(DecodedRequest::Relay(rest, body)) = decode(received, NodeId(2)) else {
            panic!("a relay's")
        };
        assert_eq!((&rest[..], &body[..]), (&b"the rest"[..], &b"body"[..]));
    }
}
