//! The requesting side's role in the task of a connection.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::limits::LINK_GOSSIP_EVERY;
use futures_util::future::BoxFuture;
use world::Instant;

use super::{LostReply, Session};
use crate::connection::Role;
use crate::end::{ConnectionEnd, Violation};
use crate::frame::{ABANDONED, Frame, Header, Kind, Message, QueuedFrame};
use crate::gossip::Gossip;
use crate::lane::Lane;
use crate::service::Declined;

pub(crate) struct Requester {
    session: Arc<Session>,
    /// Gossip of this node, on the lane that carries it.
    gossip: Option<Arc<Gossip>>,
    told: Instant,
    /// Ready once this node closes the link.
    closing: Option<BoxFuture<'static, ()>>,
}

impl Requester {
    pub(crate) fn new(
        session: Arc<Session>,
        gossip: Arc<Gossip>,
        closing: BoxFuture<'static, ()>,
    ) -> Self {
        let gossip = (session.lane == Lane::Control).then_some(gossip);
        let this = Self { session, gossip, told: Instant::now(), closing: Some(closing) };
        this.send_gossip();
        this
    }

    fn send_gossip(&self) {
        if let Some(payload) = self.gossip.as_ref().and_then(|gossip| gossip.newest()) {
            self.session.outbox.set_gossip(payload);
        }
    }
}

impl Role for Requester {
    fn allow(&mut self, header: &Header) -> Result<(), Violation> {
        header.check_length(self.session.lane.message_bytes_max())?;
        match header.kind {
            Kind::Reply | Kind::Declined | Kind::AppendsEnd | Kind::Ping | Kind::Close => Ok(()),
            _ => Err(header.not_allowed()),
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), ConnectionEnd> {
        let Frame { header, message, .. } = frame;
        let mut calls = self.session.calls.lock();
        match header.kind {
            Kind::Reply => calls.answer(header.number, Ok(message)),
            Kind::Declined => {
                let code = message.head.first().copied().unwrap_or_default();
                calls.answer(header.number, Err(LostReply::Declined(Declined::from_code(code))));
            }
            Kind::AppendsEnd => calls.stream_ended(header.shard, header.number),
            _ => return Err(ConnectionEnd::Violation(header.not_allowed())),
        }
        Ok(())
    }

    fn expire(&mut self, frame: QueuedFrame) {
        self.session.calls.lock().answer(frame.number, Err(LostReply::NotSent));
    }

    fn tick(&mut self, now: Instant) -> Result<(), ConnectionEnd> {
        let mut calls = self.session.calls.lock();
        if calls.is_stalled(now) {
            return Err(ConnectionEnd::Stalled);
        }
        for (shard, id) in calls.lose_stalled(now) {
            let end = QueuedFrame::new(Kind::AppendsEnd, id, Message::default());
            self.session.outbox.push(QueuedFrame { shard, flags: ABANDONED, ..end });
        }
        drop(calls);
        if now - self.told >= LINK_GOSSIP_EVERY {
            self.told = now;
            self.send_gossip();
        }
        Ok(())
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEnd> {
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(context).is_ready()
        {
            self.closing = None;
            self.session.outbox.finish();
        }
        Poll::Pending
    }
}
