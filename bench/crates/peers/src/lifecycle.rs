//! Life cycle of one process: checks before the start, the wait for readiness, and the end of the
//! process with all its descendants.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tier::Tier;

use crate::errors::{StartError, StopError};
use crate::identity::Identity;
use crate::launch::{Launch, last_lines};
use crate::peer::CLUSTER;
use crate::{Peer, Process, ports};

/// Time limit of a graceful stop.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Time limit after SIGKILL.
const DIES_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(crate) fn can_hold(peer: &'static Peer, tier: Tier, nodes: u32) -> Result<(), StartError> {
    let clustered = !peer.cluster_tiers.is_empty();
    if nodes != 1 && !(clustered && nodes == CLUSTER) {
        let can = if clustered { "1 or 3" } else { "1" };
        return Err(StartError::Nodes { peer: peer.name, asked: nodes, can });
    }
    if peer.tiers_of(nodes).contains(&tier) {
        return Ok(());
    }
    let names = |tiers: &[Tier]| tiers.iter().map(Tier::to_string).collect::<Vec<_>>().join(", ");
    let mut can = format!("{} on 1 node", names(peer.tiers));
    if clustered {
        can += &format!("; {} on {CLUSTER} nodes", names(peer.cluster_tiers));
    }
    Err(StartError::Tier { peer: peer.name, asked: tier, nodes, can })
}

pub(crate) fn ensure_ports_free(peer: &'static Peer, launch: &Launch) -> Result<(), StartError> {
    for &port in &launch.ports {
        if let Some(by) = ports::owner(port) {
            return Err(StartError::PortTaken { peer: peer.name, port, by });
        }
    }
    Ok(())
}

/// Waits until the process serves; the returned identity has its program.
pub(crate) fn wait_until_ready(
    peer: &'static Peer,
    launch: &Launch,
    identity: &Identity,
    live_nodes: u32,
) -> Result<Identity, StartError> {
    let (node, log) = (launch.node, launch.log.clone());
    let begun = Instant::now();
    loop {
        if identity.ended_within(Duration::ZERO) {
            let details = last_lines(&log);
            return Err(StartError::Ended { peer: peer.name, node, log, details });
        }
        if launch.ready.probe(live_nodes) {
            return Ok(identity.clone().with_program());
        }
        if begun.elapsed() > launch.ready_within {
            let (within, details) = (launch.ready_within, last_lines(&log));
            return Err(StartError::NotReady { peer: peer.name, node, within, log, details });
        }
        std::thread::sleep(ASK_AGAIN_AFTER);
    }
}

/// Ends processes and their descendants, gracefully if `in_order`, and then by SIGKILL. All are
/// signalled before any is waited for, since the last node of a cluster would wait for the others.
/// Returns the time of the signal.
pub(crate) fn end(
    peer: &'static Peer,
    processes: &[&Process],
    in_order: bool,
) -> Result<Instant, StopError> {
    // Taken before they end, because their children lose their parents then.
    let members: Vec<Identity> =
        processes.iter().flat_map(|process| process.identity.tree()).collect();
    let begun = Instant::now();
    if in_order {
        for process in processes {
            if let Some(signal) = Signal::from_named_raw(process.ending) {
                process.identity.signal(signal);
            }
        }
        for process in processes {
            process.identity.ended_within(ENDS_WITHIN.saturating_sub(begun.elapsed()));
        }
    }
    for member in &members {
        member.signal(Signal::KILL);
    }
    for member in &members {
        if !member.ended_within(DIES_WITHIN) {
            return Err(StopError::DoesNotEnd {
                peer: peer.name,
                pid: member.pid,
                why: "it waits for a device, or belongs to another user".to_owned(),
            });
        }
    }
    Ok(begun)
}
