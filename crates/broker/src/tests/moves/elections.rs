//! Elections of the shards at both ends, and of the catalog, while partitions move.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_move_during_elections_of_all_shards() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    append(&broker, partition, &numbered("a ", 50)).await;
    let stop = AtomicBool::new(false);
    let electing = async {
        let mut elections = 0;
        while !stop.load(Ordering::Relaxed) {
            for shard in [1, 2, 0, 3] {
                broker.local_shards()[shard].consensus.reelect().await.expect("elected");
                elections += 1;
                tokio::time::sleep(Duration::from_millis(9)).await;
            }
        }
        elections
    };
    let producing = async {
        let (mut count, mut epoch) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let value = format!("b {count}");
            append_soon(&broker, || produced(partition, 7, count, &value)).await;
            count += 1;
            let now = broker.leaders(partition.topic).of(partition.index).epoch;
            assert!(now >= epoch, "leader epochs only rise: {now} after {epoch}");
            epoch = now;
        }
        count
    };
    let moving = async {
        for to in [2, 3, 1, 2] {
            until("it may move", async || {
                let wanted = broker.move_partitions(partition.topic, vec![0], ShardId(to)).await;
                // A change of the catalog whose reply is lost may have been made.
                wanted.is_ok().then_some(())
            })
            .await;
            settled(&broker).await;
            assert_eq!(broker.shard_of(partition).id(), ShardId(to));
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (elections, count, ()) = tokio::join!(electing, producing, moving);
    println!("{elections} elections, {count} appends");
    let mut expected = numbered("a ", 50);
    expected.extend(numbered("b ", count as usize));
    assert_eq!(values(&broker, partition).await, expected);
    broker.shutdown().await;
}
