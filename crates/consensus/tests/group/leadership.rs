//! Terms: a proposal of one is not appended in another, and no appended entry is lost.

use std::path::Path;
use std::time::Duration;

use crate::harness::{Node, head};
use consensus::{Leadership, Payload, ProposeError};
use tokio::time::timeout;
use world::SimulatedDisk;

const DIR: &str = "/shard";

async fn next(node: &Node, after: &Leadership) -> Leadership {
    let next = async {
        loop {
            match node.consensus.leadership().await.unwrap() {
                same if same.term() == after.term() => after.lost().await,
                next => return next,
            }
        }
    };
    timeout(Duration::from_secs(10), next).await.expect("it is elected again")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_election_ends_the_term_and_begins_a_later_one() {
    let node = Node::start(SimulatedDisk::new(), Path::new(DIR)).await;
    let first = node.leadership.clone();
    assert_eq!((first.term(), node.consensus.term()), (1, 1));
    assert!(timeout(Duration::from_millis(50), first.lost()).await.is_err());
    node.consensus.reelect().await.unwrap();
    timeout(Duration::from_secs(10), first.lost()).await.expect("it is lost");
    let second = next(&node, &first).await;
    assert!(second.term() > first.term());
    assert_eq!((first.since(), second.since()), (1, 1), "nobody else led");
    assert_eq!(node.consensus.term(), second.term());
    let payload = || Payload { head: head(0), bodies: vec![], ticket: 1 };
    let late = first.propose(payload()).await.unwrap().await;
    assert_eq!(late, Err(ProposeError::NotLeader { leader: Some(1) }));
    assert_eq!(second.propose(payload()).await.unwrap().await.unwrap().term, second.term());
    assert_eq!(node.ledger.heads(), [head(0)]);
    node.consensus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appended_proposals_are_applied_and_the_remaining_suffix_is_refused() {
    let node = Node::start(SimulatedDisk::new(), Path::new(DIR)).await;
    let mut leadership = node.leadership.clone();
    let (mut expected, mut number, mut refused_at_all) = (Vec::new(), 0, 0);
    // An election without proposals in flight refuses nothing.
    for round in 0..500 {
        if round >= 50 && refused_at_all > 0 {
            break;
        }
        let mut under_way = Vec::new();
        for step in 0..40 {
            if step == 20 {
                let consensus = node.consensus.clone();
                tokio::spawn(async move { consensus.reelect().await });
                tokio::task::yield_now().await;
            }
            // In some rounds it comes between two of them, however busy the machine is.
            if step > 20 && round % 2 == 1 {
                tokio::task::yield_now().await;
            }
            let payload = Payload { head: head(number), bodies: vec![], ticket: number as u64 + 1 };
            under_way.push((number, leadership.propose(payload).await.unwrap()));
            number += 1;
        }
        let mut refused = false;
        for (number, proposed) in under_way {
            match timeout(Duration::from_secs(10), proposed).await.expect("it is answered") {
                Ok(_) => {
                    assert!(!refused, "{number} was taken behind one that was not");
                    expected.push(head(number));
                }
                Err(ProposeError::NotLeader { .. }) => {
                    refused = true;
                    refused_at_all += 1;
                }
                Err(other) => panic!("{number}: {other}"),
            }
        }
        leadership = next(&node, &leadership).await;
    }
    assert_eq!(node.ledger.heads(), expected);
    assert!(refused_at_all > 0, "some came too late");
    node.consensus.shutdown().await;
}
