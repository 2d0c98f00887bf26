//! Redrive of dead letters.

use base::headers;
use broker::Settlement;
use broker::delivery::{RedriveCounts, RedriveSelection, RedriveTo};
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_redriven_to_their_source_in_order() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic("jobs", 2, &[]).await;
    let group = node.group(topic, &[("dead.letter.topic", "dead")]).await;
    for index in 0..2 {
        let batch = batch(base::PartitionId::new(topic, index), Compression::None, &values(3));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let session = node.broker.lease_session();
    let taken = take(&session, group, 6).await;
    settle(&session, &taken, Settlement::Reject).await;
    assert_eq!(node.depth(group).await, 0);
    // They may come from other shards, with a delay.
    node.wait_for_depth(of_dead, 6).await;
    node.append(dead, &[new("of unknown origin")]).await;

    let one = RedriveSelection::Records(vec![(0, 0)]);
    let redriven = node.broker.redrive(of_dead, one, RedriveTo::Source).await;
    assert_eq!(redriven, Ok(RedriveCounts { moved: 1, left: 0 }));
    let redriven = node.broker.redrive(of_dead, RedriveSelection::All, RedriveTo::Source).await;
    assert_eq!(redriven, Ok(RedriveCounts { moved: 5, left: 1 }));
    assert_eq!((node.depth(group).await, node.depth(of_dead).await), (6, 1));
    let again = take(&session, group, 10).await;
    for index in 0..2 {
        let of_partition: Vec<_> =
            again.iter().filter(|it| it.partition == index).cloned().collect();
        assert_eq!(texts(&of_partition), ["v0", "v1", "v2"]);
    }
    assert!(again.iter().all(|it| it.attempt == 1 && header(it, headers::DEATH_REASON).is_none()));
    node.broker.shutdown().await;
}
