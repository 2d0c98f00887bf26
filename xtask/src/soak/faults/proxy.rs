//! Network between the nodes: a proxy in front of each node's peer port, with a state for each direction of each pair.
//!
//! A cut holds the bytes back and closes nothing, as a network that drops packets does: TCP delivers them at the
//! heal. The connecting node is identified by the process that has the other end of the socket.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::failure::{Context, Outcome};
use crate::random::Random;

/// Nodes at most: three that found the cluster, and those that join.
pub(super) const PLACES: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(2);
const BUFFER_BYTES: usize = 16 << 10;
/// Cost of a lost packet: the retransmission timeout of TCP on a fast network.
const RETRANSMITTED_AFTER: Duration = Duration::from_millis(200);

/// One direction between two nodes.
#[derive(Debug, Default)]
struct LinkDirection {
    cut: AtomicBool,
    delay_ms: AtomicU64,
    /// Pieces of a thousand that are lost once.
    lost_permille: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    ways: [[LinkDirection; PLACES]; PLACES],
    /// 0: the node does not run.
    pids: [AtomicU32; PLACES],
}

/// The port of one node.
#[derive(Debug)]
struct Proxy {
    port: u16,
    node: u16,
    listener: Option<Listener>,
}

#[derive(Debug)]
struct Listener {
    /// The listener ends at its next connection.
    closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// All pairs of nodes. Dropping it releases its ports.
#[derive(Debug)]
pub(super) struct Mesh {
    state: Arc<State>,
    proxies: Vec<Proxy>,
}

impl Mesh {
    /// Proxies at the first ports, for nodes that listen at the second.
    pub(super) fn new(ports: &[(u16, u16)]) -> Mesh {
        let proxy = |&(port, node): &(u16, u16)| Proxy { port, node, listener: None };
        Mesh { state: Arc::default(), proxies: ports.iter().map(proxy).collect() }
    }

    /// Listens for a node that was started.
    pub(super) fn open(&mut self, place: usize, pid: u32) -> Outcome {
        self.state.pids[place].store(pid, Ordering::SeqCst);
        let Proxy { port, node, listener } = &mut self.proxies[place];
        if listener.is_none() {
            let socket = TcpListener::bind(("127.0.0.1", *port))
                .context(|| format!("cannot bind port {port}"))?;
            let (node, state) = (*node, Arc::clone(&self.state));
            let closed = Arc::<AtomicBool>::default();
            let is_closed = Arc::clone(&closed);
            let thread = thread::spawn(move || accept(&socket, place, node, &state, &is_closed));
            *listener = Some(Listener { closed, thread });
        }
        Ok(())
    }

    /// Refuses connections, as the system of a node without a process does.
    pub(super) fn close(&mut self, place: usize) {
        self.state.pids[place].store(0, Ordering::SeqCst);
        let Proxy { port, listener, .. } = &mut self.proxies[place];
        let Some(Listener { closed, thread }) = listener.take() else { return };
        closed.store(true, Ordering::SeqCst);
        // A connection ends the wait for one.
        if TcpStream::connect(("127.0.0.1", *port)).is_ok() {
            // A panic of the thread was printed.
            let _ = thread.join();
        }
    }

    /// Nothing passes from one node to the other.
    pub(super) fn cut(&self, from: usize, to: usize) {
        self.state.ways[from][to].cut.store(true, Ordering::SeqCst);
    }

    pub(super) fn cut_both(&self, one: usize, other: usize) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Delay and loss of all directions from and to a node.
    pub(super) fn disturb(&self, place: usize, delay_ms: u64, lost_permille: u64) {
        for other in 0..PLACES {
            for way in [&self.state.ways[place][other], &self.state.ways[other][place]] {
                way.delay_ms.store(delay_ms, Ordering::SeqCst);
                way.lost_permille.store(lost_permille, Ordering::SeqCst);
            }
        }
    }

