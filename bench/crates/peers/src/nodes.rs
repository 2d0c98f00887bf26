//! Operations on one node of a peer while the others keep running.

use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::errors::{StartError, StopError};
use crate::lifecycle::{end, ensure_ports_free, wait_until_ready};
use crate::running::BROKER;
use crate::{Peers, Process, Running, catalog};

impl Peers {
    /// Stops one node gracefully; the others keep running. Returns the time of the signal.
    pub fn stop_node(&self, name: &str, node: u32) -> Result<Instant, StopError> {
        self.end_node(name, node, true)
    }

    /// Kills one node (`kill -9`), which is like a power cut that spares the page cache. Returns
    /// the time of the signal.
    pub fn kill(&self, name: &str, node: u32) -> Result<Instant, StopError> {
        self.end_node(name, node, false)
    }

    /// Suspends all processes of one node (SIGSTOP): its connections stay open, but nothing
    /// replies. Returns the time of the signal.
    pub fn pause(&self, name: &str, node: u32) -> Result<Instant, StopError> {
        let broker = self.broker(name, node)?;
        let members = broker.identity.tree();
        let paused = Instant::now();
        for member in &members {
            // It may have ended by itself meanwhile.
            member.signal(Signal::STOP);
        }
        Ok(paused)
    }

    /// Resumes a paused node.
    pub fn resume(&self, name: &str, node: u32) -> Result<(), StopError> {
        let broker = self.broker(name, node)?;
        for member in broker.identity.tree() {
            member.signal(Signal::CONT);
        }
        Ok(())
    }

    fn end_node(&self, name: &str, node: u32, in_order: bool) -> Result<Instant, StopError> {
        let peer = catalog::find(name)?.peer();
        end(peer, &[&self.broker(name, node)?], in_order)
    }

    /// The broker process of a running node.
    fn broker(&self, name: &str, node: u32) -> Result<Process, StopError> {
        let peer = catalog::find(name)?.peer();
        let running = self.live(peer).ok_or(StopError::NotRunning { peer: peer.name })?;
        let broker = running.broker(node).filter(|broker| broker.identity.runs());
        broker.cloned().ok_or(StopError::NoNode { peer: peer.name, node })
    }

    /// Starts a stopped or killed node on its data, and waits until it serves.
    pub fn restart(&self, name: &str, node: u32) -> Result<Running, StartError> {
        let system = catalog::find(name)?;
        let peer = system.peer();
        let no_node = StartError::NoNode { peer: peer.name, node };
        let Some(mut running) = self.recorded(peer) else { return Err(no_node) };
        let Some(index) = running
            .processes
            .iter()
            .position(|process| process.role == BROKER && process.node == node)
        else {
            return Err(no_node);
        };
        if running.processes[index].identity.runs() {
            return Err(StartError::NodeRuns { peer: peer.name, node });
        }
        let site = self.site(peer, running.tier, running.nodes);
        let plan = system.plan(&site)?;
        // An ended helper (a name server, for example) belongs to no node, and all nodes need it.
        for launch in &plan.helpers {
            let same = |process: &&mut Process| process.role == launch.role;
            let Some(helper) = running.processes.iter_mut().find(same) else { continue };
            if !helper.identity.runs() {
                ensure_ports_free(peer, launch)?;
                helper.identity = launch.spawn()?;
                helper.identity = wait_until_ready(peer, launch, &helper.identity, 1)?;
            }
        }
        let Some(launch) = plan.nodes.iter().find(|launch| launch.node == node) else {
            return Err(StartError::NoNode { peer: peer.name, node });
        };
        ensure_ports_free(peer, launch)?;
        running.processes[index].identity = launch.spawn()?;
        self.record(peer, &running)?;
        let identity = wait_until_ready(
            peer,
            launch,
            &running.processes[index].identity,
            running.live_nodes(),
        )?;
        running.processes[index].identity = identity;
        self.record(peer, &running)?;
        Ok(running)
    }

    /// Command of the admin program of this peer, which must run; the caller adds arguments. `None`
    /// if the peer has none here.
    pub fn console(&self, name: &str) -> Result<Option<Command>, StartError> {
        let system = catalog::find(name)?;
        let peer = system.peer();
        let running = self.live(peer).ok_or(StartError::NoNode { peer: peer.name, node: 1 })?;
        system.console(&self.site(peer, running.tier, running.nodes))
    }
}
