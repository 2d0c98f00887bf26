//! The cluster under test: its processes, data directories, images of them, and faults of disks and clocks.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::proxy::{Mesh, PLACES};
use crate::failure::{Context, Failure, Outcome};
use crate::server::{self, Postroad, Server};

/// Nodes that found the cluster.
pub(super) const FOUNDERS: usize = 3;
const FAULTS_VARIABLE: &str = "POSTROAD_FAULTS_FROM";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDED_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Node {
    postroad: Postroad,
    /// File with the node's disk and clock faults, which the node reads.
    faults: PathBuf,
    running: Option<Server>,
    stopped: bool,
}

/// Node N of a cluster of founders is at place N - 1.
#[derive(Debug)]
pub(super) struct Site {
    folder: PathBuf,
    nodes: Vec<Node>,
    pub(super) mesh: Mesh,
    pub(super) addresses: Addresses,
}

/// Addresses of the founders, by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    pub(super) kafka: Vec<SocketAddr>,
    pub(super) amqp: Vec<SocketAddr>,
    pub(super) http: Vec<SocketAddr>,
}

fn ports(first: Option<u16>, count: usize) -> Outcome<Vec<u16>> {
    let mut ports = Vec::new();
    while ports.len() < count {
        let port = match first {
            Some(first) => first + ports.len() as u16,
            None => server::free_port()?,
        };
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    Ok(ports)
}

impl Site {
    /// Founds a cluster; all nodes are ready on return. Ports start at `first_port`, or are random.
    pub(super) fn found(
        binary: &Path,
        folder: &Path,
        first_port: Option<u16>,
        serve: &[String],
    ) -> Outcome<Site> {
        let ports = ports(first_port, 5 * PLACES)?;
        let local = |port: u16| format!("127.0.0.1:{port}");
        let [kafka, amqp, http, peer, proxy] =
            [0, 1, 2, 3, 4].map(|row| ports[row * PLACES..(row + 1) * PLACES].to_vec());
        let pairs: Vec<(u16, u16)> = proxy.iter().copied().zip(peer.iter().copied()).collect();
        let mesh = Mesh::new(&pairs);
        let seeds: Vec<String> = proxy[..FOUNDERS].iter().map(|port| local(*port)).collect();
        let node = |place: usize| -> Outcome<Node> {
            let name = format!("node-{}", place + 1);
            let (faults, others) = (folder.join(format!("{name}.faults")), seeds.join(","));
            fs::write(&faults, "").context(|| format!("cannot write {}", faults.display()))?;
            let way = if place < FOUNDERS { "--seeds" } else { "--join" };
            let mut arguments: Vec<String> = [
                ("--peer", local(peer[place])),
                ("--advertise-peer", local(proxy[place])),
                (way, others),
                ("--amqp", local(amqp[place])),
                ("--http", local(http[place])),
            ]
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect();
            arguments.extend_from_slice(serve);
            let postroad = Postroad {
                binary: binary.to_owned(),
                data: folder.join(&name),
                log: folder.join(format!("{name}.log")),
                port: kafka[place],
                arguments,
            };
            Ok(Node { postroad, faults, running: None, stopped: false })
        };
        let nodes = (0..PLACES).map(node).collect::<Outcome<Vec<_>>>()?;
        let at = |ports: &[u16]| -> Vec<SocketAddr> {
            ports[..FOUNDERS].iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
        };
        let addresses = Addresses { kafka: at(&kafka), amqp: at(&amqp), http: at(&http) };
        let mut site = Site { folder: folder.to_owned(), nodes, mesh, addresses };
        site.start_all(&[0, 1, 2])?;
        Ok(site)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn postroad(&self, place: usize) -> &Postroad {
        &self.nodes[place].postroad
    }

    pub(super) fn runs(&self, place: usize) -> bool {
        self.nodes[place].running.is_some()
    }

    /// Starts these nodes concurrently; they are ready on return.
    pub(super) fn start_all(&mut self, places: &[usize]) -> Outcome {
        let mut starting = Vec::new();
        for &place in places {
            if !self.runs(place) {
                starting.push((place, self.spawn(place)?));
            }
        }
        for (place, started) in starting {
            self.nodes[place].running = Some(started.ready(READY_WITHIN)?.0);
        }
        Ok(())
    }

    pub(super) fn start(&mut self, place: usize) -> Outcome {
        self.start_all(&[place])
    }

    fn spawn(&mut self, place: usize) -> Outcome<server::StartingServer> {
        let node = &self.nodes[place];
        let started = node.postroad.spawn_with(&[(FAULTS_VARIABLE, &node.faults)])?;
        self.mesh.open(place, started.server.pid())?;
        Ok(started)
    }

    /// Starts a node that may fail to become ready.
    pub(super) fn start_without_waiting(&mut self, place: usize) -> Outcome {
        let server = self.spawn(place)?.server;
        self.nodes[place].running = Some(server);
        Ok(())
    }

    /// Whether a node's process has ended by itself; the node then counts as stopped.
    pub(super) fn has_ended(&mut self, place: usize) -> bool {
        let running = &mut self.nodes[place].running;
        let ended = running.as_mut().is_some_and(|server| server.still_runs().is_err());
        if ended {
            *running = None;
            self.mesh.close(place);
        }
        ended
    }

    pub(super) fn kill(&mut self, place: usize) -> Outcome {
        let node = &mut self.nodes[place];
        node.stopped = false;
        let killed = node.running.take().map_or(Ok(()), Server::kill);
        self.mesh.close(place);
        killed
    }

    /// Stops a node by SIGTERM and waits for its end.
    pub(super) fn terminate(&mut self, place: usize) -> Outcome {
        let running = self.nodes[place].running.take();
        let ended = running.map_or(Ok(()), |server| server.stop(ENDED_WITHIN).map(drop));
        self.mesh.close(place);
        ended
    }

    pub(super) fn pause(&mut self, place: usize) -> Outcome {
        self.signal(place, Signal::STOP)?;
        self.nodes[place].stopped = true;
        Ok(())
    }

    pub(super) fn resume(&mut self, place: usize) -> Outcome {
        self.signal(place, Signal::CONT)?;
        self.nodes[place].stopped = false;
        Ok(())
    }

    fn signal(&mut self, place: usize, signal: Signal) -> Outcome {
        match &mut self.nodes[place].running {
            Some(server) => server.signal(signal),
            None => Ok(()),
        }
    }

    /// Sets the faults of a node's disk and clock, one per line.
    pub(super) fn inject(&self, place: usize, faults: &str) -> Outcome {
        let path = &self.nodes[place].faults;
        // Replaced as a whole: the node reads it at any moment.
        let draft = path.with_extension("draft");
        fs::write(&draft, faults)?;
        Ok(fs::rename(&draft, path)?)
    }

    pub(super) fn data(&self, place: usize) -> &Path {
        &self.nodes[place].postroad.data
    }

    /// Copies a data directory. The copy is atomic if the node is stopped or paused.
    pub(super) fn image(&self, place: usize, name: &str) -> Outcome<PathBuf> {
        let to = self.folder.join(name);
        let _ = fs::remove_dir_all(&to);
        copy(self.data(place), &to)?;
        Ok(to)
    }

    /// Sets a data directory back to an image. The node must not run.
    pub(super) fn restore(&self, place: usize, image: &Path) -> Outcome {
        self.wipe(place)?;
        copy(image, self.data(place))
    }

    pub(super) fn wipe(&self, place: usize) -> Outcome {
        match fs::remove_dir_all(self.data(place)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Makes a node join an existing cluster at its next start, instead of founding one.
    pub(super) fn joins(&mut self, place: usize) {
        for argument in &mut self.nodes[place].postroad.arguments {
            if argument == "--seeds" {
                "--join".clone_into(argument);
            }
        }
    }

    pub(super) fn status(&self, place: usize) -> Outcome<Value> {
        self.postroad(place).run_json_command(&["cluster", "status"])
    }

    /// Waits until a running node reports a leader of each shard.
    pub(super) fn wait_until_whole(&self, within: Duration) -> Outcome {
        let deadline = Instant::now() + within;
        loop {
            let place = (0..PLACES).find(|place| self.runs(*place)).unwrap_or_default();
            let status = self.status(place);
            let whole = status.as_ref().is_ok_and(|status| {
                let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
                !shards.is_empty() && shards.iter().all(|shard| shard["leader"].is_u64())
            });
            if whole {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = status.map_or_else(|error| error.to_string(), |it| it.to_string());
                return Err(Failure::new(format!("no leader of each shard in {within:?}: {why}")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends all faults and continues paused nodes.
    pub(super) fn heal(&mut self) -> Outcome {
        self.mesh.heal();
        for place in 0..PLACES {
            self.inject(place, "")?;
            if self.nodes[place].stopped {
                self.resume(place)?;
            }
            self.has_ended(place);
        }
        Ok(())
    }

    pub(super) fn kill_all(&mut self) {
        for place in 0..PLACES {
            // A kill fails only for a node that has already ended.
            let _ = self.kill(place);
        }
    }
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to).context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()?.is_dir() {
            true => copy(&source, &target)?,
            false => match fs::copy(&source, &target) {
                // The node has removed the file meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.context(|| format!("cannot copy {}", source.display()))?),
            },
        }
    }
    Ok(())
}
