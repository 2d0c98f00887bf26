//! Requests at a node that is cut off from the others are answered within seconds, so that clients move to another
//! node.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::PartitionId;
use broker::{AppendBatch, AppendError, AppendReply, AppendedBatch, Broker, BrokerOptions};
use broker::{NewTopic, Unavailable};
use cluster::{Node, NodeOptions};
use gateway::Connections;
use links::Security;
use record::BatchOptions;
use sim::workload::{RecordToSend, batch};
use tasks::Failure;
use tokio::time::{sleep, timeout};
use world::{Instant, Net, RuntimeClock, SeededEntropy, SimulatedDisk, Workers, World};

const HOSTS: [&str; 3] = ["a", "b", "c"];
const PEERS: u16 = 7700;
const SEEDS: u64 = 3;
/// Time limit from the cut to the reply.
const WITHIN: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(30);

type AppendOfMinority = Result<AppendedBatch, AppendError>;

/// Brokers by number, with their hosts.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<BTreeMap<u32, (usize, Broker)>>>);

impl Cluster {
    fn broker(&self, node: u32) -> Broker {
        self.0.lock().unwrap()[&node].1.clone()
    }

    fn host(&self, node: u32) -> &'static str {
        HOSTS[self.0.lock().unwrap()[&node].0]
    }

    fn others(&self, node: u32) -> Vec<u32> {
        self.0.lock().unwrap().keys().copied().filter(|other| *other != node).collect()
    }

    fn cut_off(&self, node: u32) {
        for other in self.others(node) {
            turmoil::partition(self.host(node), self.host(other));
        }
    }

    fn heal(&self, node: u32) {
        for other in self.others(node) {
            turmoil::repair(self.host(node), self.host(other));
        }
    }

    /// Waits for all nodes, and creates a topic of one partition.
    async fn start(&self) -> PartitionId {
        while self.0.lock().unwrap().len() < HOSTS.len() {
            sleep(Duration::from_millis(10)).await;
        }
        let nodes: Vec<u32> = self.0.lock().unwrap().keys().copied().collect();
        for node in &nodes {
            timeout(SOON, self.broker(*node).ready()).await.expect("soon").expect("it is ready");
        }
        let broker = self.broker(nodes[0]);
        let (name, uuid) = ("log".to_owned(), broker.entropy().uuid());
        let topic = NewTopic { name, uuid, partitions: 1, config: BTreeMap::new() };
        let topic = broker.create_topic(topic).await.expect("the topic is new");
        for node in nodes {
            while self.broker(node).catalog().topic(topic).is_none() {
                sleep(Duration::from_millis(10)).await;
            }
        }
        PartitionId::new(topic, 0)
    }

    async fn leader(&self, of: PartitionId, seen_by: u32) -> u32 {
        loop {
            if let Some(leader) = self.broker(seen_by).leaders(of.topic).of(of.index).node {
                return leader;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn host(place: usize, seed: u64, cluster: Cluster) -> turmoil::Result {
    let address = |place: usize| format!("{}:{PEERS}", HOSTS[place]);
    let world = World {
        disk: Arc::new(SimulatedDisk::new()),
        clock: Arc::new(RuntimeClock::new(1_700_000_000_000)),
        entropy: Arc::new(SeededEntropy::new(seed * 3 + place as u64)),
        net: Net::Simulated,
        workers: Workers::Tasks(Arc::new(|_| Duration::from_millis(1))),
    };
    let failure = Failure::new();
    let options = NodeOptions {
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, PEERS)),
        address: address(place),
        seeds: (0..HOSTS.len()).map(address).collect(),
        join: Vec::new(),
        security: Security::Plain { beyond_loopback: true },
        levels: base::Levels::OURS,
    };
    let dir = Path::new("/data");
    let node = Node::start(&world, dir, options, Connections::default(), &failure).await?;
    let node = Arc::new(node);
    let number = node.identity().at.node.0 as u32;
    let options = BrokerOptions {
        node: number,
        shards: Some(1),
        cluster: Some(node),
        failure: Some(failure),
        ..BrokerOptions::default()
    };
    let broker = Broker::open(world, dir, options).await?;
    cluster.0.lock().unwrap().insert(number, (place, broker));
    std::future::pending().await
}

fn simulate<F>(seed: u64, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let cluster = Cluster::default();
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(120))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(100))
        .max_message_latency(Duration::from_millis(2))
        .build();
    for (place, name) in HOSTS.iter().enumerate() {
        let cluster = cluster.clone();
        sim.host(*name, move || host(place, seed, cluster.clone()));
    }
    let test = test(cluster.clone());
    sim.client("client", async move {
        test.await;
        Ok(())
    });
    let ended = sim.run();
    drop(sim);
    cluster.0.lock().unwrap().clear();
    ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

