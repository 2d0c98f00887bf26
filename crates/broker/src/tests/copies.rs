//! Readers of replicas: at a newly elected node that has yet to apply entries acknowledged by earlier leaders.

use std::net::SocketAddr;
use std::sync::mpsc;

use base::Levels;
use cluster::{Node as Member, NodeOptions};
use futures_util::future::join_all;
use gateway::Connections;
use links::Security;
use machine::CommitOffset;
use tasks::Failure;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(20);
const GROUP: &str = "readers";

async fn node(address: String, seeds: Vec<String>) -> Broker {
    let (world, dir) = (World::on(Arc::new(SimulatedDisk::new())), Path::new("/data"));
    let failure = Failure::new();
    let listen: SocketAddr = address.parse().expect("an address");
    let security = Security::Plain { beyond_loopback: false };
    let (join, levels) = (Vec::new(), Levels::OURS);
    let options = NodeOptions { listen, address, seeds, join, security, levels };
    let member = Member::start(&world, dir, options, Connections::default(), &failure).await;
    let member = Arc::new(member.expect("it starts"));
    let options = BrokerOptions {
        node: member.identity().at.node.0 as u32,
        cluster: Some(member),
        failure: Some(failure),
        ..options_of_one_shard()
    };
    Broker::open(world, dir, options).await.expect("it opens")
}

fn options_of_one_shard() -> BrokerOptions {
    BrokerOptions { shards: Some(1), ..super::options() }
}

/// Three nodes at addresses of this attempt, with a leader for each shard.
async fn three(attempt: usize) -> Vec<Broker> {
    let process = std::process::id();
    let of =
        |number| format!("127.{}.{}.{number}:7703", 160 + process / 250 % 30, 1 + process % 250);
    let seeds: Vec<String> = (1..=3).map(|node| of(3 * attempt + node)).collect();
    let starting = seeds.iter().map(|address| node(address.clone(), seeds.clone()));
    let nodes = timeout(SOON, join_all(starting)).await.expect("they start");
    for node in &nodes {
        timeout(SOON, node.ready()).await.expect("soon").expect("each shard has a leader");
    }
    nodes
}

/// Blocks the apply of a shard until dropped.
struct BlockedApply(Option<mpsc::Sender<()>>, Option<std::thread::JoinHandle<()>>);

impl BlockedApply {
    fn hold(shard: &Arc<LocalShard>) -> Self {
        let shard = Arc::clone(shard);
        let (release, released) = mpsc::channel();
        let (holds, held) = mpsc::channel();
        let holding = move || {
            let _state = shard.shard.state();
            holds.send(()).expect("the test waits");
            let _ = released.recv();
        };
        let thread = std::thread::spawn(holding);
        held.recv().expect("the thread holds it");
        Self(Some(release), Some(thread))
    }
}

impl Drop for BlockedApply {
    fn drop(&mut self) {
        drop(self.0.take());
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

fn commit(partition: PartitionId, offset: u64) -> Vec<CommitOffset> {
    let (leader_epoch, metadata, expire_ms) = (-1, String::new(), None);
    vec![CommitOffset { partition, offset, leader_epoch, metadata, expire_ms }]
}

/// Attempts of a test that blocks threads of its runtime.
const ATTEMPTS: usize = 5;

#[test]
fn new_leader_serves_no_reader_before_it_applied_acknowledged_entries() {
    for attempt in 0..ATTEMPTS {
        // The apply waits on a thread of the runtime, and so does every task that reads the state meanwhile. No other
        // thread takes the task that such a thread was to poll next, which may be one that the election needs. If it
        // polled sockets and timers, no timeout of the runtime expires either.
        let (done, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(24).enable_all().build();
            runtime.expect("it starts").block_on(read_at_a_new_leader_that_lags(attempt));
            let _ = done.send(());
        });
        match ended.recv_timeout(2 * SOON) {
            Ok(()) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    panic!("the runtime stood still {ATTEMPTS} times");
}

async fn read_at_a_new_leader_that_lags(attempt: usize) {
    let nodes = three(attempt).await;
    let topic = topic(&nodes[0], "log", 1, &[]).await;
    let partition = PartitionId::new(topic, 0);
    let leader = nodes.iter().position(|node| node.leads(partition)).expect("there is one");
    let (old, next) = (&nodes[leader], &nodes[(leader + 1) % 3]);
    next.copies_are_current(&[partition]).await.expect("the leader answers");
    let shard = Arc::clone(&next.shards_with_rows()[0]);

    let held = BlockedApply::hold(&shard);
    append(old, partition, &numbered("record ", 10)).await;
    let refused = old.shards().commit_offsets(GROUP, commit(partition, 7)).await;
    assert_eq!(refused.expect("committed"), []);
    let to = u64::from(next.node());
    let transferring = old.shards_with_rows()[0].consensus.transfer_leadership(to);
    timeout(SOON, transferring).await.expect("soon").expect("it is handed over");
    wait_for("an election", async || shard.is_led_here()).await;
    assert_eq!(shard.serves_in(), None, "it has not applied anything of its term");

    let (shards, partitions) = (next.shards(), [partition]);
    let readers = async {
        let current = next.copies_are_current(&partitions);
        let group = next.group_is_current(GROUP);
        let of_all = next.all_are_current(SOON);
        let led = next.led_are_current();
        let bounds = shards.bounds(&partitions);
        let offsets = shards.offsets(GROUP, &partitions);
        let all_offsets = shards.offsets_after(GROUP, None, 10);
        let names = shards.offset_groups_after("", 10);
        let has = shards.has_offsets(GROUP);
        tokio::join!(current, group, of_all, led, bounds, offsets, all_offsets, names, has)
    };
    let mut readers = std::pin::pin!(readers);
    let early = timeout(Duration::from_millis(300), readers.as_mut()).await;
    assert!(early.is_err(), "all were answered");
    {
        // No reader was answered: each one alone waits.
        let waits = |future| async { timeout(Duration::from_millis(50), future).await.is_err() };
        assert!(waits(next.copies_are_current(&partitions)).await);
        let bounds = timeout(Duration::from_millis(50), shards.bounds(&partitions)).await;
        assert!(bounds.is_err(), "the end of a partition");
        let offsets = timeout(Duration::from_millis(50), shards.offsets(GROUP, &partitions)).await;
        assert!(offsets.is_err(), "a committed offset");
        let names = timeout(Duration::from_millis(50), shards.offset_groups_after("", 10)).await;
        assert!(names.is_err(), "names of groups");
    }

    drop(held);
    let answered = timeout(SOON, readers).await.expect("soon");
    let (current, group, of_all, led, bounds, offsets, all_offsets, names, has) = answered;
    assert_eq!((current, group, of_all, led), (Ok(()), Ok(()), Ok(()), Ok(())));
    let ends: Vec<_> = bounds.expect("answered").into_iter().flatten().map(|it| it.end).collect();
    assert_eq!(ends, [10]);
    let offset = |committed: &machine::CommittedOffset| committed.offset;
    let offsets = offsets.expect("answered");
    assert_eq!(offsets.iter().flatten().map(offset).collect::<Vec<_>>(), [7]);
    let all_offsets = all_offsets.expect("answered");
    assert_eq!(all_offsets.iter().map(|(_, it)| offset(it)).collect::<Vec<_>>(), [7]);
    assert_eq!(names.expect("answered"), [GROUP]);
    assert_eq!(has, Ok(true));
}
