//! A request on its way to the service, and its reply on the way back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use crate::frame::{Kind, Message, QueuedFrame};
use crate::lane::Lane;
use crate::outbox::Outbox;
use crate::service::{Declined, Request, Service};
use crate::window::WindowGuard;

/// Runs the service on a request within the request's time. The service is called at once, so that it sees
/// requests in the order of their arrival.
pub(super) fn answer(
    service: &dyn Service,
    request: Request,
    number: u32,
    outbox: Arc<Outbox>,
    counting: WindowGuard,
) -> impl Future<Output = ()> + Send + 'static {
    let (from, lane, within) = (request.from, request.lane, request.within);
    let answering = service.answer(request);
    async move {
        let answered = timeout(within, answering).await;
        let frame = match answered.unwrap_or(Err(Declined::TooLate)) {
            Ok(message) if message.bytes() > lane.message_bytes_max() => {
                let bytes = message.bytes();
                warn!(%from, lane = lane.name(), bytes, "an answer is too long for its lane");
                declined(number, Declined::AnswerTooLong)
            }
            Ok(message) => QueuedFrame::new(Kind::Reply, number, message),
            Err(reason) => declined(number, reason),
        };
        outbox.push_with_room(frame).await;
        drop(counting);
    }
}

fn declined(number: u32, reason: Declined) -> QueuedFrame {
    QueuedFrame::new(Kind::Declined, number, Message::from_head(vec![reason.code()]))
}

/// The time limit of a frame. A frame without a deadline, which links do not send, gets as long as a lane may make
/// no progress.
pub(super) fn within(ms: u32) -> Duration {
    match ms {
        0 => crate::limits::LINK_PROGRESS_WITHIN,
        ms => Duration::from_millis(u64::from(ms)),
    }
}

/// Sends the reply to an append, for which the sender waits without a deadline.
pub(super) async fn answer_append(lane: Lane, number: u32, message: Message, outbox: &Outbox) {
    if message.bytes() > lane.message_bytes_max() {
        outbox.push_with_room(declined(number, Declined::AnswerTooLong)).await;
    } else {
        outbox.push_with_room(QueuedFrame::new(Kind::Reply, number, message)).await;
    }
}
