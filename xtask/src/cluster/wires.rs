//! Network between the nodes of a cluster: each node reaches another one through a proxy in this process. The proxy
//! can hold bytes back, as a pulled cable does. Connections stay open, so no peer notices.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::NODES;
use crate::failure::{Context, Outcome};

const LOOK_EVERY: Duration = Duration::from_millis(2);
const BUFFER_BYTES: usize = 64 << 10;

/// A proxy in front of each node's peer port.
#[derive(Debug)]
pub(crate) struct Wires {
    state: Arc<State>,
    /// Ports of the proxies, by node.
    pub(crate) ports: Vec<u16>,
}

#[derive(Debug, Default)]
struct State {
    cut: [AtomicBool; NODES],
    /// Process ids by node, which identify the connecting node; 0: the node does not run.
    pids: [AtomicU32; NODES],
}

/// The nodes at both ends of a connection.
#[derive(Clone, Copy, Debug)]
struct ConnectionEnds {
    /// Unknown if the connection was closed at once.
    from: Option<usize>,
    to: usize,
}

impl Wires {
    /// Starts proxies for nodes that listen for peers on these ports.
    pub(crate) fn new(nodes: &[u16]) -> Outcome<Wires> {
        let state = Arc::new(State::default());
        let mut ports = Vec::new();
        for (to, node) in nodes.iter().enumerate() {
            let listener = TcpListener::bind(("127.0.0.1", 0)).context(|| "no port for a proxy")?;
            ports.push(listener.local_addr()?.port());
            let (state, node) = (Arc::clone(&state), *node);
            thread::spawn(move || accept(&listener, to, node, &state));
        }
        Ok(Wires { state, ports })
    }

    pub(crate) fn set_pid(&self, node: usize, pid: u32) {
        self.state.pids[node].store(pid, Ordering::SeqCst);
    }

    /// Holds back all bytes between the node and the others, in both directions.
    pub(crate) fn cut(&self, node: usize) {
        self.state.cut[node].store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self, node: usize) {
        self.state.cut[node].store(false, Ordering::SeqCst);
    }
}

impl State {
    fn wait_while_cut(&self, ConnectionEnds { from, to }: ConnectionEnds) {
        let is_cut = |node: usize| self.cut[node].load(Ordering::SeqCst);
        while is_cut(to) || from.is_some_and(is_cut) {
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The node whose process has a connection from the first port to the second.
    fn owner(&self, from: u16, to: u16) -> Option<usize> {
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let inode = table.lines().find_map(|line| inode_of(line, from, to))?;
        let socket = format!("socket:[{inode}]");
        let has = |pid: &AtomicU32| {
            let pid = pid.load(Ordering::SeqCst);
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
            targets.any(|target| target.as_os_str() == socket.as_str())
        };
        self.pids.iter().position(has)
    }
}

/// Inode of a line of `/proc/net/tcp`. Its fields are: number, local address, remote address, state, queues, timer,
/// retransmits, user, timeout, inode. Addresses are in hexadecimal.
fn inode_of(line: &str, from: u16, to: u16) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let (local, remote) = (port(fields.nth(1)?)?, port(fields.next()?)?);
    let inode = fields.nth(6)?;
    ((local, remote) == (from, to)).then_some(inode)
}

fn accept(listener: &TcpListener, to: usize, node: u16, state: &Arc<State>) {
    for incoming in listener.incoming().flatten() {
        let state = Arc::clone(state);
        // A thread for each connection: a cut connection must not delay the others.
        thread::spawn(move || {
            // A failure ends the connection, as any fault between nodes does.
            let _ = connect(incoming, to, node, state);
        });
    }
}

fn connect(incoming: TcpStream, to: usize, node: u16, state: Arc<State>) -> std::io::Result<()> {
    let (theirs, ours) = (incoming.peer_addr()?.port(), incoming.local_addr()?.port());
    let ends = ConnectionEnds { from: state.owner(theirs, ours), to };
    state.wait_while_cut(ends);
    let outgoing = TcpStream::connect(("127.0.0.1", node))?;
    incoming.set_nodelay(true)?;
    outgoing.set_nodelay(true)?;
    let back = (outgoing.try_clone()?, incoming.try_clone()?, Arc::clone(&state));
    thread::spawn(move || pass(back.0, back.1, ends, &back.2));
    pass(incoming, outgoing, ends, &state);
    Ok(())
}

/// Copies bytes until either side ends, then closes both.
fn pass(mut from: TcpStream, mut to: TcpStream, ends: ConnectionEnds, state: &State) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        state.wait_while_cut(ends);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    // The sockets may be closed already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_is_parsed_from_the_line_with_the_ports_of_the_connection() {
        let line = "   1: 0100007F:A1B2 0100007F:1E14 01 00000000:00000000 00:00000000 00000000     \
                    0        0 48613 1 0000000000000000 20 4 30 10 -1";
        assert_eq!(inode_of(line, 0xA1B2, 0x1E14), Some("48613"));
        assert_eq!(inode_of(line, 0x1E14, 0xA1B2), None);
        assert_eq!(inode_of("  sl  local_address rem_address", 1, 2), None);
    }

    #[test]
    fn cut_node_receives_nothing_until_mended_and_then_all_bytes() {
        let node = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let wires = Wires::new(&[node.local_addr().unwrap().port()]).unwrap();
        wires.set_pid(1, std::process::id());
        let mut peer = TcpStream::connect(("127.0.0.1", wires.ports[0])).unwrap();
        let (mut there, _) = node.accept().unwrap();
        peer.write_all(b"before").unwrap();
        let mut read = [0; 6];
        there.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"before");
        // This process is registered as node 2, so cutting node 2 cuts its connections to the proxy of node 1.
        wires.cut(1);
        peer.write_all(b"behind").unwrap();
        there.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(there.read(&mut read).is_err());
        wires.mend(1);
        there.set_read_timeout(None).unwrap();
        there.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"behind");
    }
}
