//! The receiver of a session's events.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use shard::delivery::event::{Event, SessionMessage};
use shard::delivery::unread::UnreadDeliveries;
use tokio::sync::mpsc;

use super::links::Links;

/// The one receiver of a session's events, of all shards. Credit moves between drivers and the session as
/// events are received.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::UnboundedReceiver<SessionMessage>,
    unread: Arc<UnreadDeliveries>,
    links: Arc<Links>,
}

impl Events {
    pub fn new(
        receiver: mpsc::UnboundedReceiver<SessionMessage>,
        unread: Arc<UnreadDeliveries>,
        links: Arc<Links>,
    ) -> Self {
        Self { receiver, unread, links }
    }

    /// The next event; `None` once the session is closed and everything was received. Cancel safe.
    pub async fn recv(&mut self) -> Option<Event> {
        loop {
            let sent = self.receiver.recv().await?;
            if let Some(event) = self.note(sent) {
                return Some(event);
            }
        }
    }

    pub fn try_recv(&mut self) -> Option<Event> {
        loop {
            let sent = self.receiver.try_recv().ok()?;
            if let Some(event) = self.note(sent) {
                return Some(event);
            }
        }
    }

    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let Some(sent) = ready!(self.receiver.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            if let Some(event) = self.note(sent) {
                return Poll::Ready(Some(event));
            }
        }
    }

    /// `None` for a message that is not for the session's user.
    fn note(&self, sent: SessionMessage) -> Option<Event> {
        let (event, bytes) = match sent {
            SessionMessage::Event(event, bytes) => (event, bytes),
            SessionMessage::Notice(notice) => {
                self.links.on_notice(notice);
                return None;
            }
        };
        if bytes > 0 && self.unread.read(bytes) {
            self.links.report_room(self.unread.connection());
        }
        self.links.on_event(&event).then_some(event)
    }
}
