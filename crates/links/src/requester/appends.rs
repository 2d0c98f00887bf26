//! A stream of appends to one follower, as its callers use it.

use std::sync::Arc;

use crate::limits::LINK_PROGRESS_WITHIN;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{CallResult, LostReply, Session};
use crate::end::ConnectionEnd;
use crate::frame::{Message, ReceivedMessage};
use crate::window::{Slot, Window};

/// Reason why an append has no reply. Whether the follower has written it is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AppendError {
    #[error("the connection ended: {0}")]
    Ended(#[from] ConnectionEnd),
    /// No append of the stream was answered for [`LINK_PROGRESS_WITHIN`], though the link is alive: the follower's
    /// disk hangs.
    #[error("no progress for {LINK_PROGRESS_WITHIN:?}, though the link is alive")]
    Stalled,
    /// A later stream of the shard to this peer replaced it.
    #[error("a later stream took its place")]
    Superseded,
    /// The follower accepts no more of this stream, or [`Replies`] was dropped.
    #[error("the stream is over")]
    StreamEnded,
    /// It was not sent.
    #[error("{bytes} bytes, of which {max} are allowed")]
    TooLong { bytes: usize, max: usize },
}

impl From<LostReply> for AppendError {
    fn from(lost: LostReply) -> Self {
        match lost {
            LostReply::Ended(end) => Self::Ended(end),
            LostReply::Stalled => Self::Stalled,
            LostReply::Superseded => Self::Superseded,
            // An append has no deadline. A follower that declines one accepts no more either.
            LostReply::StreamEnded | LostReply::Declined(_) | LostReply::NotSent => {
                Self::StreamEnded
            }
        }
    }
}

/// The sending side. Appends arrive in the order in which they are sent. Dropping it tells the follower that the
/// stream is complete; appends already sent are still answered.
#[derive(Debug)]
pub struct AppendSender {
    session: Arc<Session>,
    shard: u16,
    stream: u32,
    window: Window,
    /// The window slot of the next append, if the caller has waited for it.
    place: Option<OwnedSemaphorePermit>,
    sent: mpsc::UnboundedSender<SentAppend>,
}

/// The receiving side for replies, in the order of the appends. An append occupies the window until its reply is
/// taken here.
#[derive(Debug)]
pub struct Replies {
    /// Bounded by the stream's window.
    sent: mpsc::UnboundedReceiver<SentAppend>,
    /// The append whose reply is awaited.
    first: Option<SentAppend>,
}

#[derive(Debug)]
struct SentAppend {
    answer: oneshot::Receiver<CallResult>,
    _slot: Slot,
}

pub(crate) fn begin(
    session: Arc<Session>,
    shard: u16,
) -> Result<(AppendSender, Replies), ConnectionEnd> {
    let stream = session.begin_appends(shard)?;
    let (sent, replies) = mpsc::unbounded_channel();
    let appends = AppendSender {
        session,
        shard,
        stream: stream.id,
        window: stream.window,
        place: None,
        sent,
    };
    Ok((appends, Replies { sent: replies, first: None }))
}

impl AppendSender {
    /// Waits until the window has a slot. A caller that fetches entries from elsewhere fetches them after that.
    /// Nothing is lost if this is dropped.
    pub async fn ready(&mut self) -> Result<(), AppendError> {
        if self.place.is_none() {
            let place = self.window.place().await;
            self.place = Some(place.map_err(|_| self.why_ended())?);
        }
        Ok(())
    }

    /// Sends one append, once the window has room for its bytes. Nothing is sent if this is dropped.
    pub async fn send(&mut self, message: Message) -> Result<(), AppendError> {
        if self.sent.is_closed() {
            // No receiver takes replies: their slots in the window would never be free again.
            return Err(AppendError::StreamEnded);
        }
        let (bytes, max) = (message.bytes(), self.session.lane.message_bytes_max());
        if bytes > max {
            return Err(AppendError::TooLong { bytes, max });
        }
        self.ready().await?;
        let Some(place) = self.place.take() else { return Err(self.why_ended()) };
        let filled = self.window.fill(place, bytes).await;
        let slot = filled.map_err(|_| self.why_ended())?;
        let answer = self.session.append(self.shard, self.stream, message)?;
        // If the receiver of replies is gone, the next append fails.
        let _ = self.sent.send(SentAppend { answer, _slot: slot });
        Ok(())
    }

    fn why_ended(&self) -> AppendError {
        self.session.why_appends_ended(self.shard, self.stream).into()
    }
}

impl Drop for AppendSender {
    fn drop(&mut self) {
        self.session.finish_appends(self.shard, self.stream);
    }
}

impl Replies {
    /// The reply to the next append; `None` once all are taken and [`AppendSender`] is dropped. Nothing is lost if this
    /// is dropped.
    pub async fn next(&mut self) -> Option<Result<ReceivedMessage, AppendError>> {
        if self.first.is_none() {
            self.first = self.sent.recv().await;
        }
        let answer = (&mut self.first.as_mut()?.answer).await;
        self.first = None;
        // The link answers every accepted append before it drops it.
        Some(answer.unwrap_or(Err(LostReply::StreamEnded)).map_err(AppendError::from))
    }
}
