//! A sender's loops, from its first message to its last.

use std::sync::Arc;
use std::time::Duration;

use driver::{Confirmed, Driver, Failure, Message, Receipt, Sender};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::ledger::{Ledger, SenderAccount};
use crate::pacer::{Due, Schedule};
use crate::payload::Payload;
use crate::plan::{Pace, Plan};
use crate::reconnect::reconnect;

const PONG_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for the outcomes of a sender's last messages.
const CLOSE_MAX: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct SendTask {
    pub(crate) number: u16,
    pub(crate) plan: Arc<Plan>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) payload: Arc<Payload>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Schedule of a sender's messages.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) schedule: Schedule,
    /// Index among the senders of the schedule.
    pub(crate) place: usize,
    pub(crate) due: mpsc::UnboundedReceiver<Due>,
}

/// Chooses the destination and the lane of each message.
#[derive(Debug)]
struct Aim {
    destinations: Vec<u32>,
    lanes: u32,
    at: u64,
    random: SmallRng,
}

impl Aim {
    /// Destinations in turn; lanes at random, so that senders do not run in lockstep.
    fn destination(&mut self) -> u32 {
        self.at += 1;
        self.destinations[(self.at % self.destinations.len() as u64) as usize]
    }

    fn lane(&mut self, destination: u32) -> u32 {
        destination * self.lanes + self.random.random_range(0..self.lanes)
    }
}

/// Frees a place in the window when the message's outcome is known.
#[derive(Debug)]
struct Windowed {
    account: Arc<SenderAccount>,
    places: Semaphore,
}

impl Confirmed for Windowed {
    fn resolve(&self, number: u64, sent: Result<(), Failure>) {
        self.account.resolve(number, sent);
        self.places.add_permits(1);
    }
}

impl SendTask {
    pub(crate) async fn run(mut self, mut sender: Box<dyn Sender>, turn: Option<Turn>) {
        let mut aim = Aim {
            destinations: self.plan.share(self.number.into(), self.plan.senders.into()),
            lanes: self.plan.lanes,
            at: self.number.into(),
            random: SmallRng::from_os_rng(),
        };
        match (self.plan.pace, turn) {
            (Pace::Closed, _) | (Pace::Open { .. }, None) => {
                self.closed_loop(&mut sender, &mut aim).await;
            }
            (Pace::PingPong, _) => self.ping_pong(&mut sender, &mut aim).await,
            (Pace::Flood { window }, _) => self.flood(&mut sender, &mut aim, window).await,
            (Pace::Open { window, .. }, Some(turn)) => {
                self.open_loop(&mut sender, &mut aim, window, turn).await;
            }
        }
        close(sender, &self.ledger).await;
    }

    fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    fn account(&self) -> &Arc<SenderAccount> {
        &self.ledger.senders[usize::from(self.number)]
    }

    fn message(&self, aim: &mut Aim, destination: u32, due_ns: Option<u64>) -> (u64, Message) {
        let lane = aim.lane(destination);
        let stamp = self.account().next(lane, due_ns);
        let body = self.payload.body(stamp, &mut aim.random);
        (stamp.sequence, Message { lane, body })
    }

    async fn closed_loop(&mut self, sender: &mut Box<dyn Sender>, aim: &mut Aim) {
        while !self.stopped() {
            let destination = aim.destination();
            let count = aim.random.random_range(self.plan.batch.clone());
            let (numbers, messages): (Vec<u64>, Vec<Message>) =
                (0..count).map(|_| self.message(aim, destination, None)).unzip();
            let sent = sender.send(destination, &messages).await;
            for number in numbers {
                self.account().resolve(number, sent.clone());
            }
            self.mend(sender).await;
        }
    }

