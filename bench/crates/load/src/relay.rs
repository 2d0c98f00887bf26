//! A stage between senders and receivers: receives messages of one topology, works on them,
//! forwards them to another, and only then settles them. At least once: messages are redelivered
//! after a failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use driver::{Driver, Failure, Message, Received, Receiver, Sender, Settle};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::watch;

use crate::ledger::Ledger;
use crate::payload::Payload;
use crate::plan::{Plan, Relay};
use crate::receive::{Order, take_time, unless_stopped};
use crate::reconnect::reconnect;

const CLOSE_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct RelayTask {
    pub(crate) plan: Arc<Plan>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) payload: Arc<Payload>,
    pub(crate) order: watch::Receiver<Order>,
}

/// Receiver and sender of a stage.
#[derive(Debug)]
pub(crate) struct Ends {
    receiver: Box<dyn Receiver>,
    sender: Box<dyn Sender>,
}

impl RelayTask {
    pub(crate) async fn connect(&self) -> Result<Ends, Failure> {
        let from = &self.relay.from;
        let all: Vec<u32> = (0..from.destinations).collect();
        let receiver = self.driver.receiver(from, &all, 0).await?;
        let sender = self.driver.sender(&self.plan.topology).await?;
        Ok(Ends { receiver, sender })
    }

    pub(crate) async fn run(mut self, ends: Ends) {
        let mut ends = Some(ends);
        let mut random = SmallRng::from_os_rng();
        loop {
            // A pause is meant for the final receivers; the stage continues.
            if *self.order.borrow_and_update() == Order::Stop {
                break;
            }
            let Some(current) = &mut ends else {
                let made = unless_stopped(&self.order, reconnect(self.connect())).await;
                let note = |failure: &Failure| self.ledger.recorder.error("reconnect", failure);
                ends = made.and_then(|made| made.inspect_err(note).ok());
                continue;
            };
            if let Err(failure) = self.turn(current, &mut random).await {
                self.ledger.recorder.error("relay", &failure);
                self.ledger.disturb();
                if let Some(broken) = ends.take() {
                    tokio::spawn(tokio::time::timeout(CLOSE_MAX, close(broken)));
                }
            }
        }
        if let Some(ends) = ends {
            match tokio::time::timeout(CLOSE_MAX, close(ends)).await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => self.ledger.recorder.error("close a relay", &failure),
                Err(_) => self.ledger.recorder.error("close a relay", &"it did not end in time"),
            }
        }
    }

    async fn turn(&self, ends: &mut Ends, random: &mut SmallRng) -> Result<(), Failure> {
        let receiving = ends.receiver.receive(self.relay.receive_max);
        let messages = unless_stopped(&self.order, receiving).await.unwrap_or(Ok(Vec::new()))?;
        if messages.is_empty() {
            return Ok(());
        }
        take_time(&self.relay.work, messages.len(), random).await;
        for (destination, batch) in self.by_destination(&messages) {
            ends.sender.send(destination, &batch).await?;
        }
        let settles: Vec<_> = messages.iter().map(|message| (message.id, Settle::Accept)).collect();
        ends.receiver.settle(&settles).await
    }

    /// Messages to forward, in the order of their arrival.
    fn by_destination(&self, messages: &[Received]) -> BTreeMap<u32, Vec<Message>> {
        let mut batches: BTreeMap<u32, Vec<Message>> = BTreeMap::new();
        for message in messages {
            // Damaged messages are forwarded, and detected at the end.
            let lane = self.payload.read(&message.body).map_or(0, |stamp| stamp.lane);
            let destination = lane / self.plan.lanes;
            let destination = destination.min(self.plan.topology.destinations - 1);
            let message = Message { lane, body: message.body.clone() };
            batches.entry(destination).or_default().push(message);
        }
        batches
    }
}

async fn close(ends: Ends) -> Result<(), Failure> {
    let sent = ends.sender.close().await;
    ends.receiver.close().await.and(sent)
}
