//! Changes of a group's members, and of its leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use consensus::{Members, ProposeError, Role, TransferError};
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, propose, simulate, voters};

/// Proposes continuously to the leader, until it is stopped. Counts acknowledged proposals.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

impl Load {
    fn on(consensus: Vec<consensus::Consensus>) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        for member in consensus {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                while let Ok(leadership) = member.leadership().await {
                    while !stop.load(Ordering::SeqCst) {
                        let number = acknowledged.load(Ordering::SeqCst);
                        match propose(&leadership, format!("load {number}")).await {
                            Ok(_) => acknowledged.fetch_add(1, Ordering::SeqCst),
                            Err(_) => break,
                        };
                        sleep(Duration::from_millis(1)).await;
                    }
                    leadership.lost().await;
                }
            });
        }
        Self { stop, acknowledged }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    async fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn one_becomes_three_and_one_of_them_is_replaced_under_load() {
    for seed in 0..10 {
        simulate(|| async {
            let mut cluster = Cluster::founded(seed, 1).await;
            for node in 2..=4 {
                cluster.start(node).await;
            }
            let load = Load::on((1..=4).map(|node| cluster.consensus(node)).collect());
            sleep(Duration::from_millis(500)).await;
            assert!(load.acknowledged() > 10);
            let change = cluster.consensus(1).change_members(voters(1..=3)).await;
            change.expect("they catch up under load");
            assert_eq!(cluster.consensus(1).members(), voters(1..=3));

            let (leader, _) = cluster.leader().await;
            let gone = (1..=3).find(|node| *node != leader).unwrap();
            let before = load.acknowledged();
            cluster.kill(gone);
            let members = voters((1..=4).filter(|node| *node != gone));
            cluster.consensus(leader).change_members(members.clone()).await.unwrap();
            assert!(load.acknowledged() > before, "the two that are left go on");
            load.stop().await;
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            cluster.all_have(&"after".into()).await;
            for node in cluster.nodes.keys() {
                assert_eq!(cluster.consensus(*node).members(), members);
            }
            // A repetition changes nothing.
            let (leader, _) = cluster.leader().await;
            cluster.consensus(leader).change_members(members).await.unwrap();
        });
    }
}

#[test]
fn removed_leader_transfers_leadership() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            let rest = voters((1..=3).filter(|node| *node != leader));
            let change = cluster.consensus(leader).change_members(rest.clone()).await;
            // It may lose leadership to one of the rest before its own removal.
            if change.is_err() {
                let (next, _) = cluster.leader().await;
                cluster.consensus(next).change_members(rest.clone()).await.unwrap();
            }
            timeout(Duration::from_secs(10), leadership.lost()).await.expect("it leads no more");
            let (next, leadership) = cluster.leader().await;
            assert_ne!(next, leader);
            propose(&leadership, "after").await.unwrap();
            assert_eq!(cluster.consensus(next).members(), rest);
        });
    }
}

#[test]
fn unfinished_membership_change_is_finished_by_the_next_leader() {
    let mut joint = 0;
    for seed in 0..60 {
        joint += simulate(|| async {
            let mut cluster = Cluster::founded(seed, 3).await;
            cluster.start(4).await;
            cluster.start(5).await;
            let (leader, _) = cluster.leader().await;
            let old = (1..=3).find(|node| *node != leader).unwrap();
            let mut to = voters((1..=4).filter(|node| *node != old));
            if seed % 2 == 0 {
                to = voters((1..=5).filter(|node| *node != old));
            }
            let (consensus, asked) = (cluster.consensus(leader), to.clone());
            let changing = tokio::spawn(async move { consensus.change_members(asked).await });
            sleep(Duration::from_millis(seed)).await;
            cluster.kill(leader);
            changing.abort();
            let (next, leadership) = cluster.leader().await;
            let half_done = cluster.consensus(next).is_changing_voters();
            let settled = async {
                while cluster.consensus(next).is_changing_voters() {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(Duration::from_secs(10), settled).await.expect("it is finished");
            propose(&leadership, "after").await.unwrap();
            let ids = |members: &Members| members.voters.keys().copied().collect::<Vec<_>>();
            let now = ids(&cluster.consensus(next).members());
            assert!(now == [1, 2, 3] || now == ids(&to), "{now:?}");
            u64::from(half_done || now == ids(&to))
        });
    }
    assert!(joint > 3, "only {joint} changes were under way");
}

#[test]
fn leadership_transfer_is_quick_and_loses_nothing() {
    for seed in 0..20 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            for number in 0..20 {
                propose(&leadership, format!("{number}")).await.unwrap();
            }
            let to = (1..=3).find(|node| *node != leader).unwrap();
            let refused = cluster.consensus(to).transfer_leadership(leader).await;
            assert_eq!(refused, Err(TransferError::NotLeader { leader: Some(leader) }));
            let refused = cluster.consensus(leader).transfer_leadership(9).await;
            assert_eq!(refused, Err(TransferError::NotAVoter { node: 9 }));
            let began = Instant::now();
            cluster.consensus(leader).transfer_leadership(to).await.unwrap();
            let (now, next) = cluster.leader().await;
            assert_eq!(now, to);
            assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
            assert!(next.term() > leadership.term());
            propose(&next, "after").await.unwrap();
            cluster.all_have(&"after".into()).await;
            let mut expected: Vec<Bytes> = (0..20).map(|it| Bytes::from(it.to_string())).collect();
            expected.push("after".into());
            assert_eq!(cluster.nodes[&to].ledger.heads(), expected);
        });
    }
}