    pub(super) fn heal(&self) {
        for way in self.state.ways.iter().flatten() {
            way.cut.store(false, Ordering::SeqCst);
            way.delay_ms.store(0, Ordering::SeqCst);
            way.lost_permille.store(0, Ordering::SeqCst);
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        (0..self.proxies.len()).for_each(|place| self.close(place));
    }
}

impl State {
    fn hold(&self, from: Option<usize>, to: Option<usize>, random: &mut Random) {
        let Some(way) = from.zip(to).map(|(from, to)| &self.ways[from][to]) else { return };
        match way.delay_ms.load(Ordering::SeqCst) {
            0 => {}
            delay => thread::sleep(Duration::from_millis(delay)),
        }
        if random.between(0, 999) < way.lost_permille.load(Ordering::SeqCst) {
            thread::sleep(RETRANSMITTED_AFTER);
        }
        while way.cut.load(Ordering::SeqCst) {
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The node whose process has a connection from this port to that one.
    fn owner(&self, from: u16, to: u16) -> Option<usize> {
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let inode = table.lines().find_map(|line| inode_of(line, from, to))?;
        let socket = format!("socket:[{inode}]");
        let has = |pid: &AtomicU32| {
            let pid = pid.load(Ordering::SeqCst);
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
            pid != 0 && targets.any(|target| target.as_os_str() == socket.as_str())
        };
        self.pids.iter().position(has)
    }
}

/// Inode of a line of `/proc/net/tcp`, if its ports are these.
fn inode_of(line: &str, from: u16, to: u16) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let (local, remote) = (port(fields.nth(1)?)?, port(fields.next()?)?);
    let inode = fields.nth(6)?;
    ((local, remote) == (from, to)).then_some(inode)
}

fn accept(listener: &TcpListener, to: usize, node: u16, state: &Arc<State>, closed: &AtomicBool) {
    for incoming in listener.incoming().flatten() {
        if closed.load(Ordering::SeqCst) {
            return;
        }
        let state = Arc::clone(state);
        thread::spawn(move || {
            // A failure ends the connection, as any fault between nodes does.
            let _ = connect(incoming, to, node, state);
        });
    }
}

fn connect(incoming: TcpStream, to: usize, node: u16, state: Arc<State>) -> std::io::Result<()> {
    let (theirs, ours) = (incoming.peer_addr()?.port(), incoming.local_addr()?.port());
    let from = state.owner(theirs, ours);
    state.hold(from, Some(to), &mut Random::new(u64::from(theirs)));
    let outgoing = TcpStream::connect(("127.0.0.1", node))?;
    incoming.set_nodelay(true)?;
    outgoing.set_nodelay(true)?;
    let back = (outgoing.try_clone()?, incoming.try_clone()?, Arc::clone(&state));
    thread::spawn(move || pass(back.0, back.1, (Some(to), from), &back.2));
    pass(incoming, outgoing, (from, Some(to)), &state);
    Ok(())
}

/// Copies bytes until either side ends, then closes both.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    way: (Option<usize>, Option<usize>),
    state: &State,
) {
    let mut random = Random::new(Random::any_seed());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        state.hold(way.0, way.1, &mut random);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The socket may be closed already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_port() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn one_way_cut_holds_one_direction_and_the_heal_delivers_all_of_it() {
        let node = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = free_port();
        let mut mesh = Mesh::new(&[(proxy, node.local_addr().unwrap().port())]);
        mesh.open(0, std::process::id()).unwrap();
        // This process is node 2, which connects to node 1.
        mesh.state.pids[0].store(0, Ordering::SeqCst);
        mesh.state.pids[1].store(std::process::id(), Ordering::SeqCst);
        let mut there = TcpStream::connect(("127.0.0.1", proxy)).unwrap();
        let (mut here, _) = node.accept().unwrap();
        there.write_all(b"before").unwrap();
        let mut read = [0; 6];
        here.read_exact(&mut read).unwrap();

        mesh.cut(1, 0);
        there.write_all(b"behind").unwrap();
        here.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(here.read(&mut read).is_err(), "node 2 to node 1 is cut");
        here.write_all(b"answer").unwrap();
        there.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"answer", "node 1 to node 2 is not");
        mesh.heal();
        here.set_read_timeout(None).unwrap();
        here.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"behind");
    }

    #[test]
    fn connections_to_a_node_without_a_process_are_refused() {
        let proxy = free_port();
        let mut mesh = Mesh::new(&[(proxy, free_port())]);
        let connect = || TcpStream::connect(("127.0.0.1", proxy)).map_err(|error| error.kind());
        for _ in 0..2 {
            mesh.open(0, std::process::id()).unwrap();
            connect().unwrap();
            mesh.close(0);
            assert_eq!(connect().unwrap_err(), std::io::ErrorKind::ConnectionRefused);
        }
        mesh.open(0, std::process::id()).unwrap();
        drop(mesh);
        // The next run may use the port.
        TcpListener::bind(("127.0.0.1", proxy)).unwrap();
    }
}
