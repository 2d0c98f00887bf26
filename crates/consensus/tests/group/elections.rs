//! Elections, and the proposals of a deposed leader.

use std::time::Duration;

use bytes::Bytes;
use consensus::{FoundingError, Payload, ProposeError, Role};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, propose, simulate, voters};

#[test]
fn empty_group_waits_for_its_founding_then_elects_and_replicates() {
    simulate(|| async {
        let mut cluster = Cluster::new(1);
        for node in 1..=3 {
            cluster.start(node).await;
        }
        sleep(Duration::from_secs(10)).await;
        assert!((1..=3).all(|node| cluster.role(node) == Role::None), "nobody founded it");
        let refused = cluster.consensus(2).found(voters([1, 3])).await;
        assert_eq!(refused, Err(FoundingError::NotAVoter));
        cluster.consensus(2).found(voters(1..=3)).await.unwrap();
        let (leader, leadership) = cluster.leader().await;
        for number in 0..100 {
            propose(&leadership, format!("{number}")).await.unwrap();
        }
        cluster.all_have(&"99".into()).await;
        let term = leadership.term();
        for node in (1..=3).filter(|node| *node != leader) {
            assert_eq!(cluster.role(node), Role::Follower { leader, term });
            let refused = cluster.consensus(node).found(voters(1..=3)).await;
            assert_eq!(refused, Err(FoundingError::Founded));
        }
        assert_eq!(cluster.consensus(3).members(), voters(1..=3));
    });
}

#[test]
fn cut_off_leader_is_replaced_and_its_unreplicated_entries_are_truncated() {
    for seed in 0..20 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (old, leadership) = cluster.leader().await;
            propose(&leadership, "before").await.unwrap();
            cluster.network.cut_off(old, 1..=3);
            let began = Instant::now();
            let mut stranded = Vec::new();
            for number in 0..5 {
                let head = Bytes::from(format!("stranded {number}"));
                let payload = Payload { head, bodies: vec![], ticket: 7 };
                stranded.push(leadership.propose(payload).await.unwrap());
            }
            timeout(Duration::from_secs(1), leadership.lost()).await.expect("it is lost");
            assert_eq!(cluster.role(old), Role::None);
            let late = propose(&leadership, "late").await;
            assert_eq!(late, Err(ProposeError::NotLeader { leader: None }));
            let (new, next) = cluster.leader().await;
            assert!(new != old && next.term() > leadership.term());
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
            propose(&next, "after").await.unwrap();
            cluster.network.heal();
            for proposed in stranded {
                let outcome = timeout(Duration::from_secs(10), proposed).await.expect("known");
                assert_eq!(outcome, Err(ProposeError::Superseded));
            }
            cluster.all_have(&"after".into()).await;
            assert_eq!(cluster.nodes[&old].ledger.heads(), ["before", "after"]);
        });
    }
}

/// If connections return before an election the engine would continue in the same term.
#[test]
fn term_that_lost_its_majority_for_too_long_does_not_resume() {
    for seed in 0..20 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (old, leadership) = cluster.leader().await;
            // Every node is alone, so that none is elected.
            for node in 1..=3 {
                cluster.network.cut_off(node, 1..=3);
            }
            leadership.lost().await;
            sleep(Duration::from_millis(200)).await;
            cluster.network.heal();
            let (_, next) = cluster.leader().await;
            assert!(next.term() > leadership.term());
            let refused = propose(&leadership, "late").await.unwrap_err();
            assert!(matches!(refused, ProposeError::NotLeader { .. }), "{refused}");
            propose(&next, "after").await.unwrap();
            cluster.all_have(&"after".into()).await;
            assert_eq!(cluster.nodes[&old].ledger.heads(), ["after"]);
        });
    }
}

#[test]
fn leader_that_receives_no_replies_is_replaced() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (old, leadership) = cluster.leader().await;
            (1..=3).for_each(|node| cluster.network.cut_one_way(node, old));
            timeout(Duration::from_secs(3), leadership.lost()).await.expect("it is lost");
            let began = Instant::now();
            let (new, next) = cluster.leader().await;
            assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
            assert_ne!(new, old);
            propose(&next, "after").await.unwrap();
        });
    }
}

#[test]
fn returning_follower_does_not_raise_the_term() {
    for seed in 0..20 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            let other = (1..=3).find(|node| *node != leader).unwrap();
            cluster.network.cut_off(other, 1..=3);
            sleep(Duration::from_secs(10)).await;
            propose(&leadership, "meanwhile").await.unwrap();
            cluster.network.heal();
            assert!(timeout(Duration::from_secs(5), leadership.lost()).await.is_err());
            cluster.all_have(&"meanwhile".into()).await;
            let term = leadership.term();
            assert_eq!(cluster.role(other), Role::Follower { leader, term });
        });
    }
}

#[test]
fn single_voter_elects_itself_at_once() {
    simulate(|| async {
        let mut cluster = Cluster::new(1);
        cluster.start(1).await;
        let began = Instant::now();
        cluster.consensus(1).found(voters([1])).await.unwrap();
        let (_, leadership) = cluster.leader().await;
        propose(&leadership, "one").await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
        // It has no other member.
        assert!(timeout(Duration::from_secs(60), leadership.lost()).await.is_err());
        cluster.kill(1);
        cluster.start(1).await;
        let (_, again) = cluster.leader().await;
        assert_eq!(again.term(), leadership.term() + 1);
        cluster.all_have(&"one".into()).await;
    });
}

/// Members that do not campaign, because their disks are unwell, have to detect by themselves that there is no
/// leader.
#[test]
fn dead_leader_stays_the_leader_of_followers_but_is_not_recent() {
    simulate(|| async {
        let mut cluster = Cluster::founded(7, 3).await;
        let (leader, _) = cluster.leader().await;
        sleep(Duration::from_secs(2)).await;
        let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
        let second = Duration::from_secs(1);
        for node in &others {
            assert!(cluster.consensus(*node).has_recent_leader(second));
            cluster.consensus(*node).set_may_campaign(false);
        }
        cluster.kill(leader);
        sleep(Duration::from_secs(10)).await;
        for node in &others {
            assert!(matches!(cluster.role(*node), Role::Follower { .. }));
            assert!(!cluster.consensus(*node).has_recent_leader(second));
            cluster.consensus(*node).set_may_campaign(true);
        }
        let (next, _) = cluster.leader().await;
        assert_ne!(next, leader);
    });
}