fn numbered(partition: PartitionId, producer: i64, sequence: i32) -> AppendBatch {
    let options = BatchOptions {
        producer_id: producer,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    let value = format!("{producer}/{sequence}").into_bytes();
    batch(
        partition,
        options,
        1_700_000_000_000,
        &[RecordToSend { key: None, value, headers: Vec::new() }],
    )
}

async fn answer(reply: AppendReply) -> AppendOfMinority {
    timeout(SOON, reply).await.expect("it is answered").remove(0)
}

/// The reply, and the time that it took.
async fn timed<T>(begun: Instant, request: impl Future<Output = T>) -> (T, Duration) {
    let answer = request.await;
    (answer, begun.elapsed())
}

fn unavailable(answer: &AppendOfMinority) -> Option<&Unavailable> {
    match answer {
        Err(AppendError::Unavailable(why)) => Some(why),
        _ => None,
    }
}

#[test]
fn cut_off_leader_answers_waiting_requests_and_rejects_new_ones() {
    for seed in 0..SEEDS {
        simulate(seed, |cluster| async move {
            let partition = cluster.start().await;
            let some = cluster.others(0)[0];
            let leader = cluster.leader(partition, some).await;
            let other = cluster.others(leader)[0];
            let (old, new) = (cluster.broker(leader), cluster.broker(other));
            let id = old.allocate_producer_id().await.expect("allocated").id;
            let at =
                |broker: &Broker, sequence| broker.append(vec![numbered(partition, id, sequence)]);
            assert_eq!(answer(at(&old, 0)).await.expect("appended").base_offset, 0);

            cluster.cut_off(leader);
            let begun = Instant::now();
            let in_flight = at(&old, 1);
            let in_line = old.append_at_leaders(vec![numbered(partition, -1, -1)]);
            let later = async {
                sleep(Duration::from_millis(1_200)).await;
                at(&old, 2).await
            };
            let latest = async {
                sleep(Duration::from_millis(2_500)).await;
                let sent = Instant::now();
                let refused =
                    answer(old.append_at_leaders(vec![numbered(partition, -1, -1)])).await;
                (refused, sent.elapsed())
            };
            // A request that was sent before, while it still believes to be the leader.
            let current = async {
                sleep(Duration::from_millis(1_200)).await;
                old.copies_are_current(&[partition]).await
            };
            let name = "group.initial.rebalance.delay.ms".to_owned();
            let config = BTreeMap::from([(name, "0".to_owned())]);
            let elsewhere = new.append_at_leaders(vec![numbered(partition, id, 1)]);
            let (in_flight, in_line, later, latest, elsewhere, commanded, current) = tokio::join!(
                timed(begun, answer(in_flight)),
                timed(begun, answer(in_line)),
                timed(begun, later),
                latest,
                timed(begun, answer(elsewhere)),
                timed(begun, old.set_node_config(config)),
                timed(begun, current),
            );
            assert_eq!(unavailable(&in_flight.0), Some(&Unavailable::Unanswered), "{in_flight:?}");
            assert!(in_flight.1 < WITHIN, "seed {seed}: {in_flight:?}");
            assert!(unavailable(&in_line.0).is_some(), "{in_line:?}");
            assert!(in_line.1 < WITHIN, "seed {seed}: {in_line:?}");
            let refused = later.0.first().and_then(unavailable);
            assert_eq!(refused, Some(&Unavailable::NotLeader), "nothing of it is in the log");
            assert!(later.1 < WITHIN, "seed {seed}: {later:?}");
            assert!(unavailable(&latest.0).is_some(), "{latest:?}");
            assert!(latest.1 <= Duration::from_millis(1_500), "seed {seed}: {latest:?}");
            assert_eq!(elsewhere.0.as_ref().expect("appended").base_offset, 1);
            assert!(elsewhere.1 < WITHIN, "seed {seed}: {elsewhere:?}");
            assert!(commanded.0.is_err() && commanded.1 < WITHIN, "seed {seed}: {commanded:?}");
            assert!(current.0.is_err() && current.1 < WITHIN, "seed {seed}: {current:?}");

            cluster.heal(leader);
            let next = answer(new.append_at_leaders(vec![numbered(partition, id, 2)])).await;
            assert_eq!(next.expect("appended").base_offset, 2);
            // The former leader's copies of 1 and of the unnumbered batch are gone, and a retry is recognised.
            let retried = answer(old.append_at_leaders(vec![numbered(partition, id, 1)])).await;
            assert_eq!(retried.expect("it is there").base_offset, 1);
            timeout(SOON, old.copies_are_current(&[partition]))
                .await
                .expect("soon")
                .expect("it is");
            assert_eq!(old.bounds(partition).map(|bounds| bounds.end), Some(3));
        });
    }
}

/// The outcome of appends in flight is open: here the former leader leads again, and commits them.
#[test]
fn retry_of_an_append_with_unknown_outcome_is_recognised() {
    for seed in 0..SEEDS {
        simulate(seed, |cluster| async move {
            let partition = cluster.start().await;
            let some = cluster.others(0)[0];
            let leader = cluster.leader(partition, some).await;
            let old = cluster.broker(leader);
            let id = old.allocate_producer_id().await.expect("allocated").id;
            let at_leaders =
                |sequence| old.append_at_leaders(vec![numbered(partition, id, sequence)]);
            assert_eq!(answer(at_leaders(0)).await.expect("appended").base_offset, 0);
            // No two nodes are connected: the node with the longest log is elected once the links are mended.
            for node in [leader].into_iter().chain(cluster.others(leader)) {
                cluster.cut_off(node);
            }
            let open = answer(old.append(vec![numbered(partition, id, 1)])).await;
            assert_eq!(unavailable(&open), Some(&Unavailable::Unanswered), "{open:?}");
            for node in [leader].into_iter().chain(cluster.others(leader)) {
                cluster.heal(node);
            }
            let retried = loop {
                match answer(at_leaders(1)).await {
                    Err(AppendError::Unavailable(_)) => sleep(Duration::from_millis(100)).await,
                    answered => break answered,
                }
            };
            assert_eq!(retried.expect("appended").base_offset, 1);
            timeout(SOON, old.copies_are_current(&[partition]))
                .await
                .expect("soon")
                .expect("it is");
            assert_eq!(old.bounds(partition).map(|bounds| bounds.end), Some(2));
        });
    }
}

#[test]
fn cut_off_follower_rejects_appends() {
    for seed in 0..SEEDS {
        simulate(seed, |cluster| async move {
            let partition = cluster.start().await;
            let some = cluster.others(0)[0];
            let leader = cluster.leader(partition, some).await;
            let follower = cluster.others(leader)[0];
            let broker = cluster.broker(follower);
            let append = || answer(broker.append_at_leaders(vec![numbered(partition, -1, -1)]));
            append().await.expect("appended");
            cluster.cut_off(follower);
            let (refused, after) = timed(Instant::now(), append()).await;
            assert!(unavailable(&refused).is_some(), "{refused:?}");
            assert!(after < WITHIN, "seed {seed}: {after:?}");
            cluster.heal(follower);
            sleep(Duration::from_secs(3)).await;
            append().await.expect("appended");
        });
    }
}
