//! Four nodes, of which three have a replica of each shard: the one without rows returns the leader's data.

use std::time::Duration;

use base::PartitionId;
use broker::{Bounds, CommitOffset, Unavailable, batches_in};
use tokio::time::{Instant, timeout};

use crate::harness::*;

impl Cluster {
    pub(crate) fn partition(&self, index: u32) -> PartitionId {
        PartitionId::new(self.topic, index)
    }

    /// The node without rows of a partition's shard.
    pub(crate) fn outsider(&self, index: u32) -> u32 {
        let id = self.partition(index);
        let lacks = |node: &u32| {
            let broker = self.broker(*node);
            !broker.is_member(broker.shard_with(id))
        };
        let until = Instant::now() + SOON;
        loop {
            let all: Vec<u32> = (1..=4).filter(lacks).collect();
            if let [outsider] = all[..] {
                return outsider;
            }
            // A member learns of its membership a moment after the leader.
            assert!(Instant::now() < until, "nodes {all:?} have no rows of partition {index}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    async fn append_at(&self, node: u32, index: u32, values: &[String]) {
        let batch = batch(self.partition(index), values);
        let appended = timeout(SOON, self.broker(node).append_at_leaders(vec![batch])).await;
        appended.expect("it is answered").remove(0).expect("it is taken");
    }

    /// The values of a partition, as a node reads them.
    async fn read(&self, node: u32, index: u32, from: u64) -> Vec<String> {
        let read = self.broker(node).read_known_raw_batches(self.partition(index), from, 1 << 20);
        let read = timeout(SOON, read).await.expect("it is answered").expect("it is read");
        let mut values = Vec::new();
        for batch in batches_in(&read.records) {
            let (header, bytes) = batch.expect("a batch");
            let batch = record::SharedBatch::decode_at(&bytes, Some(header.base_offset));
            for record in batch.expect("it is sound").records() {
                let record = record.expect("a record");
                let value = record.value.expect("a value");
                values.push(String::from_utf8(value.to_vec()).expect("text"));
            }
        }
        values
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_readable_at_a_node_without_a_replica() {
    let cluster = Cluster::start_of(4, 3, &[]).await;
    let all: Vec<PartitionId> = (0..3).map(|index| cluster.partition(index)).collect();
    for index in 0..3 {
        let (outsider, count) = (cluster.outsider(index), 5 + u64::from(index));
        cluster.append_at(outsider, index, &values(0..count as usize)).await;
        let broker = cluster.broker(outsider);
        assert_eq!(broker.bounds(all[index as usize]), None, "it has nothing itself");
        let bounds = broker.bounds_of(all[index as usize]).await.expect("the leader says it");
        assert_eq!(bounds, Some(Bounds { log_start: 0, stable: count, end: count }));
        assert_eq!(cluster.read(outsider, index, 0).await, values(0..count as usize));
        assert_eq!(cluster.read(outsider, index, count).await, values(0..0));
        let id = all[index as usize];
        let at = broker.known_offset_at_time(id, 0).await.expect("it is found").map(|at| at.offset);
        assert_eq!(at, Some(0));
        let newest = broker.known_offset_of_max_timestamp(id).await.expect("it is found");
        assert_eq!(newest.map(|at| at.offset), Some(0));
        let beyond = broker.read_known_raw_batches(id, count + 1, 1 << 20).await;
        assert!(matches!(beyond, Err(broker::FetchError::OffsetOutOfRange { .. })), "{beyond:?}");
    }
    let unknown = PartitionId::new(cluster.topic, 7);
    for node in 1..=4 {
        let shards = cluster.broker(node).shards();
        let bounds = shards.bounds(&[all[2], unknown, all[0]]).await.expect("known");
        let ends: Vec<_> = bounds.into_iter().map(|it| it.map(|it| it.end)).collect();
        assert_eq!(ends, [Some(7), None, Some(5)], "node {node}");
        let places: Vec<_> = all.iter().map(|id| (*id, 0)).collect();
        let epochs = shards.epochs_at(&places).await.expect("known");
        assert!(epochs.iter().all(|epoch| epoch.is_some_and(|epoch| epoch > 0)), "{epochs:?}");
        let live = shards.live_bytes(&all).await.expect("known");
        assert!(live.iter().all(|bytes| *bytes > 0), "node {node}: {live:?}");
        let last = shards.last_appends_ms(&all).await.expect("known");
        assert!(last.iter().all(Option::is_some), "node {node}: {last:?}");
        let progress = shards.lease_progress(cluster.group, &[0, 1, 2, 3]).await.expect("known");
        let ends: Vec<_> = progress.into_iter().map(|it| it.map(|it| (it.floor, it.end))).collect();
        assert_eq!(ends, [Some((0, 5)), Some((0, 6)), Some((0, 7)), None], "node {node}");
        let floors = [0, 1, 2, 9].map(|index| (cluster.group, index));
        let floors = shards.lease_floors(&floors).await.expect("known");
        assert_eq!(floors, [Some(0), Some(0), Some(0), None], "node {node}");
        let broker = cluster.broker(node);
        broker.copies_are_current(&all).await.expect("each leader can be asked");
        let epochs: Vec<i32> = all.iter().map(|id| broker.leader_epoch(*id)).collect();
        assert!(epochs.iter().all(|epoch| *epoch > 0), "node {node}: {epochs:?}");
        let here = shards.live_bytes_here(&all);
        assert_eq!(here.iter().flatten().count(), if node == 3 { 3 } else { 2 }, "node {node}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_offsets_are_the_same_at_every_node() {
    let cluster = Cluster::start_of(4, 3, &[]).await;
    let all: Vec<PartitionId> = (0..3).map(|index| cluster.partition(index)).collect();
    let groups: Vec<String> = (0..12).map(|number| format!("group {number:02}")).collect();
    for (offset, group) in (10..).zip(&groups) {
        let coordinator = cluster.broker(1).coordinator(group).expect("somebody leads");
        let commit = |partition: &PartitionId| CommitOffset {
            partition: *partition,
            offset,
            leader_epoch: 3,
            metadata: format!("at {offset}"),
            expire_ms: None,
        };
        let offsets = all.iter().map(commit).collect();
        let refused = cluster.broker(coordinator).shards().commit_offsets(group, offsets).await;
        assert_eq!(refused, Ok(Vec::new()));
    }
    let mut coordinated = Vec::new();
    for node in 1..=4 {
        let (broker, shards) = (cluster.broker(node), cluster.broker(node).shards());
        for (offset, group) in (10..).zip(&groups) {
            broker.group_is_current(group).await.expect("its leader can be asked");
            let found = shards.offsets(group, &[all[2], all[0]]).await.expect("known");
            let found: Vec<_> = found.into_iter().flatten().collect();
            assert_eq!(found.len(), 2, "node {node}, {group}");
            assert!(
                found.iter().all(|it| it.offset == offset && it.metadata == format!("at {offset}"))
            );
            assert_eq!(shards.offset_count(group).await, Ok(3));
            let after = shards.offsets_after(group, Some(all[0]), 9).await.expect("known");
            let after: Vec<PartitionId> = after.into_iter().map(|(id, _)| id).collect();
            assert_eq!(after, all[1..], "node {node}, {group}");
        }
        assert_eq!(shards.offset_group_count().await, Ok(12));
        let asked = [&*groups[3], "none", &groups[7]];
        assert_eq!(shards.have_offsets(&asked).await, Ok(vec![true, false, true]));
        let ages = shards.offset_ages(&asked).await.expect("known");
        assert!(ages[0].is_some_and(|it| it.oldest_commit_ms.is_some()) && ages[1].is_none());
        let named = shards.offset_groups_after("group 02", 4).await.expect("known");
        assert_eq!(named, groups[3..7], "node {node}");
        assert_eq!(shards.offset_groups_after("", 99).await, Ok(groups.clone()));
        assert_eq!(shards.coordinated_group_count(), shards.coordinated_groups_after("", 99).len());
        coordinated.extend(shards.coordinated_groups_after("", 99));
    }
    coordinated.sort_unstable();
    assert_eq!(coordinated, groups, "each is coordinated by one node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_for_records_is_woken_at_a_node_without_a_replica() {
    let cluster = Cluster::start_of(4, 1, &[]).await;
    let outsider = cluster.outsider(0);
    let watch = cluster.broker(outsider).watch();
    watch.add(cluster.partition(0));
    for round in 0..5_u64 {
        // Spurious wakes are allowed, a missed one is not.
        cluster.append(0, &values(0..1)).await;
        let seen = async {
            loop {
                let bounds = cluster.broker(outsider).bounds_of(cluster.partition(0)).await;
                if bounds.expect("known").expect("it is there").end > round {
                    return;
                }
                watch.ready().await;
                watch.take_ready();
            }
        };
        timeout(SOON, seen).await.expect("it is woken");
        // It waits again, until the next record.
        let _ = timeout(Duration::from_millis(50), watch.ready()).await;
        watch.take_ready();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_to_the_next_leader_and_fail_without_one() {
    let mut cluster = Cluster::start_of(4, 3, &[]).await;
    let (outsider, id) = (cluster.outsider(0), cluster.partition(0));
    cluster.append_at(outsider, 0, &values(0..4)).await;
    let first = cluster.leader(0).await;
    cluster.kill(first);
    let found = async || {
        let bounds = cluster.broker(outsider).bounds_of(id).await;
        bounds.is_ok_and(|it| it == Some(Bounds { log_start: 0, stable: 4, end: 4 }))
    };
    wait_for(found, || "the next leader".to_owned()).await;
    assert_eq!(cluster.read(outsider, 0, 0).await, values(0..4));
    // One of its three nodes is left: there is no leader, and no reply.
    let second = cluster.leader(0).await;
    cluster.kill(second);
    let broker = cluster.broker(outsider);
    let refused = async || broker.bounds_of(id).await.is_err();
    wait_for(refused, || "no leader".to_owned()).await;
    let why = broker.shards().bounds(&[id]).await.expect_err("nobody leads");
    assert!(matches!(why, Unavailable::NotLeader | Unavailable::Unanswered), "{why}");
    let progress = broker.shards().lease_progress(cluster.group, &[0]).await;
    assert!(progress.is_err(), "{progress:?}");
    assert!(broker.read_known_raw_batches(id, 0, 1 << 20).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_learns_of_its_removal_queries_the_leader() {
    let cluster = Cluster::start_of(4, 1, &[]).await;
    let (id, leader, outsider) =
        (cluster.partition(0), cluster.leader(0).await, cluster.outsider(0));
    let member = (1..=4).find(|node| ![leader, outsider].contains(node)).expect("one of four");
    let broker = cluster.broker(member);
    let shard = broker.shard_with(id);
    let led = cluster.broker(leader).led_groups();
    let with = led.into_iter().find(|group| group.shard == shard).expect("it leads it");
    let mut without = with.clone();
    without.voters.retain(|voter| *voter != u64::from(member));
    cluster.append(0, &values(0..3)).await;

    broker.receive_led_groups(leader.into(), vec![without.clone()]);
    wait_for(async || !broker.is_member(shard), || "it is told".to_owned()).await;
    let bounds = broker.bounds_of(id).await.expect("the leader says it");
    assert_eq!(bounds, Some(Bounds { log_start: 0, stable: 3, end: 3 }));
    assert_eq!(broker.shards().live_bytes_here(&[id]), [None]);
    // Gossip of an older term is ignored.
    without.term -= 1;
    broker.receive_led_groups(leader.into(), vec![without.clone()]);
    wait_for(async || broker.is_member(shard), || "it knows better".to_owned()).await;
    // Gossip does not change the leader's own view.
    without.term = with.term + 9;
    cluster.broker(leader).receive_led_groups(member.into(), vec![without]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(cluster.broker(leader).is_member(shard) && cluster.broker(leader).leads(id));
    cluster.append(0, &values(3..4)).await;
    assert_eq!(cluster.read(leader, 0, 3).await, values(3..4));
}
