//! Fixture of a conformance scenario: its own topology, senders, receivers, and helpers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{
    About, DeliveryId, Driver, Lanes, Message, Received, Receiver, Return, Sender, Settle, Style,
    Target, Tier, Topology,
};

use super::{Fault, wrong};
use crate::connect;

/// Time limit for a message that is available.
const PATIENCE: Duration = Duration::from_secs(15);
/// Lease of all topologies: short, since some scenarios wait for its end.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// Largest delay of a redelivery after its lease. Some servers have a minimum lease of 15 s.
pub(super) const GRACE: Duration = Duration::from_secs(20);
/// Time in which a consumer group rebalances after a join.
const JOINING: Duration = Duration::from_secs(6);

pub(super) struct Scene {
    pub(super) target: Target,
    pub(super) about: About,
    pub(super) topology: Topology,
}

impl Scene {
    pub(super) fn new(target: &Target, about: &About, style: Style, tier: Tier) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (run, story) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let salt: u16 = rand::random();
        let mut topology = Topology::new(&format!("conform-{run}-{salt}-{story}"), style, tier);
        topology.lease = LEASE;
        Self { target: target.clone(), about: about.clone(), topology }
    }

    /// Creates the topology and returns a stage on it.
    pub(super) async fn open(self) -> Result<Stage, Fault> {
        let driver = connect(&self.target)?;
        driver.create(&self.topology).await?;
        Ok(Stage { driver, scene: self })
    }
}

/// A scene with an existing topology.
pub(super) struct Stage {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) scene: Scene,
}

impl Stage {
    pub(super) async fn sender(&self) -> Result<Box<dyn Sender>, Fault> {
        Ok(self.driver.sender(&self.scene.topology).await?)
    }

    pub(super) async fn receiver(&self, subscription: u32) -> Result<Box<dyn Receiver>, Fault> {
        Ok(self.driver.receiver(&self.scene.topology, &[0], subscription).await?)
    }

    /// Whether the system drops a message without a receiver.
    pub(super) fn forgets(&self) -> bool {
        self.scene.about.returns == Return::Never
    }

    /// Lets receivers that divide partitions rebalance, and receivers of systems without storage
    /// begin to listen.
    pub(super) async fn gather_receivers(
        &self,
        receivers: &mut [Box<dyn Receiver>],
    ) -> Result<(), Fault> {
        let divides = self.scene.about.lanes == Lanes::Partitioned;
        let until = Instant::now() + if divides { JOINING } else { Duration::ZERO };
        let polls = receivers.iter_mut().map(|receiver| async move {
            loop {
                let early = receiver.receive(1).await?;
                if !early.is_empty() {
                    return wrong("something came before anything was sent");
                }
                if Instant::now() >= until {
                    return Ok(());
                }
            }
        });
        futures_util::future::try_join_all(polls).await?;
        Ok(())
    }

    /// A new driver for the same topology.
    pub(super) async fn reconnected(self) -> Result<Self, Fault> {
        let Self { driver, scene } = self;
        drop(driver);
        Ok(Self { driver: connect(&scene.target)?, scene })
    }

    pub(super) async fn end(self) -> Result<(), Fault> {
        Ok(self.driver.remove(&self.scene.topology).await?)
    }
}

pub(super) fn message(lane: u32, text: impl Into<String>) -> Message {
    Message { lane, body: Bytes::from(text.into()) }
}

/// `count` messages of one lane, with bodies `word-0`, `word-1`, ...
pub(super) fn messages(word: &str, count: usize) -> Vec<Message> {
    (0..count).map(|number| message(0, format!("{word}-{number}"))).collect()
}

/// Receives this many messages, and fails if they do not arrive in time.
pub(super) async fn take(
    receiver: &mut Box<dyn Receiver>,
    count: usize,
) -> Result<Vec<Received>, Fault> {
    take_within(receiver, count, PATIENCE).await
}

pub(super) async fn take_within(
    receiver: &mut Box<dyn Receiver>,
    count: usize,
    patience: Duration,
) -> Result<Vec<Received>, Fault> {
    let deadline = Instant::now() + patience;
    let mut taken = Vec::new();
    while taken.len() < count {
        let wanted = count - taken.len();
        let came = receiver.receive(wanted).await?;
        if came.len() > wanted {
            return wrong(format!("{} came where {wanted} were asked for", came.len()));
        }
        taken.extend(came);
        if taken.len() < count && Instant::now() > deadline {
            return wrong(format!("{} of {count} came within {patience:?}", taken.len()));
        }
    }
    Ok(taken)
}

/// Settles each message on its arrival: the lease of the first may end before the last arrives.
pub(super) async fn consume_within(
    receiver: &mut Box<dyn Receiver>,
    count: usize,
    patience: Duration,
) -> Result<Vec<Received>, Fault> {
    let deadline = Instant::now() + patience;
    let mut consumed = Vec::new();
    while consumed.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        let came = take_within(receiver, 1, left).await?;
        accept(receiver, &came).await?;
        consumed.extend(came);
    }
    Ok(consumed)
}

/// Receives this many messages by all receivers together. Returns those of each.
pub(super) async fn take_by_any(
    receivers: &mut [Box<dyn Receiver>],
    count: usize,
    patience: Duration,
) -> Result<Vec<Vec<Received>>, Fault> {
    let deadline = Instant::now() + patience;
    let mut taken = vec![Vec::new(); receivers.len()];
    let mut left = count;
    while left > 0 {
        for (receiver, taken) in receivers.iter_mut().zip(&mut taken) {
            if left > 0 {
                let came = receiver.receive(left).await?;
                left = left.saturating_sub(came.len());
                taken.extend(came);
            }
        }
        if left > 0 && Instant::now() > deadline {
            return wrong(format!("{} of {count} came within {patience:?}", count - left));
        }
    }
    Ok(taken)
}

/// Fails if a message arrives within the duration.
pub(super) async fn nothing_comes(
    receiver: &mut Box<dyn Receiver>,
    duration: Duration,
) -> Result<(), Fault> {
    let deadline = Instant::now() + duration;
    loop {
        let came = receiver.receive(100).await?;
        if let Some(first) = came.first() {
            let body = String::from_utf8_lossy(&first.body);
            return wrong(format!("{} came, the first of them {body:?}", came.len()));
        }
        if Instant::now() > deadline {
            return Ok(());
        }
    }
}

pub(super) async fn accept(
    receiver: &mut Box<dyn Receiver>,
    received: &[Received],
) -> Result<(), Fault> {
    let settles: Vec<(DeliveryId, Settle)> =
        received.iter().map(|received| (received.id, Settle::Accept)).collect();
    Ok(receiver.settle(&settles).await?)
}

/// Fails unless the bodies equal those of the messages, including duplicates, in any order.
pub(super) fn same_bodies<'a>(
    received: impl IntoIterator<Item = &'a Received>,
    sent: &[Message],
) -> Result<(), Fault> {
    let mut missing: BTreeMap<&[u8], i32> = BTreeMap::new();
    for message in sent {
        *missing.entry(&message.body).or_default() += 1;
    }
    for received in received {
        *missing.entry(&received.body).or_default() -= 1;
    }
    let odd = missing.into_iter().find(|(_, count)| *count != 0);
    match odd {
        None => Ok(()),
        Some((body, count)) => {
            let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            let what = if count > 0 { "did not come" } else { "came too often" };
            wrong(format!("{start:?} ({} bytes) {what}", body.len()))
        }
    }
}
