//! The one place where a session hears what it is told.

use std::sync::Arc;
use std::task::{Context, Poll};

use dispatch::SessionId;
use tokio::sync::mpsc;

use super::event::{Event, Sent, Unread};
use super::handle::{Handle, Message};

/// The one receiver of a session's events.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::UnboundedReceiver<Sent>,
    unread: Arc<Unread>,
    driver: Handle,
    session: SessionId,
}

impl Events {
    pub(super) fn new(
        receiver: mpsc::UnboundedReceiver<Sent>,
        unread: Arc<Unread>,
        driver: Handle,
        session: SessionId,
    ) -> Self {
        Self { receiver, unread, driver, session }
    }

    /// The next event; `None` once the session is closed and everything was received. Dropping
    /// the future loses nothing.
    pub async fn recv(&mut self) -> Option<Event> {
        let sent = self.receiver.recv().await;
        self.note(sent)
    }

    pub fn try_recv(&mut self) -> Option<Event> {
        let sent = self.receiver.try_recv().ok();
        self.note(sent)
    }

    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context).map(|sent| self.note(sent))
    }

    fn note(&self, sent: Option<Sent>) -> Option<Event> {
        let (event, bytes) = sent?;
        if bytes > 0 && self.unread.read(bytes) {
            self.driver.tell(Message::Room { session: self.session });
        }
        Some(event)
    }
}