    async fn ping_pong(&mut self, sender: &mut Box<dyn Sender>, aim: &mut Aim) {
        while !self.stopped() {
            let destination = aim.destination();
            let (number, message) = self.message(aim, destination, None);
            let receipt = Receipt::new(Arc::clone(self.account()) as _, number);
            sender.post(destination, message, receipt).await;
            self.flush(sender).await;
            let ledger = Arc::clone(&self.ledger);
            tokio::select! {
                () = ledger.has_come(self.number, number) => {}
                // By then a missing message was rejected, or is left to the audit.
                () = tokio::time::sleep(PONG_WITHIN) => {}
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
            self.mend(sender).await;
        }
    }

    async fn flush(&self, sender: &mut Box<dyn Sender>) {
        if let Err(failure) = sender.flush().await {
            self.ledger.recorder.error("flush", &failure);
            self.account().mark_broken();
        }
    }

    async fn flood(&mut self, sender: &mut Box<dyn Sender>, aim: &mut Aim, window: usize) {
        let window = self.window(window);
        while self.place(&window).await {
            self.post(sender, aim, &window, None).await;
        }
    }

    async fn open_loop(
        &mut self,
        sender: &mut Box<dyn Sender>,
        aim: &mut Aim,
        window: usize,
        Turn { schedule, place, mut due }: Turn,
    ) {
        let window = self.window(window);
        loop {
            let told = tokio::select! {
                told = due.recv() => told,
                _ = self.stop.wait_for(|stop| *stop) => None,
            };
            let Some(Due { first, count }) = told else { return };
            for number in first..first + count {
                let due_ns = schedule.due_ns(place, number);
                if !self.place(&window).await {
                    return;
                }
                self.post(sender, aim, &window, Some(due_ns)).await;
            }
            if due.is_empty() {
                self.flush(sender).await;
            }
        }
    }

    fn window(&self, messages: usize) -> Arc<Windowed> {
        let account = Arc::clone(self.account());
        Arc::new(Windowed { account, places: Semaphore::new(messages) })
    }

    /// Waits for a place in the window; returns false when it is time to stop.
    async fn place(&mut self, window: &Windowed) -> bool {
        let permit = match window.places.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => tokio::select! {
                permit = window.places.acquire() => permit.ok(),
                _ = self.stop.wait_for(|stop| *stop) => None,
            },
        };
        permit.map(|permit| permit.forget()).is_some() && !self.stopped()
    }

    async fn post(
        &mut self,
        sender: &mut Box<dyn Sender>,
        aim: &mut Aim,
        window: &Arc<Windowed>,
        due_ns: Option<u64>,
    ) {
        let destination = aim.destination();
        let (number, message) = self.message(aim, destination, due_ns);
        let receipt = || Receipt::new(Arc::clone(window) as _, number);
        let again = aim.random.random_bool(self.plan.sent_twice).then(|| message.clone());
        sender.post(destination, message, receipt()).await;
        if let Some(message) = again
            && self.place(window).await
        {
            sender.post(destination, message, receipt()).await;
        }
        self.mend(sender).await;
    }

    /// Reopens a broken connection.
    async fn mend(&mut self, sender: &mut Box<dyn Sender>) {
        if !self.account().take_broken() {
            return;
        }
        self.ledger.disturb();
        while !self.stopped() {
            let made = tokio::select! {
                made = reconnect(self.driver.sender(self.plan.sent_to())) => made,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            match made {
                Ok(new) => {
                    let broken = std::mem::replace(sender, new);
                    let ledger = Arc::clone(&self.ledger);
                    tokio::spawn(async move { close(broken, &ledger).await });
                    // Late errors of the broken connection do not concern the new one.
                    self.account().take_broken();
                    return;
                }
                Err(failure) => self.ledger.recorder.error("reconnect a sender", &failure),
            }
        }
    }
}

async fn close(sender: Box<dyn Sender>, ledger: &Ledger) {
    match tokio::time::timeout(CLOSE_MAX, sender.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => ledger.recorder.error("close a sender", &failure),
        Err(_) => ledger.recorder.error("close a sender", &"it did not end in time"),
    }
}
