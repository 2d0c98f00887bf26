//! Events and replies of the leader's driver for this node's sessions.

use std::sync::Arc;

use bytes::Bytes;
use dispatch::{SessionId, Settlement};
use machine::ALL_PARTITIONS;
use shard::delivery::event::{Delivery, Event, GoneReason, SessionMessage};
use shard::delivery::options::Settle;
use shard_peers::limits::REMOTE_ANSWERED_WITHIN;
use tokio::time::Instant;

use super::frame::MalformedFrame;
use super::items::{DriverReply, RelayCommand, RelayNotification, RequestId};
use super::pending_requests::{AfterReply, PendingRequest, ReplyContent};
use super::relay_queue::{LeaderReply, RelayError};
use super::{Relay, State};

impl Relay {
    pub(super) fn on_reply(&mut self, reply: LeaderReply) {
        let State::Connected(queue) = &mut self.state else { return };
        let notifications = match queue.on_reply(reply) {
            Ok(notifications) => notifications,
            Err(over) => return self.end(&over),
        };
        for (items, body) in notifications {
            if let Err(over) = self.on_notifications(items, body) {
                return self.end(&over);
            }
        }
    }

    fn on_notifications(
        &mut self,
        items: Vec<RelayNotification>,
        mut body: Bytes,
    ) -> Result<(), RelayError> {
        for item in items {
            match item {
                RelayNotification::Deliveries { session, weight, runs } => {
                    let now_ms = self.context.timeline.now_ms();
                    let deliveries = runs.read(now_ms, &mut body)?;
                    self.deliver(session, weight, deliveries);
                }
                RelayNotification::Active { consumer, active, .. } => {
                    self.registry.on_active(consumer, active)
                }
                RelayNotification::Gone { consumer, reason, .. } => {
                    if let Some(member) = self.registry.member(consumer)
                        && reason == GoneReason::Deleted
                    {
                        self.leases.forget(member.group, ALL_PARTITIONS);
                    }
                    self.registry.gone(consumer, reason);
                }
                RelayNotification::Notice { session, notice } => {
                    self.registry.note(session, &notice);
                    if let Some(session) = self.registry.sessions.get(&session) {
                        session.events.send(SessionMessage::Notice(notice));
                    }
                }
                RelayNotification::Answer { id, answer: DriverReply::Taken(answer) } => {
                    let answer = match answer {
                        Ok(runs) => Ok(runs.read(self.context.timeline.now_ms(), &mut body)?),
                        Err(error) => Err(error),
                    };
                    self.on_answer(id, ReplyContent::Taken(answer))?;
                }
                RelayNotification::Answer { id, answer } => {
                    self.on_answer(id, ReplyContent::Plain(answer))?
                }
            }
        }
        match body.is_empty() {
            true => Ok(()),
            false => Err(MalformedFrame::Records.into()),
        }
    }

    fn deliver(&mut self, id: SessionId, weight: u64, deliveries: Vec<Delivery>) {
        let Some(session) = self.registry.sessions.get(&id) else { return };
        let bytes = deliveries.iter().map(Delivery::weight).sum();
        session.unread.add(bytes);
        let unread = Arc::clone(&session.unread);
        let events = session.events.clone();
        self.registry.on_deliveries(&deliveries);
        self.leases.on_deliveries(id, &deliveries, self.context.timeline.now_ms());
        events.send(SessionMessage::Event(Event::Deliveries(deliveries), bytes));
        *self.owed.entry(id).or_default() += weight;
        if !unread.has_room() {
            // The leader holds back once it has sent as many bytes again.
            unread.hold_back();
        }
        // The session may have read all of it just now, before `hold_back`, without a report.
        if unread.has_room() {
            self.read.insert(id);
        }
    }

    fn on_answer(&mut self, id: RequestId, got: ReplyContent) -> Result<(), RelayError> {
        let Some(waiting) = self.waiters.remove(id) else { return Ok(()) };
        let until = Instant::now() + REMOTE_ANSWERED_WITHIN;
        match (&waiting, &got) {
            // A settle is repeated until its outcome is known.
            (PendingRequest::Settle { .. }, ReplyContent::Plain(answer))
                if answer.is_of_lost_leader() =>
            {
                self.waiters.requeue(id, waiting.into_repeat(), until);
                return Err(RelayError::Ended);
            }
            (PendingRequest::Consume(consumer), _) => return self.on_consumed(*consumer, got),
            (PendingRequest::Take(take), ReplyContent::Taken(Ok(deliveries))) => {
                let now_ms = self.context.timeline.now_ms();
                self.leases.on_deliveries(take.session, deliveries, now_ms);
            }
            (PendingRequest::Settle { .. }, ReplyContent::Plain(DriverReply::Settled(_))) => {
                if let Some((session, settles)) = waiting.ends() {
                    self.leases.ended(session, settles);
                }
            }
            _ => {}
        }
        match waiting.on_answer(got) {
            AfterReply::Nothing => Ok(()),
            AfterReply::Release(session, deliveries) => {
                let settles = deliveries.iter().map(release_unread).collect();
                self.send(RelayCommand::Settle { id: None, session, settles });
                Ok(())
            }
            AfterReply::Repeat(waiting) => {
                self.waiters.requeue(id, waiting, until);
                Err(RelayError::Ended)
            }
            AfterReply::Mismatch => Err(MalformedFrame::Head.into()),
        }
    }
}

/// Released without counting an attempt.
fn release_unread(delivery: &Delivery) -> Settle {
    Settle {
        group: delivery.group,
        what: delivery.lease(),
        settlement: Settlement::Release { delay_ms: Some(0), count: false },
    }
}
