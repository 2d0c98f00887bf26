//! Conversion of another node's messages to those of this node's driver, and of the driver's replies.

use bytes::Bytes;
use dispatch::SessionId;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::append::AppendBatch;
use crate::error::Unavailable;
use crate::remote::wire::{self, Batch};

use super::super::divided_credit::CreditKind;
use super::super::error::{RemoveError, TakeError, TransferError};
use super::super::event::Delivery;
use super::super::handle::{Joining, Message, Question, Settled, Transferred};
use super::frame::Malformed;
use super::items::{Answer, AskId, Asked, Said};

/// Minimum weight of a pending request.
const ASK_BYTES: usize = 256;
const SETTLE_BYTES: usize = 64;

/// A message to the driver, with or without a reply.
pub(super) enum Tell {
    Only(Message),
    Asking(Asking),
}

pub(super) struct Asking {
    pub(super) message: Message,
    pub(super) pending: Pending,
    /// The take is cancelled when this is dropped.
    pub(super) waits_for: Option<(AskId, oneshot::Sender<()>)>,
}

/// A pending reply.
pub(super) struct Pending {
    id: AskId,
    pub(super) weight: usize,
    answer: BoxFuture<'static, Answered>,
}

pub(super) enum Answered {
    Taken(SessionId, Vec<Delivery>),
    Plain(Answer),
}

impl Pending {
    /// The reply, with the id and weight of its request.
    pub(super) async fn answered(self) -> (AskId, usize, Answered) {
        (self.id, self.weight, self.answer.await)
    }
}

impl Said {
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
            | Self::Read { session, .. } => [Some(*session), None, None],
            Self::Consume { session, consumer, .. }
            | Self::Grant { session, consumer, .. }
            | Self::SetCredit { session, consumer, .. }
            | Self::Cancel { session, consumer, .. } => [Some(*session), Some(*consumer), None],
            Self::Lend { session, kind, .. } | Self::Share { session, kind, .. } => {
                [Some(*session), of_kind(kind), None]
            }
            Self::GiveUp { .. } | Self::Ask { .. } | Self::Presented => [None; 3],
        }
    }
}

fn asking(
    id: AskId,
    weight: usize,
    message: Message,
    answer: impl Future<Output = Answer> + Send + 'static,
) -> Tell {
    let answer = answer.map(Answered::Plain).boxed();
    let pending = Pending { id, weight: weight + ASK_BYTES, answer };
    Tell::Asking(Asking { message, pending, waits_for: None })
}

/// The reply, or [`Answer::None`] if the driver ends without one.
async fn or_none<T>(answer: oneshot::Receiver<T>, of: impl FnOnce(T) -> Answer) -> Answer {
    answer.await.map_or(Answer::None, of)
}

pub(super) fn tell(said: Said, body: &mut Bytes) -> Result<Tell, Malformed> {
    Ok(match said {
        Said::Limit { session, records } => Tell::Only(Message::Limit { session, records }),
        Said::Lend { session, kind, loan } => Tell::Only(Message::Lend { session, kind, loan }),
        Said::Grant { session, consumer, credit } => {
            Tell::Only(Message::Grant { session, consumer, credit })
        }
        Said::SetCredit { session, consumer, credit } => {
            Tell::Only(Message::SetCredit { session, consumer, credit })
        }
        Said::Share { session, kind, change } => {
            Tell::Only(Message::Share { session, kind, change })
        }
        Said::Consume { id, session, consumer, group, options } => {
            let (reply, answer) = oneshot::channel();
            let joining = Joining { consumer, options, divided: Vec::new() };
            let message = Message::Consume { session, group, joining, reply };
            asking(id, 0, message, or_none(answer, Answer::Consumed))
        }
        Said::Cancel { id, session, consumer } => {
            let (reply, answer) = oneshot::channel();
            let message = Message::Cancel { session, consumer, reply };
            asking(id, 0, message, or_none(answer, |()| Answer::Cancelled))
        }
        Said::Take { id, session, group, options } => {
            let (reply, answer) = oneshot::channel();
            let (waits, given_up) = oneshot::channel();
            let message = Message::Take { session, group, options, reply };
            let answer = taken(session, answer, given_up).boxed();
            let pending = Pending { id, weight: ASK_BYTES, answer };
            Tell::Asking(Asking { message, pending, waits_for: Some((id, waits)) })
        }
        Said::Settle { id, session, settles } => {
            let (reply, answer) = oneshot::channel();
            let items = settles.len();
            let message = Message::Settle { session, settles, again: false, reply: reply.into() };
            match id {
                Some(id) => {
                    let weight = items * SETTLE_BYTES;
                    asking(id, weight, message, or_none(answer, Answer::Settled))
                }
                None => Tell::Only(message),
            }
        }
        Said::Transfer { id, session, settles, batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = joined(batches, body)?;
            let weight = settles.len() * SETTLE_BYTES + bytes_of(&batches);
            let message = Message::Transfer { session, settles, batches, reply };
            asking(id, weight, message, transferred(answer))
        }
        Said::Ask { id, question } => ask(id, question, body)?,
        // Handled by the relay itself.
        Said::Open { .. }
        | Said::Close { .. }
        | Said::Present { .. }
        | Said::Presented
        | Said::Read { .. }
        | Said::GiveUp { .. } => {
            return Err(Malformed::NotSane);
        }
    })
}

