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
use super::items::{AskId, DriverReply, RelayCommand, RelayNotification};
use super::pending_requests::{AfterReply, PendingRequest, ReplyContent};
use super::relay_queue::{LeaderReply, RelayError};
use super::{Relay, State};

impl Relay {
    pub(super) fn on_came(&mut self, came: LeaderReply) {
        let State::Through(line) = &mut self.state else { return };
        let heard = match line.on_came(came) {
            Ok(heard) => heard,
            Err(over) => return self.end(&over),
        };
        for (items, body) in heard {
            if let Err(over) = self.on_heard(items, body) {
                return self.end(&over);
            }
        }
    }

    fn on_heard(
        &mut self,
        items: Vec<RelayNotification>,
        mut body: Bytes,
    ) -> Result<(), RelayError> {
        for item in items {
            match item {
                RelayNotification::Deliveries { session, weight, handed } => {
                    let now_ms = self.ground.timeline.now_ms();
                    let deliveries = handed.read(now_ms, &mut body)?;
                    self.deliver(session, weight, deliveries);
                }
                RelayNotification::Active { consumer, active, .. } => {
                    self.roster.on_active(consumer, active)
                }
                RelayNotification::Gone { consumer, reason, .. } => {
                    if let Some(member) = self.roster.member(consumer)
                        && reason == GoneReason::Deleted
                    {
                        self.held.forget(member.group, ALL_PARTITIONS);
                    }
                    self.roster.gone(consumer, reason);
                }
                RelayNotification::Notice { session, notice } => {
                    self.roster.note(session, &notice);
                    if let Some(session) = self.roster.sessions.get(&session) {
                        session.events.send(SessionMessage::Notice(notice));
                    }
                }
                RelayNotification::Answer { id, answer: DriverReply::Taken(answer) } => {
                    let answer = match answer {
                        Ok(handed) => Ok(handed.read(self.ground.timeline.now_ms(), &mut body)?),
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
        let Some(session) = self.roster.sessions.get(&id) else { return };
        let bytes = deliveries.iter().map(Delivery::weight).sum();
        session.unread.add(bytes);
        let unread = Arc::clone(&session.unread);
        let events = session.events.clone();
        self.roster.on_deliveries(&deliveries);
        self.held.handed(id, &deliveries, self.ground.timeline.now_ms());
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

    fn on_answer(&mut self, id: AskId, got: ReplyContent) -> Result<(), RelayError> {
        let Some(waiting) = self.waiters.remove(id) else { return Ok(()) };
        let until = Instant::now() + REMOTE_ANSWERED_WITHIN;
        match (&waiting, &got) {
            // A settle is repeated until its outcome is known.
            (PendingRequest::Settle { .. }, ReplyContent::Plain(answer))
                if answer.is_of_lost_leader() =>
            {
                self.waiters.put_back(id, waiting.again(), until);
                return Err(RelayError::Ended);
            }
            (PendingRequest::Consume(consumer), _) => return self.on_consumed(*consumer, got),
            (PendingRequest::Take(take), ReplyContent::Taken(Ok(deliveries))) => {
                let now_ms = self.ground.timeline.now_ms();
                self.held.handed(take.session, deliveries, now_ms);
            }
            (PendingRequest::Settle { .. }, ReplyContent::Plain(DriverReply::Settled(_))) => {
                if let Some((session, settles)) = waiting.ends() {
                    self.held.ended(session, settles);
                }
            }
            _ => {}
        }
        match waiting.on_answer(got) {
            AfterReply::Nothing => Ok(()),
            AfterReply::GiveBack(session, deliveries) => {
                let settles = deliveries.iter().map(release_unread).collect();
                self.say(RelayCommand::Settle { id: None, session, settles });
                Ok(())
            }
            AfterReply::Again(waiting) => {
                self.waiters.put_back(id, waiting, until);
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
