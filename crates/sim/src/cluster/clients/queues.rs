//! Queues that are declared, filled and deleted by AMQP at any node, also at one that was cut off or has just started.
//!
//! Each queue has one client, which makes one request after the other at random nodes. So it always knows whether
//! the queue exists and which messages are in it, whichever node it queries next:
//!
//! * a queue that was declared exists at each node until it is deleted;
//! * messages that were confirmed are counted at each node;
//! * a queue that was deleted is empty once it is declared again;
//! * a queue that was bound gets what is published to its exchange at each node, until it is deleted.
//!
//! A request without a reply makes the queue's state unknown. The client then deletes the queue, until that is
//! answered. Messages on a connection that broke may be routed afterwards, to a queue that was declared meanwhile.

use std::time::Duration;

use client_amqp::{AmqpError, Mode};
use tokio::time::{sleep, timeout};

use crate::cluster::Shared;
use crate::cluster::place::name;
use crate::network;
use crate::random::Random;
use crate::verdict::Invariant;

/// Number of queues, each with one client.
pub(crate) const QUEUES: usize = 4;
const ANSWERED_WITHIN: Duration = Duration::from_secs(12);
const NOT_FOUND: u16 = 404;

/// One queue, as its client knows it.
#[derive(Debug)]
pub(crate) struct Client {
    queue: String,
    shared: Shared,
    random: Random,
    state: QueueState,
    /// Whether its exchange was declared.
    has_exchange: bool,
    /// Number of messages without a reply, which may still arrive.
    late: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueState {
    /// A request had no reply.
    Unknown,
    Deleted,
    Exists {
        /// Number of confirmed messages.
        messages: u32,
        /// Whether it is bound to its exchange.
        is_bound: bool,
    },
}

/// A request to one node.
#[derive(Clone, Copy, Debug)]
enum Step {
    Declare,
    Bind,
    Publish(u32),
    /// Publish to the exchange, to which another queue is bound as well.
    PublishToExchange(u32),
    Count,
    Delete,
}

/// A received reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueReply {
    Done,
    Confirmed(u32),
    Counted(u32),
    NotFound,
}

impl Client {
    pub(crate) fn new(queue: usize, shared: Shared, random: Random) -> Self {
        let queue = format!("queue-{queue}");
        Self { queue, shared, random, state: QueueState::Unknown, has_exchange: false, late: 0 }
    }

    /// Makes one request after the other until everything is healed.
    pub(crate) async fn run(mut self) {
        while !self.shared.lock().is_healed {
            let pause_ms = self.random.between(1, 150);
            sleep(Duration::from_millis(pause_ms)).await;
            let step = self.next_step();
            let places = self.shared.members();
            let place = self.random.of(&places);
            if self.shared.broker(place).is_none() {
                continue;
            }
            let answer =
                timeout(ANSWERED_WITHIN, send_request(name(place), &self.queue, step)).await;
            let (queue, trace) = (&self.queue, self.shared.lock().trace.clone());
            trace.note(format_args!("{queue}: {step:?} at {}: {answer:?}", name(place)));
            match answer {
                Ok(Ok(answer)) => match self.state.after(step, answer, &mut self.late) {
                    Ok(state) => {
                        self.state = state;
                        self.has_exchange |= matches!(step, Step::Bind);
                    }
                    Err(why) => {
                        let what = format!("{queue}, {step:?} at {}: {why}", name(place));
                        self.shared.lock().verdict.violated(Invariant::Catalog, what);
                    }
                },
                // A count changes nothing.
                Ok(Err(_)) | Err(_) if matches!(step, Step::Count) => {}
                // All messages were answered.
                Ok(Err(AmqpError::Refused { .. })) => self.state = QueueState::Unknown,
                Ok(Err(_)) | Err(_) => {
                    self.state = QueueState::Unknown;
                    if let Step::Publish(messages) | Step::PublishToExchange(messages) = step {
                        self.late += messages;
                    }
                }
            }
        }
    }

    fn next_step(&mut self) -> Step {
        match self.state {
            QueueState::Unknown => Step::Delete,
            QueueState::Deleted => Step::Declare,
            QueueState::Exists { .. } => match self.random.below(11) {
                0 | 1 => Step::Delete,
                2 | 3 => Step::Count,
                4 => Step::Declare,
                5 => Step::Bind,
                6 | 7 if self.has_exchange => {
                    Step::PublishToExchange(self.random.between(1, 5) as u32)
                }
                _ => Step::Publish(self.random.between(1, 5) as u32),
            },
        }
    }
}

