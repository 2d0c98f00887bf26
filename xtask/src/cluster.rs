//! A cluster of nodes on this machine, three by default, whose nodes can be stopped and started again.

pub(crate) mod unrest;
mod wires;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::blocking::Connection;
use rustix::process::Signal;

use crate::failure::{Context, Failure, Outcome};
use crate::server::{self, Postroad, Server, StartingServer};
use wires::Wires;

pub(crate) const NODES: usize = 3;
/// Timeout of a request to a node.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeFault {
    /// `kill -9`
    Kill,
    /// SIGTERM: it hands over what it leads
    Term,
    /// Nothing passes between it and the others any more; clients still reach it
    Cut,
    /// SIGSTOP: its process stands still
    Stop,
}

impl NodeFault {
    /// Whether the node's process ends, too.
    pub(crate) fn ends_the_process(self) -> bool {
        matches!(self, Self::Kill | Self::Term)
    }
}

/// A cluster with its running nodes. Node N is at place N - 1.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Postroad>,
    /// AMQP addresses, by place.
    pub(crate) amqp: Vec<SocketAddr>,
    running: Vec<Option<Server>>,
    /// Proxies that can cut nodes off.
    wires: Option<Wires>,
}

/// Place of each partition's leader; `None` without a leader.
pub(crate) type Leaders = Vec<Option<usize>>;

impl Cluster {
    /// Founds a cluster of three; all its nodes are ready on return.
    pub(crate) fn found(
        binary: &Path,
        folder: &Path,
        serve: &[String],
        how: NodeFault,
        with_amqp: bool,
        within: Duration,
    ) -> Outcome<Cluster> {
        Self::found_of(NODES, binary, folder, serve, how, with_amqp, within)
    }

