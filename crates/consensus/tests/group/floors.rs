//! Members whose logs were deleted, and candidates that do not know that they were removed.

use std::time::Duration;

use bytes::Bytes;
use consensus::{Floor, Role};
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, propose, simulate, voters};

/// Longer than any election.
const LONG: Duration = Duration::from_secs(10);

/// Nodes 1, 2 and 3 were the voters. Node 3 was cut off: it lacks the last entries, and does not know that 4 votes
/// in place of 2. Returns the leader among 1 and 4.
async fn without_second(seed: u64) -> (Cluster, u64) {
    let mut cluster = Cluster::founded(seed, 3).await;
    cluster.start(4).await;
    let (leader, leadership) = cluster.leader().await;
    propose(&leadership, "all have it").await.unwrap();
    cluster.all_have_but(&"all have it".into(), &[4]).await;
    if leader != 1 {
        cluster.consensus(leader).transfer_leadership(1).await.unwrap();
    }
    cluster.network.cut_off(3, 1..=4);
    let (leader, leadership) = cluster.leader().await;
    assert_eq!(leader, 1);
    propose(&leadership, "acknowledged").await.unwrap();
    let changed = cluster.consensus(1).change_members(voters([1, 3, 4])).await;
    changed.expect("of 1, 2 and 3 as of 1, 3 and 4 two are there");
    (cluster, 1)
}

#[test]
fn member_without_its_log_does_not_elect_a_candidate_without_acknowledged_entries() {
    for seed in 0..5 {
        simulate(|| async {
            let (mut cluster, _) = without_second(seed).await;
            cluster.step_down(2).await;
            // The two of them would be a majority of the voters that node 3 knows.
            cluster.network.heal();
            for node in [1, 4] {
                cluster.network.cut_off(3, [node]);
                cluster.network.cut_off(2, [node]);
            }
            for turn in 0..4 {
                let mut role = cluster.consensus(3).role();
                let leads = role.wait_for(|role| matches!(role, Role::Leader { .. }));
                let led = timeout(LONG, leads).await;
                assert!(led.is_err(), "seed {seed}: node 3 leads without what was acknowledged");
                // Also after a power failure of the node or of the candidate.
                cluster.kill(2 + turn % 2);
                cluster.start(2 + turn % 2).await;
            }
            cluster.network.heal();
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            cluster.all_have_but(&"after".into(), &[2]).await;
            let heads = cluster.nodes[&3].ledger.heads();
            assert!(heads.contains(&Bytes::from("acknowledged")), "{heads:?}");
        });
    }
}

#[test]
fn returning_member_votes_and_leads_once_it_regained_its_log() {
    for seed in 0..10 {
        simulate(|| async {
            let (mut cluster, leader) = without_second(seed).await;
            cluster.step_down(2).await;
            cluster.network.heal();
            let change = cluster.consensus(leader).change_members(voters([1, 2, 3, 4])).await;
            change.expect("it catches up");
            let change = cluster.consensus(leader).change_members(voters([1, 2, 4])).await;
            change.expect("three have it");
            assert!(!cluster.consensus(2).is_below_floor());
            let (leader, leadership) = cluster.leader().await;
            propose(&leadership, "again").await.unwrap();
            cluster.all_have_but(&"again".into(), &[3]).await;
            if leader != 2 {
                cluster.consensus(leader).transfer_leadership(2).await.unwrap();
            }
            let (leader, leadership) = cluster.leader().await;
            assert_eq!(leader, 2);
            propose(&leadership, "led again").await.unwrap();
            // It is an ordinary voter after a restart.
            cluster.kill(2);
            cluster.start(2).await;
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            cluster.all_have_but(&"after".into(), &[3]).await;
        });
    }
}

#[test]
fn readded_member_that_deletes_its_log_receives_all_of_it() {
    for seed in 0..5 {
        simulate(|| async {
            let (mut cluster, leader) = without_second(seed).await;
            cluster.network.heal();
            let mut members = voters([1, 3, 4]);
            members.learners.extend(voters([2]).voters);
            let change = cluster.consensus(leader).change_members(members).await;
            change.expect("a majority has it");
            let (leader, leadership) = cluster.leader().await;
            propose(&leadership, "it has all").await.unwrap();
            cluster.all_have(&"it has all".into()).await;
            // It had received its removal before, and was not restarted until now.
            cluster.step_down(2).await;
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            cluster.all_have(&"after".into()).await;
            let change = cluster.consensus(leader).change_members(voters([1, 2, 3, 4])).await;
            change.expect("it has all again");
        });
    }
}

#[test]
fn member_below_its_floor_does_not_elect_itself_alone() {
    simulate(|| async {
        let mut cluster = Cluster::founded(3, 1).await;
        let (_, leadership) = cluster.leader().await;
        propose(&leadership, "first").await.unwrap();
        // It had more, as had others, which still have it; it has received only the beginning so far.
        cluster.kill(1);
        let had = cluster.floor_of(1).await;
        let further = had.beyond(100);
        cluster.floors.insert(1, further);
        cluster.start(1).await;
        sleep(LONG).await;
        assert_eq!(cluster.role(1), Role::None);
        assert!(cluster.consensus(1).is_below_floor());
        // Without a floor it is the whole group.
        cluster.kill(1);
        cluster.floors.remove(&1);
        cluster.start(1).await;
        let (leader, _) = cluster.leader().await;
        assert_eq!(leader, 1);
    });
}

#[test]
fn empty_floor_restricts_nothing() {
    simulate(|| async {
        let mut cluster = Cluster::new(9);
        for node in 1..=3 {
            cluster.start(node).await;
            cluster.kill(node);
            let floor: Floor = cluster.floor_of(node).await;
            assert_eq!(floor.last(), None);
            cluster.floors.insert(node, floor);
            cluster.start(node).await;
        }
        cluster.consensus(1).found(voters(1..=3)).await.unwrap();
        let (_, leadership) = cluster.leader().await;
        propose(&leadership, "one").await.unwrap();
        cluster.all_have(&"one".into()).await;
    });
}
