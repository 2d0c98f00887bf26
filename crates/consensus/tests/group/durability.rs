//! Durable copies of voters count as replicated, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use consensus::{GroupId, Members, Role};
use journal::Body;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, address, propose, simulate, voters};

const MOMENT: Duration = Duration::from_millis(400);

#[test]
fn proposals_are_acknowledged_while_one_of_three_disks_hangs_but_not_two() {
    for seed in 0..20 {
        simulate(|| async {
            let cluster = Cluster::founded(seed, 3).await;
            let (leader, leadership) = cluster.leader().await;
            let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
            propose(&leadership, "before").await.unwrap();
            cluster.all_have(&"before".into()).await;

            cluster.hang(others[0], Duration::from_secs(3));
            for number in 0..20 {
                let acknowledged = propose(&leadership, format!("one hangs {number}"));
                timeout(MOMENT, acknowledged).await.expect("a majority is there").unwrap();
            }
            sleep(Duration::from_secs(5)).await;

            for pair in [[others[0], others[1]], [leader, others[0]]] {
                let (_, leadership) = cluster.leader().await;
                propose(&leadership, "between").await.unwrap();
                pair.into_iter().for_each(|node| cluster.hang(node, Duration::from_secs(2)));
                sleep(Duration::from_millis(20)).await;
                let head = Bytes::from(format!("{pair:?} hang"));
                let acknowledged = propose(&leadership, head);
                let _ = timeout(MOMENT, acknowledged).await.expect_err("no majority is durable");
                sleep(Duration::from_secs(5)).await;
            }
            let (_, leadership) = cluster.leader().await;
            propose(&leadership, "after").await.unwrap();
            cluster.all_have(&"after".into()).await;
        });
    }
}

/// The leader's own disk is not privileged.
#[test]
fn proposal_on_two_followers_is_acknowledged_while_the_leaders_disk_hangs() {
    simulate(|| async {
        let cluster = Cluster::founded(3, 3).await;
        let (leader, leadership) = cluster.leader().await;
        propose(&leadership, "before").await.unwrap();
        cluster.hang(leader, Duration::from_secs(2));
        let acknowledged = propose(&leadership, "others have it");
        // To be applied it needs its place in the journal, which is assigned before the disk write.
        timeout(MOMENT, acknowledged).await.expect("two have it").unwrap();
    });
}

#[test]
fn acknowledged_proposal_survives_a_power_loss_of_all_nodes() {
    for seed in 0..20 {
        simulate(|| async {
            let mut cluster = Cluster::founded(seed, 3).await;
            let (_, leadership) = cluster.leader().await;
            for number in 0..30 {
                propose(&leadership, format!("{number}")).await.unwrap();
            }
            (1..=3).for_each(|node| cluster.kill(node));
            for node in 1..=3 {
                cluster.start(node).await;
            }
            let (_, next) = cluster.leader().await;
            assert!(next.term() > leadership.term());
            cluster.all_have(&"29".into()).await;
            let heads = cluster.nodes[&1].ledger.heads();
            assert_eq!(
                heads,
                (0..30).map(|number| Bytes::from(number.to_string())).collect::<Vec<_>>()
            );
        });
    }
}

#[test]
fn followers_apply_without_a_ticket_and_store_the_same_entries() {
    simulate(|| async {
        let cluster = Cluster::founded(4, 3).await;
        let (leader, leadership) = cluster.leader().await;
        let bytes = Bytes::from(vec![9; 5_000]);
        for number in 0..20 {
            let body = Body {
                stream: 1,
                base_offset: number,
                span: 1,
                max_timestamp: -1,
                bytes: bytes.clone(),
            };
            let head = Bytes::from(number.to_string());
            let payload = consensus::Payload { head, bodies: vec![body], ticket: number + 1 };
            leadership.propose(payload).await.unwrap().await.unwrap();
        }
        cluster.all_have(&"19".into()).await;
        let stored = |node: u64| {
            let journal = &cluster.nodes[&node].journal;
            let last = journal.last_id().unwrap().index;
            let entries = journal.encoded_entries(0..last + 1, usize::MAX).unwrap();
            entries.iter().map(|entry| entry.pieces().flatten().collect()).collect::<Vec<Bytes>>()
        };
        for node in 1..=3 {
            assert!(stored(node) == stored(leader), "byte for byte, node {node}");
            let seen = cluster.nodes[&node].ledger.seen();
            let expected = |number: u64| if node == leader { number + 1 } else { 0 };
            let tickets: Vec<u64> = seen.iter().map(|seen| seen.ticket).collect();
            assert_eq!(tickets, (0..20).map(expected).collect::<Vec<_>>());
            let read = cluster.nodes[&node].journal.read(1, 19, 1).await.unwrap();
            assert_eq!(read, [bytes.clone().into()]);
        }
    });
}

