//! Messages of this node's sessions: they update the state kept here, and go to the leader.

use dispatch::{ConsumerId, SessionId};
use shard::append::AppendBatch;
use shard::delivery::divided_credit::CreditKind;
use shard::delivery::error::ConsumeError;
use shard::delivery::handle::Message;
use shard::error::Unavailable;
use shard_peers::limits::REMOTE_ANSWERED_WITHIN;
use tokio::time::Instant;

use super::frame::MalformedFrame;
use super::items::{DriverReply, RelayCommand};
use super::pending_requests::{PendingRequest, RelayedTake, RelayedTransfer, ReplyContent};
use super::relay_queue::{OutboundItem, RelayError, RelayQueue};
use super::{Relay, State};
use crate::drivers::is_of_node;
use crate::open_session::Session;

impl Relay {
    pub(crate) fn handle(&mut self, message: Message) {
        let here = self.context.node.identity().at.node.0;
        if message.session().is_some_and(|session| !is_of_node(session, here)) {
            match self.is_elected() {
                true => self.for_driver.push(message),
                // It was sent to this node as the former leader.
                false => message.refuse(&Unavailable::NotLeader),
            }
            return;
        }
        let now = Instant::now();
        match message {
            Message::Open { session, events, unread } => {
                self.registry.sessions.insert(session, Session::new(events, unread));
                self.send(RelayCommand::Open { session });
            }
            Message::Close { session } => self.close(session),
            Message::Consume { session, group, joining, reply } => {
                let consumer = joining.consumer;
                let reply = (reply, now + REMOTE_ANSWERED_WITHIN);
                if self.registry.join(session, group, joining, reply).is_ok() {
                    self.join(consumer);
                }
            }
            Message::Grant { session, consumer, credit } => {
                self.registry.grant(consumer, credit);
                self.send(RelayCommand::Grant { session, consumer, credit });
            }
            Message::SetCredit { session, consumer, credit } => {
                self.registry.set_credit(consumer, credit);
                self.send(RelayCommand::SetCredit { session, consumer, credit });
            }
            Message::Limit { session, records } => {
                self.registry.limit(session, records);
                self.send(RelayCommand::Limit { session, records });
            }
            Message::Share { session, kind, change } => {
                self.registry.share(session, kind, change);
                self.send(RelayCommand::Share { session, kind, change });
            }
            // From a driver of this node to the next one.
            Message::Lend { session, kind, loan } => self.on_lend(session, kind, loan),
            Message::Cancel { session, consumer, reply } => {
                self.registry.remove(consumer);
                if !self.is_connected() {
                    let _ = reply.send(());
                    return;
                }
                let id = self.waiters.add(PendingRequest::Cancel(reply), now);
                self.send(RelayCommand::Cancel { id, session, consumer });
            }
            Message::Take { session, group, options, reply } => {
                let deadline = now + options.wait;
                let abandoned = false;
                let take = RelayedTake { session, group, options, deadline, reply, abandoned };
                // A take may wait longer than other requests.
                self.request(
                    PendingRequest::Take(take),
                    deadline.max(now + REMOTE_ANSWERED_WITHIN),
                );
            }
            Message::Settle { session, settles, again, reply } => {
                // Also tracked if the caller does not wait: it may have to be repeated.
                let waiting =
                    PendingRequest::Settle { session, settles, named: None, again, reply };
                self.request(waiting, now + REMOTE_ANSWERED_WITHIN);
            }
            Message::Transfer { session, settles, batches, elsewhere, reply } => {
                let rows = batches.iter().map(AppendBatch::rows).sum();
                let transfer =
                    RelayedTransfer { session, settles, batches, elsewhere, rows, reply };
                let waiting = PendingRequest::Transfer(transfer);
                self.request(waiting, now + REMOTE_ANSWERED_WITHIN);
            }
            Message::Withhold { session, settles, reply } => {
                let waiting = PendingRequest::Withhold { session, settles, reply };
                self.request(waiting, now + REMOTE_ANSWERED_WITHIN);
            }
            // Another leader has nothing to restore.
            Message::Restore { session, preparation, is_refused } => {
                self.send(RelayCommand::Restore { session, preparation, is_refused });
            }
            Message::Room { session, connection } => self.on_room(session, connection),
            // The leader's driver gets it from its own log.
            Message::Moved { group, partition, sought } => {
                if sought {
                    self.leases.forget(group, partition);
                }
            }
            message @ Message::Presented { .. } => {
                if self.is_elected() {
                    self.for_driver.push(message);
                }
            }
            // A driver that begins later knows it from the state.
            Message::SettledElsewhere { .. } => {}
            // Sent only by another node's relay.
            Message::Present { .. } | Message::Suspend { .. } | Message::Stop => {}
            // The caller handles a missing reply.
            Message::RecordHistory { .. } => {}
            message @ Message::Overflowed { .. } => message.refuse(&Unavailable::NotLeader),
            Message::Query(query) => {
                self.request(PendingRequest::Query(query), now + REMOTE_ANSWERED_WITHIN);
            }
        }
    }

