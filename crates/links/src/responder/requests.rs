//! A request on its way to the service, and its reply on the way back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::warn;

use crate::frame::{Kind, QueuedFrame};
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
                Declined::AnswerTooLong.frame(number)
            }
            Ok(message) => QueuedFrame::new(Kind::Reply, number, message),
            Err(reason) => reason.frame(number),
        };
        outbox.push_with_room(frame).await;
        drop(counting);
    }
}

/// The time limit of a frame. A frame without a deadline, which links do not send, gets as long as a lane may make
/// no progress.
pub(super) fn within(ms: u32) -> Duration {
    match ms {
        0 => crate::limits::LINK_PROGRESS_WITHIN,
        ms => Duration::from_millis(u64::from(ms)),
    }
}