#[test]
fn learners_have_the_log_and_do_not_count_for_a_majority() {
    for seed in 0..10 {
        simulate(|| async {
            let mut cluster = Cluster::founded(seed, 3).await;
            cluster.start(4).await;
            cluster.start(5).await;
            let (leader, leadership) = cluster.leader().await;
            let learners = [(4, address(4)), (5, address(5))].into();
            let members = Members { learners, ..voters(1..=3) };
            cluster.consensus(leader).change_members(members.clone()).await.unwrap();
            propose(&leadership, "five have it").await.unwrap();
            cluster.all_have(&"five have it".into()).await;
            assert_eq!(cluster.role(4), Role::Learner { leader: Some(leader) });
            assert_eq!(cluster.consensus(5).members(), members);
            // Three of five are there, but only one of three voters.
            (1..=3).filter(|node| *node != leader).for_each(|node| cluster.kill(node));
            let alone = propose(&leadership, "no majority");
            let _ = timeout(MOMENT, alone).await.expect_err("learners do not count");
            sleep(Duration::from_secs(5)).await;
            assert!(
                (1..=5)
                    .filter(|node| cluster.nodes.contains_key(node))
                    .all(|node| { !matches!(cluster.role(node), Role::Leader { .. }) })
            );
        });
    }
}

#[test]
fn separately_founded_groups_never_exchange_entries() {
    simulate(|| async {
        let mut cluster = Cluster::founded(5, 3).await;
        let (_, leadership) = cluster.leader().await;
        propose(&leadership, "ours").await.unwrap();
        // An operator starts a fourth node with the addresses of the others, and founds a group with it.
        cluster.group = GroupId { cluster: 0xBAD, ..cluster.group };
        cluster.start(4).await;
        cluster.consensus(4).found(voters([1, 2, 4])).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        assert_eq!(cluster.role(4), Role::None);
        assert_eq!(cluster.nodes[&4].ledger.len(), 0);
        let (leader, same) = cluster.leader().await;
        assert_eq!(same.term(), leadership.term(), "the stranger disturbs nobody");
        // The group does not reach the stranger either.
        let members = voters([1, 2, 3, 4]);
        let change = cluster.consensus(leader);
        let adding = change.change_members(members);
        let _ =
            timeout(Duration::from_secs(20), adding).await.expect_err("it has to wait for ever");
        propose(&same, "still ours").await.unwrap();
        assert_eq!(cluster.nodes[&4].ledger.len(), 0);
        assert!(cluster.nodes[&4].journal.last_id().is_none_or(|last| last.index == 0));
    });
}

#[test]
fn invalid_messages_are_answered_and_change_nothing() {
    simulate(|| async {
        let cluster = Cluster::founded(6, 3).await;
        let (leader, leadership) = cluster.leader().await;
        let mut random = crate::random::Random(6);
        for _ in 0..2_000 {
            let len = random.below(200) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            for node in 1..=3 {
                assert!(!cluster.consensus(node).answer(bytes.clone().into()).await.is_empty());
            }
        }
        use futures_util::StreamExt;
        let junk = consensus::ReceivedAppend { head: "junk".into(), entries: "junk".into() };
        let appends = futures_util::stream::iter(vec![junk.clone(), junk]);
        let answers: Vec<Bytes> = cluster.consensus(leader).answer_appends(appends).collect().await;
        assert_eq!(answers.len(), 1, "the first that is not taken is the last");
        propose(&leadership, "after").await.unwrap();
        cluster.all_have(&"after".into()).await;
    });
}
