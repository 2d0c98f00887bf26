//! How long a member may be away, and what happens to one that was away for longer.

use std::time::Duration;

use bytes::Bytes;
use consensus::{ChangeError, Role};
use tokio::time::{sleep, timeout};

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
                assert!(running.consensus.are_left_behind().is_empty());
            }
        });
    }
}

#[test]
fn a_member_that_lacks_what_nobody_has_any_more_is_told_and_named() {
    simulate(|| async {
        let mut cluster = founded(1).await;
        for round in 0..3 {
            write(&cluster, round).await;
            sleep(Duration::from_secs(2)).await;
        }
        cluster.start(4).await;
        let (leader, leadership) = cluster.leader().await;
        assert!(cluster.nodes[&leader].journal.purged_id().is_some());
        let adding = cluster.consensus(leader);
        let adding = adding.change_members(voters(1..=4));
        let added = timeout(Duration::from_secs(10), adding).await.expect("it does not wait");
        assert_eq!(added, Err(ChangeError::TooFarBehind { node: 4 }));
        assert_eq!(cluster.consensus(leader).are_left_behind(), [4].into());
        assert_eq!(cluster.nodes[&4].ledger.len(), 0);
        assert!(!matches!(cluster.role(4), Role::Leader { .. }));
        propose(&leadership, "the others go on").await.unwrap();
        cluster.consensus(leader).change_members(voters(1..=3)).await.unwrap();
        assert_eq!(cluster.consensus(leader).members(), voters(1..=3));
    });
}
