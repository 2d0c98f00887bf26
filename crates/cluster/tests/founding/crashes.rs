//! Nodes stop, or lose power, after each change of their disks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gateway::Connections;
use links::{
    Admission, Declined, DirectoryIdentity, Identity, IncomingAppends, Links, Message, NodeId,
    Options, Refusal, Request, Service,
};
use parking_lot::Mutex;
use tasks::Failure;
use tokio::time::sleep;
use uuid::Uuid;
use world::World;

use crate::harness::{NodeSlot, OPEN, found, is_linked, soon, stop};

/// The place after the process, or the power, ends.
fn after(place: &NodeSlot, seed: u64) -> NodeSlot {
    let disk = match seed % 2 {
        0 => place.disk.killed(),
        _ => place.disk.power_loss(seed),
    };
    NodeSlot { disk, ..place.clone() }
}

/// A first seed of the test, which records the identities that it receives.
#[derive(Clone, Default)]
struct RecordingSeed(Arc<Mutex<Vec<DirectoryIdentity>>>);

impl Admission for RecordingSeed {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        self.0.lock().push(peer.at);
        Ok(())
    }

    fn admit_newcomer(&self, _: &Identity, peer: &Identity) -> Result<(), Refusal> {
        self.admit(peer)
    }
}

impl Service for RecordingSeed {
    fn answer(&self, _: Request) -> BoxFuture<'static, Result<Message, Declined>> {
        async { Err(Declined::NotServed) }.boxed()
    }
    fn appends(&self, _: IncomingAppends) -> BoxFuture<'static, ()> {
        async {}.boxed()
    }
    fn gossip(&self, _: NodeId, _: bytes::Bytes) {}
}

const CLUSTER: Uuid = Uuid::from_u128(0x1234_4000_8000_0000_0000_0000);

impl RecordingSeed {
    async fn listen(&self, address: &str) -> Links {
        let listen = address.parse().expect("an address");
        let options = Options { listen, security: OPEN, connections: Connections::default() };
        let directory = Uuid::from_u128(1);
        let at =
            DirectoryIdentity { cluster: CLUSTER, node: NodeId(1), directory, boot: 1, epoch: 0 };
        let (admission, service) = (Arc::new(self.clone()), Arc::new(self.clone()));
        let failure = Failure::new();
        let links = Links::start(World::real(), at, options, admission, service, &failure).await;
        links.expect("it listens")
    }
}

/// Every identity sent to a peer is on disk before: a later run presents the same directory, and a later boot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_sent_to_a_peer_is_durable_before() {
    let mut told_before_a_crash = 0;
    for cut in 0.. {
        let (places, seeds) = NodeSlot::several(3);
        let told = RecordingSeed::default();
        let _first = told.listen(&seeds[0]).await;
        places[1].disk.cut_power_after(cut);
        let started = places[1].start(&seeds).await;
        let has_started = started.is_ok();
        if let Ok(node) = started {
            is_linked(node.links(), 1).await;
            stop(node).await;
        }
        let before = std::mem::take(&mut *told.0.lock());
        told_before_a_crash += usize::from(!has_started && !before.is_empty());
        let node = after(&places[1], cut).start(&seeds).await;
        let node = node.unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        is_linked(node.links(), 1).await;
        let now = node.identity().at;
        assert_eq!((now.cluster, now.node), (CLUSTER, NodeId(2)), "cut at {cut}");
        for before in before {
            assert_eq!(before.directory, now.directory, "cut at {cut}");
            assert!(before.boot < now.boot, "cut at {cut}: {before:?}, {now:?}");
        }
        assert!(told.0.lock().iter().all(|told| told.boot == now.boot), "cut at {cut}");
        if has_started {
            assert!(cut > 5 && told_before_a_crash > 2, "{told_before_a_crash} of {cut}");
            return;
        }
    }
}

/// Wherever the first seed stops, the nodes found one cluster with its surviving state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_of_the_first_seed_at_any_write_still_founds_one_cluster() {
    for cut in 0.. {
        let (mut places, seeds) = NodeSlot::several(3);
        places[0].disk.cut_power_after(cut);
        let others: Vec<_> = places[1..]
            .iter()
            .cloned()
            .map(|place| {
                let seeds = seeds.clone();
                tokio::spawn(async move { place.start(&seeds).await })
            })
            .collect();
        let mut said = None;
        if let Ok(first) = places[0].start(&seeds).await {
            said = Some(first.identity().at);
            while !places[0].disk.is_dead() && first.all_seen().now_or_never().is_none() {
                sleep(Duration::from_millis(1)).await;
            }
            stop(first).await;
        }
        let has_founded = !places[0].disk.is_dead();
        places[0] = after(&places[0], cut);
        let first = places[0].start(&seeds).await;
        let mut nodes = vec![first.unwrap_or_else(|error| panic!("cut at {cut}: {error}"))];
        for other in others {
            let other = soon("it waits for the first", other).await.expect("no panic");
            nodes.push(other.unwrap_or_else(|error| panic!("cut at {cut}: {error}")));
        }
        let now = nodes[0].identity().at;
        for node in &nodes {
            soon("all are seen", node.all_seen()).await;
            assert_eq!(node.identity().at.cluster, now.cluster, "cut at {cut}");
        }
        if let Some(said) = said {
            assert_eq!(DirectoryIdentity { boot: now.boot, ..said }, now, "cut at {cut}");
            assert!(said.boot < now.boot, "cut at {cut}");
        }
        if has_founded {
            assert!(cut > 8, "{cut}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_survives_a_crash_at_any_write_of_a_restart() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let at = nodes[0].identity().at;
    stop(nodes.remove(0)).await;
    let mut place = places[0].copied();
    let mut boot = at.boot;
    for cut in 0.. {
        place.disk.cut_power_after(cut);
        let started = place.start(&[]).await;
        let has_started = started.is_ok();
        if let Ok(node) = started {
            let now = node.identity().at;
            assert!(now.boot > boot, "cut at {cut}");
            assert_eq!(DirectoryIdentity { boot: at.boot, ..now }, at);
            boot = now.boot;
            stop(node).await;
        }
        place = after(&place, cut);
        if has_started {
            break;
        }
    }
    let node = place.start(&[]).await.expect("starts");
    soon("all were seen", node.all_seen()).await;
    is_linked(node.links(), 2).await;
    is_linked(nodes[0].links(), 1).await;
}
