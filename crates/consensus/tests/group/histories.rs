//! Histories by a seed: nodes lose power, connections are cut in one direction or both, held back and broken,
//! disks hang, leadership is transferred and members change, all under load. At the end every acknowledged
//! proposal is in every ledger, once and in the same order.
//!
//! `HISTORY=n cargo test -p consensus --test group histories` runs one; `HISTORIES=n` the first n.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use consensus::{Consensus, Leadership, ProposeError};
use journal::EntryId;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, propose, simulate, voters};
use crate::random::Random;

/// The outcomes that clients received.
#[derive(Default)]
struct ClientOutcomes {
    next: AtomicU64,
    stop: AtomicBool,
    acknowledged: Mutex<Vec<(EntryId, Bytes)>>,
    /// Certainly not in the log.
    refused: Mutex<BTreeSet<Bytes>>,
    unknown: AtomicU64,
}

/// Proposes to this node whenever it leads, until the node or the history ends, and once more in each term that is
/// over.
async fn client(consensus: Consensus, told: Arc<ClientOutcomes>) {
    while let Ok(leadership) = consensus.leadership().await {
        while !told.stop.load(Ordering::SeqCst) && !is_lost(&leadership).await {
            for _ in 0..2 {
                tokio::spawn(propose_once(leadership.clone(), Arc::clone(&told)));
            }
            sleep(Duration::from_millis(15)).await;
        }
        if told.stop.load(Ordering::SeqCst) {
            return;
        }
        leadership.lost().await;
        tokio::spawn(propose_once(leadership, Arc::clone(&told)));
    }
}

