//! Messages of a queue used by AMQP clients: published with confirms, settled in transactions.

use std::collections::BTreeMap;

use crate::verdict::{Invariant, Verdict};

pub type MessageId = u32;

#[derive(Debug, Default)]
pub struct Messages {
    messages: BTreeMap<MessageId, Message>,
    pub delivered: u64,
    pub settled: u64,
}

#[derive(Debug, Default)]
struct Message {
    confirmed: bool,
    /// The connection that holds it.
    holder: Option<u64>,
    /// Its settle was sent.
    acknowledged: bool,
    /// Its settle was committed.
    settled: bool,
}

impl Messages {
    pub fn publish(&mut self) -> MessageId {
        let id = self.messages.len() as MessageId;
        self.messages.insert(id, Message::default());
        id
    }

    pub fn confirm(&mut self, id: MessageId) {
        if let Some(message) = self.messages.get_mut(&id) {
            message.confirmed = true;
        }
    }

    pub fn confirmed(&self) -> usize {
        self.messages.values().filter(|message| message.confirmed).count()
    }

    pub fn deliver(&mut self, id: MessageId, connection: u64, verdict: &Verdict) {
        self.delivered += 1;
        let Some(message) = self.messages.get_mut(&id) else {
            return verdict.violated(Invariant::Once, format!("message {id} was never sent"));
        };
        let violated = |invariant, what: &str| {
            verdict.violated(invariant, format!("{what}: message {id}, {message:?}"));
        };
        if message.settled {
            violated(Invariant::Settled, "a settled message is delivered");
        }
        if message.holder.is_some() {
            violated(Invariant::Exclusive, "a message is delivered that a connection has");
        }
        message.holder = Some(connection);
    }

    /// To be called before the settle is sent.
    pub fn acknowledge(&mut self, id: MessageId) {
        if let Some(message) = self.messages.get_mut(&id) {
            message.acknowledged = true;
        }
    }

    /// To be called before the release is sent.
    pub fn give_back(&mut self, id: MessageId) {
        if let Some(message) = self.messages.get_mut(&id) {
            message.holder = None;
        }
    }

    pub fn settle(&mut self, id: MessageId) {
        self.settled += 1;
        if let Some(message) = self.messages.get_mut(&id) {
            (message.settled, message.holder) = (true, None);
        }
    }

    /// A connection is gone, and its unsettled messages may be redelivered.
    pub fn close(&mut self, connection: u64) {
        for message in self.messages.values_mut() {
            message.holder = message.holder.filter(|holder| *holder != connection);
        }
    }

    /// The node ended, and all connections with it.
    pub fn life_ends(&mut self) {
        self.messages.values_mut().for_each(|message| message.holder = None);
    }

    /// Checks the final state, once the queue is empty.
    pub fn check(&self, verdict: &Verdict) {
        for (id, message) in &self.messages {
            if message.confirmed && !message.acknowledged {
                let what = format!("message {id} is gone, and nobody settled it: {message:?}");
                verdict.violated(Invariant::Durable, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn judged(story: impl FnOnce(&mut Messages, &Verdict)) -> Option<Invariant> {
        let verdict = Verdict::new(Trace::default());
        let mut messages = Messages::default();
        let id = messages.publish();
        messages.confirm(id);
        story(&mut messages, &verdict);
        verdict.first().map(|violation| violation.invariant)
    }

    #[test]
    fn every_wrong_delivery_and_loss_of_a_message_is_detected() {
        let held = judged(|messages, verdict| {
            messages.deliver(0, 1, verdict);
            messages.deliver(0, 2, verdict);
        });
        assert_eq!(held, Some(Invariant::Exclusive));
        let settled = judged(|messages, verdict| {
            messages.deliver(0, 1, verdict);
            messages.acknowledge(0);
            messages.settle(0);
            messages.deliver(0, 2, verdict);
        });
        assert_eq!(settled, Some(Invariant::Settled));
        let unknown = judged(|messages, verdict| messages.deliver(9, 1, verdict));
        assert_eq!(unknown, Some(Invariant::Once));
        assert_eq!(judged(|messages, verdict| messages.check(verdict)), Some(Invariant::Durable));
    }

    #[test]
    fn message_may_be_redelivered_once_its_connection_is_gone() {
        let again = judged(|messages, verdict| {
            messages.deliver(0, 1, verdict);
            messages.close(1);
            messages.deliver(0, 2, verdict);
            messages.acknowledge(0);
            messages.check(verdict);
        });
        assert_eq!(again, None);
    }
}
