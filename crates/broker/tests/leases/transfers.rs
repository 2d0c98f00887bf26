//! Settles, appends and dead letters that take effect together.

use std::sync::Arc;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::delivery::{SettleTarget, TransferError};
use broker::{AppendBatch, AppendError, Delivery, Settle, Settlement};
use futures_util::future::maybe_done;
use futures_util::poll;
use hashbrown::HashSet;
use world::disk::{RealDisk, SimulatedDisk};

use crate::harness::*;

/// A queue whose dead letters go to `dead`, and a topic with room for two records.
struct Stage {
    node: Node,
    jobs: TopicId,
    group: LeaseGroupId,
    of_dead: LeaseGroupId,
    small: TopicId,
}

async fn stage_on(node: Node, dead: &[(&str, &str)]) -> Stage {
    let dead = node.topic("dead", 1, dead).await;
    let of_dead = node.group(dead, &[]).await;
    let small = node.topic_beside(dead, "small", 1, &[("limit.records", "2")]).await;
    let jobs = node.topic_beside(dead, "jobs", 1, &[]).await;
    let group = node.group(jobs, &[("dead.letter.topic", "dead")]).await;
    Stage { node, jobs, group, of_dead, small }
}

async fn stage() -> Stage {
    stage_on(open(&SimulatedDisk::new()).await, &[]).await
}

impl Stage {
    fn end(&self, delivery: &Delivery, settlement: Settlement) -> Settle {
        Settle { group: self.group, what: delivery.lease(), settlement }
    }

    fn to_small(&self, value: &str) -> AppendBatch {
        batch(PartitionId::new(self.small, 0), Default::default(), &[new(value)])
    }

