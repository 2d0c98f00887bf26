//! What is done to one node of a peer while the others go on, and what a node can be asked.

use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::errors::{StartError, StopError};
use crate::lifecycle::{end, free_ports, serves};
use crate::running::BROKER;
use crate::{Peers, Process, Running, catalog};

impl Peers {
    /// Stops one node in order; the others go on. When it was told to.
    pub fn stop_node(&self, name: &str, node: u32) -> Result<Instant, StopError> {
        self.end_node(name, node, true)
    }

    /// Kills one node as a power cut would, but for what is in the page cache (`kill -9`). When it
    /// was.
    pub fn kill(&self, name: &str, node: u32) -> Result<Instant, StopError> {
        self.end_node(name, node, false)
    }

    /// Stops all processes of one node where they are (SIGSTOP): its connections stay open, and
    /// nobody answers. When they were.
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

    /// Lets a paused node go on.
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

    /// The broker of a node that runs.
    fn broker(&self, name: &str, node: u32) -> Result<Process, StopError> {
        let peer = catalog::find(name)?.peer();
        let running = self.live(peer).ok_or(StopError::NotRunning { peer: peer.name })?;
        let broker = running.broker(node).filter(|broker| broker.identity.runs());
        broker.cloned().ok_or(StopError::NoNode { peer: peer.name, node })
    }

    /// Starts a node that was stopped or killed, on its data, and waits until it serves.
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
        // A helper that has ended (a name server, say) is of no node, and needed by all.
        for launch in &plan.helpers {
            let same = |process: &&mut Process| process.role == launch.role;
            let Some(helper) = running.processes.iter_mut().find(same) else { continue };
            if !helper.identity.runs() {
                free_ports(peer, launch)?;
                helper.identity = launch.spawn()?;
                helper.identity = serves(peer, launch, &helper.identity, 1)?;
            }
        }
        let Some(launch) = plan.nodes.iter().find(|launch| launch.node == node) else {
            return Err(StartError::NoNode { peer: peer.name, node });
        };
        free_ports(peer, launch)?;
        running.processes[index].identity = launch.spawn()?;
        self.record(peer, &running)?;
        let identity =
            serves(peer, launch, &running.processes[index].identity, running.live_nodes())?;
        running.processes[index].identity = identity;
        self.record(peer, &running)?;
        Ok(running)
    }

    /// The program by which this peer, which must run, is asked and told things; the caller adds
    /// what. `None` if the peer has none here.
    pub fn console(&self, name: &str) -> Result<Option<Command>, StartError> {
        let system = catalog::find(name)?;
        let peer = system.peer();
        let running = self.live(peer).ok_or(StartError::NoNode { peer: peer.name, node: 1 })?;
        system.console(&self.site(peer, running.tier, running.nodes))
    }
}