    /// Founds a cluster of `count` nodes.
    pub(crate) fn found_of(
        count: usize,
        binary: &Path,
        folder: &Path,
        serve: &[String],
        how: NodeFault,
        with_amqp: bool,
        within: Duration,
    ) -> Outcome<Cluster> {
        let mut ports = Vec::new();
        while ports.len() < 3 * count {
            let port = server::free_port()?;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        let (kafka, ports) = ports.split_at(count);
        let (amqp, peers) = ports.split_at(count);
        let wires = (how == NodeFault::Cut).then(|| Wires::new(peers)).transpose()?;
        let local = |port: &u16| format!("127.0.0.1:{port}");
        let peers: Vec<String> = peers.iter().map(local).collect();
        let advertised: Vec<String> = match &wires {
            Some(wires) => wires.ports.iter().map(local).collect(),
            None => peers.clone(),
        };
        let seeds = advertised.join(",");
        let node = |(place, (port, peer)): (usize, (&u16, &String))| {
            let name = format!("node-{}", place + 1);
            let reached = &advertised[place];
            let mut arguments: Vec<String> =
                ["--peer", peer, "--advertise-peer", reached, "--seeds", &seeds]
                    .map(str::to_owned)
                    .into();
            if with_amqp {
                arguments.extend(["--amqp".to_owned(), local(&amqp[place])]);
            }
            arguments.extend_from_slice(serve);
            Postroad {
                binary: PathBuf::from(binary),
                data: folder.join(&name),
                log: folder.join(format!("{name}.log")),
                port: *port,
                arguments,
            }
        };
        let nodes: Vec<Postroad> = kafka.iter().zip(&peers).enumerate().map(node).collect();
        // A node becomes ready only once all nodes run.
        let starting: Vec<StartingServer> =
            nodes.iter().map(Postroad::spawn).collect::<Outcome<_>>()?;
        if let Some(wires) = &wires {
            for (place, starting) in starting.iter().enumerate() {
                wires.set_pid(place, starting.server.pid());
            }
        }
        let mut running = Vec::new();
        for starting in starting {
            running.push(Some(starting.ready(within)?.0));
        }
        let amqp = amqp.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        Ok(Cluster { nodes, amqp, running, wires })
    }

    /// Stops, pauses or cuts off a node, and returns as soon as the signal is sent. After `kill -9` the process is
    /// gone; after SIGTERM it may still run.
    pub(crate) fn take_away(&mut self, place: usize, going: NodeFault) -> Outcome<Option<Server>> {
        let Some(mut server) = self.running[place].take() else {
            return Err(Failure::new(format!("node {} does not run", place + 1)));
        };
        server.still_runs()?;
        match going {
            NodeFault::Kill => return server.kill().map(|()| None),
            NodeFault::Term => {
                server.terminate()?;
                return Ok(Some(server));
            }
            NodeFault::Stop => server.signal(Signal::STOP)?,
            NodeFault::Cut => self.wires.iter().for_each(|wires| wires.cut(place)),
        }
        self.running[place] = Some(server);
        Ok(None)
    }

    /// Restarts, continues or reconnects a node, which is ready on return. Returns the time that this took.
    pub(crate) fn bring_back(
        &mut self,
        place: usize,
        going: NodeFault,
        within: Duration,
    ) -> Outcome<Duration> {
        match (going, &mut self.running[place]) {
            (NodeFault::Stop, Some(server)) => server.signal(Signal::CONT)?,
            (NodeFault::Cut, _) => self.wires.iter().for_each(|wires| wires.mend(place)),
            _ => {
                let (server, took) = self.nodes[place].start(within)?;
                self.running[place] = Some(server);
                return Ok(took);
            }
        }
        Ok(Duration::ZERO)
    }

    /// Starts all stopped nodes; they are ready on return.
    pub(crate) fn start_all(&mut self, within: Duration) -> Outcome {
        let mut starting = Vec::new();
        for (place, node) in self.nodes.iter().enumerate() {
            if self.running[place].is_none() {
                starting.push((place, node.spawn()?));
            }
        }
        for (place, starting) in starting {
            self.running[place] = Some(starting.ready(within)?.0);
        }
        Ok(())
    }

    /// Fails if a node has ended by itself.
    pub(crate) fn still_runs(&mut self) -> Outcome {
        self.running.iter_mut().flatten().try_for_each(Server::still_runs)
    }

    /// The node's command line.
    pub(crate) fn node(&self, place: usize) -> &Postroad {
        &self.nodes[place]
    }

    pub(crate) fn address(&self, place: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.nodes[place].port))
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.nodes.len()).map(|place| self.address(place)).collect()
    }

    /// Process ids of the running nodes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().flatten().map(Server::pid)
    }

    /// Stops all nodes by SIGTERM.
    pub(crate) fn stop(&mut self, within: Duration) -> Outcome {
        for server in self.running.iter_mut().filter_map(Option::take) {
            let status = server.stop(within)?;
            if !status.success() {
                return Err(Failure::new(format!("postroad ended with {status} after SIGTERM")));
            }
        }
        Ok(())
    }

    /// Waits until every node reports a leader and a full ISR for every partition.
    pub(crate) fn wait_until_whole(
        &self,
        topic: &str,
        partitions: usize,
        within: Duration,
    ) -> Outcome {
        let deadline = std::time::Instant::now() + within;
        loop {
            let mut whole = true;
            for address in self.addresses() {
                whole &= is_whole(address, topic, partitions).unwrap_or(false);
            }
            if whole {
                return Ok(());
            }
            if std::time::Instant::now() > deadline {
                let what = format!("the nodes are not all there again within {within:?}");
                return Err(Failure::new(what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_whole(address: SocketAddr, topic: &str, partitions: usize) -> std::io::Result<bool> {
    let mut connection = Connection::open(address, PATIENCE)?;
    let answer = connection.metadata(&[topic.to_owned()])?;
    let found = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let whole = found.filter(|it| it.leader_id.0 >= 1 && it.isr_nodes.len() == NODES).count();
    Ok(whole == partitions)
}

/// Leaders of a topic's partitions in one node's metadata.
pub(crate) fn leaders(
    connection: &mut Connection,
    topic: &str,
    partitions: usize,
) -> std::io::Result<Leaders> {
    let answer = connection.metadata(&[topic.to_owned()])?;
    let mut leaders = vec![None; partitions];
    for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        let place = usize::try_from(partition.leader_id.0 - 1).ok();
        if let Some(slot) = leaders.get_mut(partition.partition_index as usize) {
            *slot = place;
        }
    }
    Ok(leaders)
}

/// Leaders of a topic's partitions in the metadata of the first node that replies.
pub(crate) fn leaders_by_any(
    addresses: &[SocketAddr],
    topic: &str,
    partitions: usize,
) -> Outcome<Leaders> {
    let mut last = None;
    for address in addresses {
        let asked = Connection::open(*address, Duration::from_secs(2))
            .map_err(std::io::Error::from)
            .and_then(|mut connection| leaders(&mut connection, topic, partitions));
        match asked {
            Ok(leaders) => return Ok(leaders),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("there are no nodes")))
        .context(|| "no node says who leads")
}