fn ask(id: AskId, question: Asked, body: &mut Bytes) -> Result<Tell, Malformed> {
    Ok(match question {
        Asked::Counters { group } => {
            let (reply, answer) = oneshot::channel();
            let question = Question::Counters { group, reply };
            asking(id, 0, Message::Ask(question), or_none(answer, Answer::Counters))
        }
        Asked::Unsettled { group, partition, from, records_max } => {
            let (reply, answer) = oneshot::channel();
            let records_max = records_max as usize;
            let question = Question::Unsettled { group, partition, from, records_max, reply };
            asking(id, 0, Message::Ask(question), or_none(answer, Answer::Unsettled))
        }
        Asked::Leases { group, after, leases_max } => {
            let (reply, answer) = oneshot::channel();
            let leases_max = leases_max as usize;
            let question = Question::Leases { group, after, leases_max, reply };
            asking(id, 0, Message::Ask(question), or_none(answer, Answer::Leases))
        }
        Asked::Purge { group } => {
            let ((reply, answer), (durable, settled)) = (oneshot::channel(), oneshot::channel());
            let question = Question::Purge { group, durable, reply };
            asking(id, 0, Message::Ask(question), async {
                match answer.await {
                    Ok(Ok(purged)) => Answer::Purged(Ok((purged, became(settled).await))),
                    Ok(Err(error)) => Answer::Purged(Err(error)),
                    Err(_) => Answer::Purged(Err(unanswered())),
                }
            })
        }
        Asked::Remove { group, partition, offset } => {
            let ((reply, answer), (durable, settled)) = (oneshot::channel(), oneshot::channel());
            let question = Question::Remove { group, partition, offset, durable, reply };
            asking(id, 0, Message::Ask(question), async {
                match answer.await {
                    Ok(Ok(())) => Answer::Removed(Ok(became(settled).await)),
                    Ok(Err(error)) => Answer::Removed(Err(error)),
                    Err(_) => Answer::Removed(Err(unanswered())),
                }
            })
        }
        Asked::Free { group, partition, offsets } => {
            let (reply, answer) = oneshot::channel();
            let weight = offsets.len() * size_of::<u64>();
            let question = Question::Free { group, partition, offsets, reply };
            asking(id, weight, Message::Ask(question), or_none(answer, Answer::Free))
        }
        Asked::MoveAway { group, partition, offsets, batches } => {
            let (reply, answer) = oneshot::channel();
            let batches = joined(batches, body)?;
            let weight = bytes_of(&batches);
            let question = Question::MoveAway { group, partition, offsets, batches, reply };
            asking(id, weight, Message::Ask(question), transferred(answer))
        }
    })
}

fn joined(batches: Vec<Batch>, body: &mut Bytes) -> Result<Vec<AppendBatch>, Malformed> {
    wire::take(batches, body).ok_or(Malformed::Records)
}

fn bytes_of(batches: &[AppendBatch]) -> usize {
    batches.iter().map(|batch| batch.bytes.len()).sum()
}

fn unanswered() -> RemoveError {
    RemoveError::Unavailable(Unavailable::Unanswered)
}

/// Result of an operator's change: an error if its outcome is unknown.
async fn became(settled: oneshot::Receiver<Settled>) -> Settled {
    settled.await.unwrap_or_else(|_| vec![Err(Unavailable::Unanswered.into())])
}

/// The reply is sent once batches for other shards have arrived there.
async fn transferred(answer: oneshot::Receiver<Transferred>) -> Answer {
    let result = match answer.await {
        Ok(Ok(moved)) => moved.arrived().await.map_err(TransferError::from),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Unavailable::Unanswered.into()),
    };
    Answer::Transferred(result.map_err(Into::into))
}

async fn taken(
    session: SessionId,
    mut answer: oneshot::Receiver<Result<Vec<Delivery>, TakeError>>,
    given_up: oneshot::Receiver<()>,
) -> Answered {
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer.ok(),
        // From here on the driver cannot send any more, unless it has sent just now.
        _ = given_up => {
            answer.close();
            Some(answer.try_recv().unwrap_or_else(|_| Ok(Vec::new())))
        }
    };
    match answer {
        Some(Ok(deliveries)) => Answered::Taken(session, deliveries),
        Some(Err(error)) => Answered::Plain(Answer::Taken(Err(error))),
        None => Answered::Plain(Answer::Taken(Err(Unavailable::Unanswered.into()))),
    }
}
