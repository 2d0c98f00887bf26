//! For how long what a member lacks is kept.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::cluster::{Cluster, propose, simulate, voters};

/// More than a snapshot's worth of log.
async fn write(cluster: &Cluster, round: u64) -> Bytes {
    let (_, leadership) = cluster.leader().await;
    let mut last = Bytes::new();
    for number in 0..100 {
        last = format!("{round} {number} {}", "x".repeat(300)).into();
        propose(&leadership, last.clone()).await.unwrap();
    }
    last
}

async fn founded(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.snapshot_log_bytes_min = 8 << 10;
    for node in 1..=3 {
        cluster.start(node).await;
    }
    cluster.consensus(1).found(voters(1..=3)).await.unwrap();
    cluster
}

#[test]
fn what_a_member_lacks_is_kept_until_it_has_it_also_if_all_lose_power_meanwhile() {
    for seed in 0..10 {
        simulate(|| async {
            let mut cluster = founded(seed).await;
            write(&cluster, 0).await;
            let (leader, _) = cluster.leader().await;
            let away = (1..=3).find(|node| *node != leader).unwrap();
            cluster.kill(away);
            for round in 1..5 {
                write(&cluster, round).await;
                sleep(Duration::from_secs(2)).await;
            }
            for node in (1..=3).filter(|node| *node != away) {
                cluster.kill(node);
                cluster.start(node).await;
            }
            let last = write(&cluster, 5).await;
            cluster.start(away).await;
            cluster.all_have(&last).await;
            assert_eq!(cluster.nodes[&away].ledger.len(), 600);
            // And not for longer, on any of them.
            let last = write(&cluster, 6).await;
            cluster.all_have(&last).await;
            sleep(Duration::from_secs(3)).await;
            for (node, running) in &cluster.nodes {
                let purged = running.journal.purged_id().map(|id| id.index);
                assert!(purged > Some(500), "node {node}: {purged:?}");
                assert!(running.consensus.catching_up().is_empty());
            }
        });
    }
}