#[test]
fn leader_about_to_stop_waits_for_a_member_that_is_behind() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            let consensus = cluster.consensus(leader);
            let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
            let all = [1, 2, 3].into();
            assert!(timeout(second, consensus.others_keep_up(&all, minute)).await.unwrap());

            let others = (1..=3).filter(|node| *node != leader);
            let behind = others.clone().next_back().unwrap();
            let in_reach = (1..=3).filter(|node| *node != behind).collect();
            let too_few = consensus.others_keep_up(&in_reach, minute);
            assert!(!timeout(second, too_few).await.expect("nothing to wait for"));

            cluster.network.cut_off(behind, 1..=3);
            for number in 0..20 {
                propose(&leadership, format!("{number}")).await.unwrap();
            }
            assert!(!consensus.others_keep_up(&all, second).await, "it has not come back");
            let waiting = tokio::spawn({
                let consensus = consensus.clone();
                async move { consensus.others_keep_up(&[1, 2, 3].into(), minute).await }
            });
            sleep(second).await;
            assert!(!waiting.is_finished());
            cluster.network.heal();
            assert!(timeout(10 * second, waiting).await.unwrap().unwrap());
            assert!(consensus.lags()[&behind] <= 1, "{:?}", consensus.lags());
            let follower = cluster.consensus(others.clone().next().unwrap());
            assert!(!follower.others_keep_up(&all, minute).await, "it does not lead");
        });
    }
}

#[test]
fn leadership_transfer_to_a_member_that_is_behind_is_refused() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            let to = (1..=3).find(|node| *node != leader).unwrap();
            cluster.network.cut_off(to, 1..=3);
            for number in 0..20 {
                propose(&leadership, format!("{number}")).await.unwrap();
            }
            let consensus = cluster.consensus(leader);
            let handing = tokio::spawn({
                let consensus = consensus.clone();
                async move { consensus.transfer_leadership(to).await }
            });
            // Nothing waits for the member that is away.
            while !handing.is_finished() {
                let began = Instant::now();
                propose(&leadership, "meanwhile").await.unwrap();
                assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
                sleep(Duration::from_millis(20)).await;
            }
            let refused = handing.await.unwrap();
            assert!(
                matches!(refused, Err(TransferError::Behind { node, .. }) if node == to),
                "{refused:?}"
            );
            cluster.network.heal();
            // It takes over once it has caught up, unless its return caused an election.
            let taken = consensus.transfer_leadership(to).await;
            assert!(!matches!(taken, Err(TransferError::Behind { .. })), "{taken:?}");
        });
    }
}

#[test]
fn transfer_to_a_node_that_is_cut_off_ends_in_an_election() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, _) = cluster.leader().await;
            let to = (1..=3).find(|node| *node != leader).unwrap();
            let consensus = cluster.consensus(leader);
            assert!(consensus.others_keep_up(&[1, 2, 3].into(), Duration::from_secs(60)).await);
            cluster.network.cut_off(to, 1..=3);
            let failed = cluster.consensus(leader).transfer_leadership(to).await;
            let expected = [
                TransferError::NotTaken { node: to },
                TransferError::NotLeader { leader: Some(6 - leader - to) },
            ];
            assert!(failed.as_ref().is_err_and(|error| expected.contains(error)), "{failed:?}");
            let began = Instant::now();
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        });
    }
}

#[test]
fn read_sees_earlier_commits_and_a_deposed_leader_rejects_it() {
    for seed in 0..10 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (old, leadership) = cluster.leader().await;
            let written = propose(&leadership, "one").await.unwrap();
            let read = cluster.consensus(old).read_index().await.unwrap();
            assert!(read >= written.index);
            let other = (1..=3).find(|node| *node != old).unwrap();
            let refused = cluster.consensus(other).read_index().await;
            assert_eq!(refused, Err(ProposeError::NotLeader { leader: Some(old) }));

            cluster.network.cut_off(old, 1..=3);
            let stale = cluster.consensus(old);
            let reading = tokio::spawn(async move { stale.read_index().await });
            leadership.lost().await;
            let (_, next) = cluster.leader().await;
            propose(&next, "two").await.unwrap();
            let read = timeout(Duration::from_secs(10), reading).await.expect("it ends").unwrap();
            assert!(read.is_err(), "{read:?}");
            assert_eq!(cluster.role(old), Role::None);
        });
    }
}