    fn stored(&self, topic: TopicId) -> u64 {
        let partition = PartitionId::new(topic, 0);
        self.node.broker.bounds(partition).expect("there").end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_transfer_settles_and_appends_nothing() {
    let stage = stage().await;
    let Stage { node, jobs, group, of_dead, small } = &stage;
    node.append(*jobs, &values(3)).await;
    node.append(*small, &values(2)).await;
    let session = node.broker.lease_session();
    for _ in 0..20 {
        let taken = take(&session, *group, 3).await;
        assert_eq!(texts(&taken), ["v0", "v1", "v2"], "all of them are there again");
        let settles = vec![
            stage.end(&taken[0], Settlement::Accept),
            stage.end(&taken[1], Settlement::Reject),
            stage.end(&taken[2], Settlement::Reject),
        ];
        let refused = session.transfer(settles, vec![stage.to_small("x")]).await;
        let source = AppendError::Full { limit: "limit.records".into() };
        assert_eq!(refused, Err(TransferError::Append { batch: 0, source }));
        assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (3, 0));
    }
    assert_eq!(stage.stored(*small), 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_without_room_refuse_the_whole_transfer() {
    let node = open(&SimulatedDisk::new()).await;
    let stage = stage_on(node, &[("limit.records", "1")]).await;
    let Stage { node, jobs, group, of_dead, small } = &stage;
    node.append(*jobs, &values(2)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, *group, 2).await;
    let rejects = taken.iter().map(|delivery| stage.end(delivery, Settlement::Reject)).collect();
    let refused = session.transfer(rejects, vec![stage.to_small("x")]).await;
    let source = AppendError::Full { limit: "limit.records".into() };
    assert_eq!(refused, Err(TransferError::Append { batch: 0, source }));
    assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (2, 0));
    assert_eq!(stage.stored(*small), 0);
    let taken = take(&session, *group, 2).await;
    let one = vec![stage.end(&taken[0], Settlement::Reject)];
    session.transfer(one, vec![stage.to_small("x")]).await.expect("there is room for one");
    assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (1, 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_that_names_a_record_twice_is_refused_and_ends_none_of_its_leases() {
    let stage = stage().await;
    let Stage { node, jobs, group, of_dead, small } = &stage;
    node.append(*jobs, &values(3)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, *group, 3).await;
    let release = Settlement::Release { delay_ms: None, count: true };
    for again in [Settlement::Accept, Settlement::Reject, release] {
        let settles = vec![
            stage.end(&taken[0], release),
            stage.end(&taken[1], Settlement::Reject),
            stage.end(&taken[2], Settlement::Accept),
            stage.end(&taken[2], again),
        ];
        let refused = session.transfer(settles, vec![stage.to_small("x")]).await;
        assert!(matches!(refused, Err(TransferError::Settle { item: 3, .. })), "{refused:?}");
    }
    assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (3, 0));
    assert_eq!(stage.stored(*small), 0);
    // A range up to an offset selects the leases that no earlier settle named.
    let up_to = |last| {
        let what = SettleTarget::UpTo { partition: 0, last };
        Settle { group: *group, what, settlement: Settlement::Accept }
    };
    let refused = session.transfer(vec![up_to(1), up_to(1)], Vec::new()).await;
    assert!(matches!(refused, Err(TransferError::Settle { item: 1, .. })), "{refused:?}");
    let accepted = session.transfer(vec![up_to(1), up_to(2)], vec![stage.to_small("x")]).await;
    accepted.expect("the session holds all of them");
    assert_eq!(node.depth(*group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_a_transfer_must_fit_together() {
    let stage = stage().await;
    let Stage { node, jobs, group, small, .. } = &stage;
    node.append(*jobs, &values(1)).await;
    let session = node.broker.lease_session();
    let transfer = async |values: &[&str]| {
        let taken = take(&session, *group, 1).await;
        let accept = vec![stage.end(&taken[0], Settlement::Accept)];
        let batches = values.iter().map(|value| stage.to_small(value)).collect();
        session.transfer(accept, batches).await
    };
    let source = AppendError::Full { limit: "limit.records".into() };
    let refused = transfer(&["a", "b", "c"]).await;
    assert_eq!(refused, Err(TransferError::Append { batch: 0, source }));
    assert_eq!((node.depth(*group).await, stage.stored(*small)), (1, 0));
    let taken = transfer(&["a", "b"]).await.expect("two fit");
    assert_eq!(taken.iter().flatten().map(|it| it.base_offset).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((node.depth(*group).await, stage.stored(*small)), (0, 2));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_and_its_dead_letters_are_atomic_under_power_loss() {
    let mut there = 0;
    for seed in 0..40 {
        let disk = SimulatedDisk::new();
        let stage = stage_on(open(&disk).await, &[]).await;
        stage.node.append(stage.jobs, &values(3)).await;
        let session = stage.node.broker.lease_session();
        let taken = take(&session, stage.group, 3).await;
        let settles = vec![
            stage.end(&taken[0], Settlement::Accept),
            stage.end(&taken[1], Settlement::Reject),
            stage.end(&taken[2], Settlement::Release { delay_ms: None, count: true }),
        ];
        disk.cut_power_after(seed % 8);
        let done = session.transfer(settles, vec![stage.to_small("x")]).await.is_ok();
        drop(session);
        stage.node.broker.shutdown().await;

        let Stage { jobs, group, of_dead, small, .. } = stage;
        let node = open(&disk.power_loss(seed)).await;
        let stage = Stage { node, jobs, group, of_dead, small };
        let appended = stage.stored(small);
        assert!(appended == 1 || !done, "seed {seed}: lost");
        there += appended;
        let expected = if appended == 1 { (1, 1) } else { (3, 0) };
        let depths = (stage.node.depth(group).await, stage.node.depth(of_dead).await);
        assert_eq!(depths, expected, "seed {seed}: a part of it");
        stage.node.broker.shutdown().await;
    }
    assert!((1..40).contains(&there), "{there} of 40 were there: the power failed at other times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_reads_rejected_records_that_left_memory_first() {
    let stage = stage().await;
    let Stage { node, jobs, group, of_dead, small } = &stage;
    // More than the cache keeps of delivered records.
    let large = "x".repeat(900_000);
    for number in 0..80 {
        node.append(*jobs, &[new(format!("{number} {large}"))]).await;
    }
    let session = node.broker.lease_session();
    let taken = take(&session, *group, 80).await;
    let settles = [0, 79, 1].map(|at| stage.end(&taken[at], Settlement::Reject)).to_vec();
    session.transfer(settles, vec![stage.to_small("x")]).await.expect("done");
    assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (77, 3));
    assert_eq!(stage.stored(*small), 1);
    // Too many for one entry: appended afterwards, but before the reply.
    let rest: Vec<Settle> =
        taken[2..79].iter().map(|it| stage.end(it, Settlement::Reject)).collect();
    session.transfer(rest, vec![stage.to_small("y")]).await.expect("done");
    assert_eq!((node.depth(*group).await, node.depth(*of_dead).await), (0, 80));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settles_concurrent_with_a_refused_transfer_stay_settled() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stage = stage_on(open_on(Arc::new(RealDisk), dir.path()).await, &[]).await;
    let Stage { node, jobs, group, small, .. } = &stage;
    node.append(*jobs, &values(900)).await;
    node.append(*small, &values(2)).await;
    let session = node.broker.lease_session();
    let mut confirmed = HashSet::new();
    for round in 0..200 {
        let taken = take(&session, *group, 4).await;
        for delivery in &taken {
            assert!(!confirmed.contains(&delivery.offset), "round {round}: it was settled");
        }
        let accept = |at: usize| vec![stage.end(&taken[at], Settlement::Accept)];
        let before = session.settle(accept(0));
        let transfer = session.transfer(accept(1), vec![stage.to_small("x")]);
        // Sent with the first poll, and possibly completed by then.
        let mut transfer = std::pin::pin!(maybe_done(transfer));
        let _ = poll!(transfer.as_mut());
        let meanwhile = session.settle(accept(2));
        tokio::task::yield_now().await;
        let after = session.settle(accept(3));
        transfer.as_mut().await;
        assert!(transfer.take_output().is_some_and(|answer| answer.is_err()));
        for (at, reply) in [(0, before), (2, meanwhile), (3, after)] {
            if reply.await[0].is_ok() {
                confirmed.insert(taken[at].offset);
            }
        }
    }
    assert!(confirmed.len() >= 200);
    node.broker.shutdown().await;
}