    /// Reports to the leader that the connection's sessions have room again.
    fn on_room(&mut self, session: SessionId, connection: u64) {
        let is_of = |id: SessionId| match connection {
            0 => id == session,
            number => {
                let of = self.registry.sessions.get(&id);
                of.is_some_and(|session| session.unread.connection() == number)
            }
        };
        let read = self.owed.keys().copied().filter(|id| is_of(*id));
        self.read.extend(read);
    }

    fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    fn request(&mut self, waiting: PendingRequest, until: Instant) {
        let id = self.waiters.add(waiting, until);
        if let State::Connected(queue) = &mut self.state {
            queue.outbound.push_back(OutboundItem::Request(id));
        }
    }

    fn close(&mut self, id: SessionId) {
        if !self.registry.close(id) {
            return;
        }
        self.leases.close(id);
        self.owed.remove(&id);
        self.read.remove(&id);
        // Dropping the reply channels ends their takes.
        self.waiters.all.retain(|_, entry| match &entry.waiting {
            PendingRequest::Take(take) => take.session != id,
            _ => true,
        });
        self.send(RelayCommand::Close { session: id });
    }

    fn on_lend(
        &mut self,
        id: SessionId,
        kind: CreditKind,
        loan: shard::delivery::borrowed_credit::BorrowedCreditState,
    ) {
        if let Some(session) = self.registry.sessions.get_mut(&id) {
            session
                .lent
                .insert(kind, shard::delivery::borrowed_credit::BorrowedCredit::resume(loan));
            self.send(RelayCommand::Lend { session: id, kind, loan });
        }
    }

    /// Requests a join of the consumer at the leader.
    fn join(&mut self, consumer: ConsumerId) {
        let out = self.is_connected().then(|| self.joining(consumer)).flatten();
        let Some(session) = self.registry.member(consumer).map(|member| member.session) else {
            return;
        };
        let mut state = std::mem::replace(&mut self.state, State::Disconnected(Instant::now()));
        if let State::Connected(queue) = &mut state {
            queue.outbound.extend(out);
            self.lend(session, Some(consumer), queue);
        }
        self.state = state;
    }

    /// The message for the join of a consumer.
    pub(super) fn joining(&mut self, consumer: ConsumerId) -> Option<OutboundItem> {
        let until = Instant::now() + REMOTE_ANSWERED_WITHIN;
        let id = self.waiters.add(PendingRequest::Consume(consumer), until);
        let member = self.registry.member(consumer)?;
        let (session, group, options) = (member.session, member.group, member.options());
        Some(OutboundItem::Command(RelayCommand::Consume { id, session, consumer, group, options }))
    }

    /// Sends the shares of credit of the session itself, or of a consumer that joins.
    pub(super) fn lend(&self, id: SessionId, of: Option<ConsumerId>, queue: &mut RelayQueue) {
        let Some(session) = self.registry.sessions.get(&id) else { return };
        let kinds = match of {
            None => vec![CreditKind::Session],
            Some(consumer) => vec![CreditKind::Records(consumer), CreditKind::Bytes(consumer)],
        };
        for kind in kinds {
            let Some(lent) = session.lent.get(&kind) else { continue };
            let command = RelayCommand::Lend { session: id, kind, loan: lent.loan() };
            queue.outbound.push_back(OutboundItem::Command(command));
        }
    }

    pub(super) fn on_consumed(
        &mut self,
        consumer: ConsumerId,
        got: ReplyContent,
    ) -> Result<(), RelayError> {
        match got {
            ReplyContent::Plain(DriverReply::Consumed(Ok(active))) => {
                self.registry.on_joined(consumer, active)
            }
            // It joins at the next leader.
            ReplyContent::Plain(
                DriverReply::Consumed(Err(ConsumeError::Unavailable(_))) | DriverReply::None,
            ) => {
                return Err(RelayError::Ended);
            }
            ReplyContent::Plain(DriverReply::Consumed(Err(error))) => {
                self.registry.on_refused(consumer, error)
            }
            _ => return Err(MalformedFrame::Head.into()),
        }
        Ok(())
    }
}

impl PendingRequest {
    /// The message to a driver of this node.
    pub(super) fn into_message(self, now: Instant) -> Option<Message> {
        Some(match self {
            // The registry has the consumers, and cancels are done.
            Self::Consume(_) | Self::Cancel(_) => return None,
            Self::Take(RelayedTake { session, group, mut options, deadline, reply, .. }) => {
                options.wait = deadline.saturating_duration_since(now);
                Message::Take { session, group, options, reply }
            }
            Self::Settle { session, settles, again, reply, .. } => {
                Message::Settle { session, settles, again, reply }
            }
            Self::Transfer(transfer) => {
                let RelayedTransfer { session, settles, batches, elsewhere, reply, .. } = transfer;
                Message::Transfer { session, settles, batches, elsewhere, reply }
            }
            Self::Withhold { session, settles, reply } => {
                Message::Withhold { session, settles, reply }
            }
            Self::Query(query) => Message::Query(query),
        })
    }
}
