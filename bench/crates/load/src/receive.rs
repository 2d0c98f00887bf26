//! A receiver's loop: receive, work, settle.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use driver::{DeliveryId, Driver, Received, Receiver, Settle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::ledger::{Came, Ledger};
use crate::payload::{Payload, Stamp};
use crate::plan::{Plan, Receivers, Work};
use crate::reconnect::reconnect;

const CLOSE_MAX: Duration = Duration::from_secs(15);

/// Instructions to all receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Go(Receivers),
    Stop,
}

/// Result of the future, or `None` once all receivers must stop. Nothing is in flight then, and a
/// receive would wait for the rest of its second.
pub(crate) async fn unless_stopped<T>(
    order: &watch::Receiver<Order>,
    wanted: impl Future<Output = T>,
) -> Option<T> {
    let mut order = order.clone();
    let stopped = async {
        if order.wait_for(|order| *order == Order::Stop).await.is_err() {
            // The sender is gone, so no stop will come.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        came = wanted => Some(came),
        () = stopped => None,
    }
}

#[derive(Debug)]
pub(crate) struct ReceiveTask {
    /// Number among all receivers.
    pub(crate) number: u32,
    pub(crate) destinations: Vec<u32>,
    pub(crate) subscription: u32,
    pub(crate) plan: Arc<Plan>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) payload: Arc<Payload>,
    pub(crate) order: watch::Receiver<Order>,
}

impl ReceiveTask {
    pub(crate) async fn run(mut self, receiver: Box<dyn Receiver>) {
        let mut receiver = Some(receiver);
        let mut random = SmallRng::from_os_rng();
        let mut left_once = HashSet::new();
        loop {
            let order = *self.order.borrow_and_update();
            let goes = match order {
                Order::Stop => break,
                Order::Go(Receivers::Running) => true,
                Order::Go(Receivers::Paused) => false,
                Order::Go(Receivers::Stalled { subscription }) => subscription != self.subscription,
            };
            if !goes {
                let _ = self.order.changed().await;
                continue;
            }
            let Some(current) = &mut receiver else {
                receiver = unless_stopped(&self.order, self.connect()).await.flatten();
                continue;
            };
            let turn = self.turn(current.as_mut(), &mut random, &mut left_once);
            if let Err(failure) = turn.await {
                self.ledger.recorder.error("receive", &failure);
                self.ledger.disturb();
                if let Some(broken) = receiver.take() {
                    tokio::spawn(tokio::time::timeout(CLOSE_MAX, broken.close()));
                }
            }
        }
        let Some(receiver) = receiver else { return };
        match tokio::time::timeout(CLOSE_MAX, receiver.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => self.ledger.recorder.error("close a receiver", &failure),
            Err(_) => self.ledger.recorder.error("close a receiver", &"it did not end in time"),
        }
    }

    async fn connect(&self) -> Option<Box<dyn Receiver>> {
        let Self { plan, destinations, subscription, .. } = self;
        let made =
            reconnect(self.driver.receiver(&plan.topology, destinations, *subscription)).await;
        made.inspect_err(|failure| self.ledger.recorder.error("reconnect a receiver", failure)).ok()
    }

    async fn turn(
        &self,
        receiver: &mut dyn Receiver,
        random: &mut SmallRng,
        left_once: &mut HashSet<(u16, u64)>,
    ) -> Result<(), driver::Failure> {
        let receiving = receiver.receive(self.plan.receive_max);
        let messages = unless_stopped(&self.order, receiving).await.unwrap_or(Ok(Vec::new()))?;
        if messages.is_empty() {
            return Ok(());
        }
        let came = self.note(&messages);
        take_time(&self.plan.work, messages.len(), random).await;
        let mut settles = Vec::with_capacity(messages.len());
        let mut accepted = Vec::with_capacity(messages.len());
        for (message, came) in messages.iter().zip(came) {
            let verdict = self.verdict(came, random, left_once);
            let Some(settle) = verdict else { continue };
            settles.push((message.id, settle));
            if let (Settle::Accept, Some(came)) = (settle, came) {
                accepted.push(came.stamp);
            }
        }
        self.settle(receiver, &settles, &accepted).await
    }

    fn note(&self, messages: &[Received]) -> Vec<Option<Came>> {
        let read: Vec<_> = messages
            .iter()
            .map(|message| (self.payload.read(&message.body), message.redelivered))
            .collect();
        self.ledger.came(self.number as usize, self.subscription, &read)
    }

    /// How to settle a message; `None`: it is left unsettled.
    fn verdict(
        &self,
        came: Option<Came>,
        random: &mut SmallRng,
        left_once: &mut HashSet<(u16, u64)>,
    ) -> Option<Settle> {
        let work = &self.plan.work;
        if came.is_some_and(|came| work.is_poison(came.stamp.sequence)) {
            self.ledger.disturb();
            return Some(Settle::Release);
        }
        let (share, settle) = match work {
            Work::Forget { share } => (*share, None),
            Work::Release { share } => (*share, Some(Settle::Release)),
            Work::None | Work::Poison { .. } | Work::Take(_) => return Some(Settle::Accept),
        };
        let Some(Came { stamp, first: true }) = came else { return Some(Settle::Accept) };
        if random.random_bool(share.clamp(0.0, 1.0))
            && left_once.insert((stamp.sender, stamp.sequence))
        {
            self.ledger.disturb();
            return settle;
        }
        Some(Settle::Accept)
    }

    async fn settle(
        &self,
        receiver: &mut dyn Receiver,
        settles: &[(DeliveryId, Settle)],
        accepted: &[Stamp],
    ) -> Result<(), driver::Failure> {
        receiver.settle(settles).await?;
        self.ledger.settled(self.number as usize, self.subscription, accepted);
        Ok(())
    }
}

/// Waits as long as the slowest of `messages` messages that are worked on concurrently.
pub(crate) async fn take_time(work: &Work, messages: usize, random: &mut SmallRng) {
    let Work::Take(mix) = work else { return };
    let mut one = || {
        let mut at = random.random::<f64>();
        let of = mix.iter().find(|(share, _)| {
            at -= share;
            at <= 0.0
        });
        of.map_or(Duration::ZERO, |(_, time)| random.random_range(time.clone()))
    };
    let slowest = (0..messages).map(|_| one()).max().unwrap_or_default();
    tokio::time::sleep(slowest).await;
}