async fn propose_once(leadership: Leadership, told: Arc<ClientOutcomes>) {
    let head = Bytes::from(told.next.fetch_add(1, Ordering::SeqCst).to_string());
    match propose(&leadership, head.clone()).await {
        Ok(id) => told.acknowledged.lock().push((id, head)),
        Err(ProposeError::NotLeader { .. }) => {
            told.refused.lock().insert(head);
        }
        Err(_) => {
            told.unknown.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn is_lost(leadership: &Leadership) -> bool {
    timeout(Duration::ZERO, leadership.lost()).await.is_ok()
}

/// Events of the histories, to check that they cover enough.
#[derive(Default, Debug)]
struct HistoryCoverage {
    acknowledged: u64,
    refused: u64,
    unknown: u64,
    kills: u64,
    terms: u64,
    snapshots: u64,
}

impl HistoryCoverage {
    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.kills += other.kills;
        self.terms += other.terms;
        self.snapshots += other.snapshots;
    }
}

async fn history(seed: u64, seen: &mut HistoryCoverage) {
    let mut random = Random(seed);
    let count = if random.below(4) == 0 { 5 } else { 3 };
    let mut cluster = Cluster::new(random.number());
    if random.below(2) == 0 {
        cluster.snapshot_log_bytes_min = 8 << 10;
        if random.below(2) == 0 {
            cluster.kept_log_bytes_max = 1;
        }
    }
    for node in 1..=count {
        cluster.start(node).await;
    }
    cluster.consensus(1).found(voters(1..=count)).await.unwrap();
    let told = Arc::new(ClientOutcomes::default());
    let clients = |cluster: &Cluster, node: u64| {
        tokio::spawn(client(cluster.consensus(node), Arc::clone(&told)));
    };
    (1..=count).for_each(|node| clients(&cluster, node));
    cluster.network.set_delay_ms_max(random.between(1, 30));
    cluster.leader().await;

    for _ in 0..random.between(3, 9) {
        sleep(Duration::from_millis(random.between(10, 1_000))).await;
        let node = random.between(1, count);
        let other = random.between(1, count);
        let runs = cluster.nodes.contains_key(&node);
        match random.below(10) {
            0..3 => {
                cluster.kill(node);
                seen.kills += 1;
            }
            3 => (1..=count).for_each(|node| cluster.kill(node)),
            4 => cluster.network.cut_off(node, 1..=count),
            5 if node != other => cluster.network.cut_one_way(node, other),
            6 if node != other => cluster.network.hold_answers(node, other),
            7 => cluster.network.break_connections(),
            8 => cluster.hang(node, Duration::from_millis(random.between(50, 2_000))),
            9 if runs => {
                let consensus = cluster.consensus(node);
                tokio::spawn(async move { consensus.transfer_leadership(other).await });
            }
            _ => {}
        }
        if random.below(2) == 0 {
            cluster.network.heal();
        }
        for node in 1..=count {
            if !cluster.nodes.contains_key(&node) && random.below(2) == 0 {
                cluster.start(node).await;
                clients(&cluster, node);
            }
        }
    }

    cluster.network.heal();
    cluster.network.set_delay_ms_max(3);
    for node in 1..=count {
        if !cluster.nodes.contains_key(&node) {
            cluster.start(node).await;
            clients(&cluster, node);
        }
    }
    told.stop.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(2)).await;
    let last = Bytes::from_static(b"last");
    let mut term = 0;
    for _ in 0..20 {
        let (_, leadership) = cluster.leader().await;
        term = leadership.term();
        if let Ok(Ok(_)) = timeout(Duration::from_secs(5), propose(&leadership, last.clone())).await
        {
            break;
        }
    }
    cluster.all_have(&last).await;
    check(&cluster, &told);
    seen.acknowledged += told.acknowledged.lock().len() as u64;
    seen.refused += told.refused.lock().len() as u64;
    seen.unknown += told.unknown.load(Ordering::SeqCst);
    seen.terms += term;
    let purged = |node: &crate::cluster::RunningMember| node.journal.purged_id().is_some();
    seen.snapshots += u64::from(cluster.nodes.values().any(purged));
}

fn check(cluster: &Cluster, told: &ClientOutcomes) {
    let ledger = cluster.nodes[&1].ledger.heads();
    let places: BTreeMap<&Bytes, usize> =
        ledger.iter().enumerate().map(|(place, head)| (head, place)).collect();
    let again = ledger.len() - places.len();
    // "last" was retried until it was acknowledged.
    let lasts = ledger.iter().filter(|head| *head == "last").count();
    assert_eq!(again, lasts - 1, "something was applied twice");
    let mut acknowledged = told.acknowledged.lock().clone();
    acknowledged.sort_by_key(|(id, _)| id.index);
    let mut before = None;
    for (id, head) in &acknowledged {
        let place = places.get(head);
        assert!(place.is_some(), "{head:?} was acknowledged as {id:?} and is gone");
        assert!(place > before, "{head:?} is not where it was said to be");
        before = place;
    }
    let refused = told.refused.lock();
    let taken = refused.iter().find(|head| places.contains_key(head));
    assert_eq!(taken, None, "it was said that it is not in the log and never will be");
    for (node, running) in &cluster.nodes {
        assert_eq!(running.failure.reason(), None, "node {node}");
    }
}

#[test]
fn acknowledged_entries_are_in_every_ledger_once_and_in_the_same_order() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let only = number("HISTORY");
    let seeds = only.map_or(0..number("HISTORIES").unwrap_or(100), |seed| seed..seed + 1);
    let seen = Mutex::new(HistoryCoverage::default());
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|threads| {
        let tell = || {
            let mut own = HistoryCoverage::default();
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed >= seeds.end {
                    break;
                }
                let telling = std::panic::AssertUnwindSafe(|| simulate(|| history(seed, &mut own)));
                let told = std::panic::catch_unwind(telling);
                assert!(told.is_ok(), "tell it again with HISTORY={seed}");
            }
            seen.lock().add(&own);
        };
        let _one = threads.spawn(tell);
        let _another = threads.spawn(tell);
    });
    let seen = seen.into_inner();
    println!("{seen:?}");
    let count = seeds.end - seeds.start;
    let dull = seen.acknowledged < 30 * count || seen.kills < count || seen.terms < count * 3 / 2;
    assert!(only.is_some() || !dull && seen.refused > 0 && seen.unknown > 0, "{seen:?}");
}