impl QueueState {
    /// The queue's state after a reply, or the reason why the reply is wrong.
    fn after(self, step: Step, answer: QueueReply, late: &mut u32) -> Result<Self, String> {
        match (step, self, answer) {
            (Step::Delete, _, QueueReply::Done) => Ok(Self::Deleted),
            (Step::Declare, Self::Deleted, QueueReply::Done) => {
                Ok(Self::Exists { messages: 0, is_bound: false })
            }
            (Step::Declare, _, QueueReply::Done) => Ok(self),
            (Step::Bind, Self::Exists { messages, .. }, QueueReply::Done) => {
                Ok(Self::Exists { messages, is_bound: true })
            }
            (
                Step::Publish(_),
                Self::Exists { messages, is_bound },
                QueueReply::Confirmed(more),
            ) => Ok(Self::Exists { messages: messages + more, is_bound }),
            (
                Step::PublishToExchange(_),
                Self::Exists { messages, is_bound },
                QueueReply::Confirmed(more),
            ) => {
                let routed = if is_bound { more } else { 0 };
                Ok(Self::Exists { messages: messages + routed, is_bound })
            }
            (Step::Count, Self::Exists { messages, is_bound }, QueueReply::Counted(found))
                if (messages..=messages + *late).contains(&found) =>
            {
                *late -= found - messages;
                Ok(Self::Exists { messages: found, is_bound })
            }
            _ => Err(format!("{answer:?}, and the queue is {self:?}")),
        }
    }
}

/// The exchange of a queue.
fn exchange(queue: &str) -> String {
    format!("exchange-of-{queue}")
}

/// Uses a new connection. A rejected message is an error: the queue's state is unknown then.
async fn send_request(host: &str, queue: &str, step: Step) -> Result<QueueReply, AmqpError> {
    let mut channel = network::amqp_at(host, Mode::Confirms).await?;
    let answer = match step {
        Step::Declare => channel.declare(&[queue.to_owned()], &[]).await.map(|()| QueueReply::Done),
        Step::Delete => channel.delete(queue).await.map(|()| QueueReply::Done),
        Step::Bind => {
            let sink = format!("sink-of-{queue}");
            let declared = channel.declare(std::slice::from_ref(&sink), &[]).await;
            let queues = [sink, queue.to_owned()];
            match declared {
                Ok(()) => {
                    channel.fan_out(&exchange(queue), &queues).await.map(|()| QueueReply::Done)
                }
                Err(error) => Err(error),
            }
        }
        Step::PublishToExchange(messages) => {
            for _ in 0..messages {
                channel.publish(&exchange(queue), "", b"message");
            }
            channel.all_confirmed().await.map(|()| QueueReply::Confirmed(messages))
        }
        Step::Count => channel.ready(queue).await.map(QueueReply::Counted),
        Step::Publish(messages) => {
            let queues = vec![queue.to_owned(); messages as usize];
            channel
                .publish_to_each(&queues, b"message")
                .await
                .map(|()| QueueReply::Confirmed(messages))
        }
    };
    match answer {
        Err(AmqpError::Closed { code: NOT_FOUND, .. }) => Ok(QueueReply::NotFound),
        answer => {
            let _ = channel.close().await;
            answer
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue without a binding that has this number of messages.
    fn with(messages: u32) -> QueueState {
        QueueState::Exists { messages, is_bound: false }
    }

    #[test]
    fn message_to_the_exchange_reaches_a_bound_queue_only() {
        let after = |state: QueueState, step, answer| state.after(step, answer, &mut 0);
        let published = |state| (state, Step::PublishToExchange(2), QueueReply::Confirmed(2));
        let (state, step, answer) = published(with(3));
        assert_eq!(after(state, step, answer), Ok(with(3)));
        let bound = after(state, Step::Bind, QueueReply::Done).expect("it is bound");
        let more = after(bound, step, answer).expect("it is confirmed");
        assert_eq!(more, QueueState::Exists { messages: 5, is_bound: true });
        assert!(after(more, Step::Count, QueueReply::Counted(3)).is_err());
    }

    #[test]
    fn lost_messages_missing_queues_and_returned_messages_are_violations() {
        let (exists, mut late) = (with(3), 0);
        let mut after = |state: QueueState, step, answer| state.after(step, answer, &mut late);
        assert_eq!(after(exists, Step::Count, QueueReply::Counted(3)), Ok(exists));
        for answer in [QueueReply::Counted(2), QueueReply::Counted(4), QueueReply::NotFound] {
            assert!(after(exists, Step::Count, answer).is_err(), "{answer:?}");
        }
        let more = after(exists, Step::Publish(2), QueueReply::Confirmed(2));
        assert_eq!(more, Ok(with(5)));
        let deleted = after(exists, Step::Delete, QueueReply::Done).expect("it is deleted");
        assert_eq!(after(deleted, Step::Declare, QueueReply::Done), Ok(with(0)));
        assert!(after(deleted, Step::Publish(1), QueueReply::Confirmed(1)).is_err());
    }

    #[test]
    fn message_without_a_reply_may_arrive_once() {
        let (exists, mut late) = (with(3), 1);
        let more = exists.after(Step::Count, QueueReply::Counted(4), &mut late);
        assert_eq!((more.clone(), late), (Ok(with(4)), 0));
        let more = more.expect("counted").after(Step::Count, QueueReply::Counted(5), &mut late);
        assert!(more.is_err());
    }
}
