//! Faults on nodes, one after the other, and their records: the node, the destinations that it led,
//! the time of the fault, and the time until all copies were in sync again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use driver::{Driver, Failure, Replication, Topology};
use load::clock::Clock;

use crate::context::Faults;
use crate::outage::Fault;

/// Time limit for the servers to report all leaders: an election may be in progress.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Record of one fault.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Strike {
    /// Number of the node; the first one is 1.
    pub(super) node: u32,
    /// By destination: whether the node was its leader.
    pub(super) led: Vec<bool>,
    /// Times of the signal, and of its effect, by the clock of stamps.
    pub(super) fault_ns: u64,
    pub(super) happened_ns: u64,
    /// When it was started again, or resumed.
    pub(super) back_ns: Option<u64>,
    /// Time from then until all copies were in sync.
    pub(super) whole: Option<Duration>,
}

/// All faults so far, and the parameters of the next.
#[derive(Clone, Debug)]
pub(super) struct Strikes {
    pub(super) fault: Fault,
    pub(super) topology: Topology,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) faults: Arc<dyn Faults>,
    /// Time limit for a node to catch up.
    pub(super) whole_within: Duration,
    pub(super) done: Arc<Mutex<Vec<Strike>>>,
}

impl Strikes {
    pub(super) fn done(&self) -> Vec<Strike> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Strikes the next node in turn that leads any destination.
    pub(super) async fn strike(self) -> Result<(), String> {
        let replication = self.leaders().await.map_err(|failure| failure.to_string())?;
        let last = self.done().last().map_or(0, |strike| strike.node);
        let node = next(&replication, last, self.faults.nodes())
            .ok_or("no node of the cluster leads anything")?;
        let struck = self.fault.strike(&*self.faults, node).await?;
        let happened_ns = Clock::default().now_ns();
        let leads = |it: &Replication| it.leader == Some(node as usize - 1);
        let strike = Strike {
            node,
            led: replication.iter().map(leads).collect(),
            fault_ns: happened_ns.saturating_sub(struck.elapsed().as_nanos() as u64),
            happened_ns,
            back_ns: None,
            whole: None,
        };
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(strike);
        Ok(())
    }

    /// Brings back the node that was struck last.
    pub(super) async fn back(self) -> Result<(), String> {
        let Some(strike) = self.done().pop() else { return Ok(()) };
        self.note(|strike| strike.back_ns = Some(Clock::default().now_ns()));
        self.fault.end(&*self.faults, strike.node).await
    }

    /// Waits until every destination has all of its copies again. A timeout is recorded, and does
    /// not end the load.
    pub(super) async fn whole(self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < self.whole_within {
            let asked = self.driver.replication(&self.topology).await;
            let whole = asked.is_ok_and(|all| {
                all.iter().all(|it| it.leader.is_some() && it.in_sync >= self.topology.replicas)
            });
            if whole {
                let now_ns = Clock::default().now_ns();
                self.note(|strike| {
                    let since = strike.back_ns.map(|back_ns| now_ns.saturating_sub(back_ns));
                    strike.whole = since.map(Duration::from_nanos);
                });
                return Ok(());
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
        Ok(())
    }

    fn note(&self, what: impl FnOnce(&mut Strike)) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(strike) = done.last_mut() {
            what(strike);
        }
    }

    /// Returns the leaders, once every destination has one.
    async fn leaders(&self) -> Result<Vec<Replication>, Failure> {
        let begun = Instant::now();
        loop {
            let asked = self.driver.replication(&self.topology).await;
            let led = |all: &Vec<Replication>| all.iter().all(|it| it.leader.is_some());
            if asked.as_ref().is_ok_and(led) || begun.elapsed() > TOLD_WITHIN {
                return asked;
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }
}

/// The next node in turn after `last` that leads any destination.
fn next(replication: &[Replication], last: u32, nodes: u32) -> Option<u32> {
    let mut in_turns = (0..nodes).map(|step| (last + step) % nodes + 1);
    let leads = |node: &u32| {
        let place = *node as usize - 1;
        replication.iter().any(|it| it.leader == Some(place))
    };
    in_turns.find(leads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led_by(leaders: &[Option<usize>]) -> Vec<Replication> {
        leaders.iter().map(|&leader| Replication { leader, in_sync: 3 }).collect()
    }

    #[test]
    fn strikes_take_turns_and_skip_nodes_that_lead_nothing() {
        let all = led_by(&[Some(0), Some(1), Some(2)]);
        assert_eq!([0, 1, 2, 3].map(|last| next(&all, last, 3)), [1, 2, 3, 1].map(Some));
        let two = led_by(&[Some(0), Some(2), None]);
        assert_eq!([0, 1, 2, 3].map(|last| next(&two, last, 3)), [1, 3, 3, 1].map(Some));
        assert_eq!(next(&led_by(&[None]), 0, 3), None);
    }
}
