//! Reads the dead letters of a load: messages that its receivers released repeatedly.

use std::sync::Arc;
use std::time::Duration;

use driver::{Driver, Failure, Receiver, Settle};
use tokio::sync::watch;

use crate::ledger::Ledger;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::receive::{Order, unless_stopped};
use crate::reconnect::reconnect;

const CLOSE_MAX: Duration = Duration::from_secs(15);
const RECEIVE_MAX: usize = 100;

/// Counts of dead lettering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Burials {
    /// Messages that receivers release at each delivery.
    pub poison: u64,
    /// Poison messages that arrived as dead letters.
    pub buried: u64,
    /// Dead letters that no receiver released.
    pub sound: u64,
}

#[derive(Debug)]
pub(crate) struct BurialTask {
    /// Number among all receiving tasks.
    pub(crate) number: u32,
    pub(crate) plan: Arc<Plan>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) payload: Arc<Payload>,
    pub(crate) order: watch::Receiver<Order>,
}

impl BurialTask {
    pub(crate) async fn connect(&self) -> Result<Box<dyn Receiver>, Failure> {
        let topology = self.plan.topology.dead_letters();
        let all: Vec<u32> = (0..topology.destinations).collect();
        self.driver.receiver(&topology, &all, 0).await
    }

    pub(crate) async fn run(self, receiver: Box<dyn Receiver>) {
        let mut receiver = Some(receiver);
        while *self.order.borrow() != Order::Stop {
            let Some(current) = &mut receiver else {
                let note = |failure: &Failure| self.ledger.recorder.error("reconnect", failure);
                let made = unless_stopped(&self.order, reconnect(self.connect())).await;
                receiver = made.and_then(|made| made.inspect_err(note).ok());
                continue;
            };
            if let Err(failure) = self.turn(current.as_mut()).await {
                self.ledger.recorder.error("receive dead letters", &failure);
                receiver = None;
            }
        }
        let Some(receiver) = receiver else { return };
        if tokio::time::timeout(CLOSE_MAX, receiver.close()).await.is_err() {
            self.ledger.recorder.error("close a receiver", &"it did not end in time");
        }
    }

    async fn turn(&self, receiver: &mut dyn Receiver) -> Result<(), Failure> {
        let receiving = receiver.receive(RECEIVE_MAX);
        let messages = unless_stopped(&self.order, receiving).await.unwrap_or(Ok(Vec::new()))?;
        let settles: Vec<_> = messages.iter().map(|message| (message.id, Settle::Accept)).collect();
        receiver.settle(&settles).await?;
        let read = messages.iter().map(|message| self.payload.read(&message.body)).collect();
        self.ledger.buried(self.number as usize, read);
        Ok(())
    }
}
