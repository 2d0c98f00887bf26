//! Elections at either end of a channel while letters are in flight.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_letter_arrives_once_over_elections_at_both_ends() {
    const RECORDS: usize = 600;
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 2, "graves", &[]).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    let all = numbered("job ", RECORDS);
    append(&broker, queue, &all).await;
    let session = broker.lease_session();
    let rejecting = async {
        let mut rejected = 0;
        while values(&broker, graves).await.len() < RECORDS {
            let taken = take(&session, group, 5).await;
            rejected += taken.len();
            drop(session.settle(settles(&taken, Settlement::Reject)));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(rejected >= RECORDS);
    };
    let electing = async {
        let mut elections = 0;
        loop {
            for shard in [1, 2, 1, 2, 2, 1] {
                let shard = &broker.local_shards()[shard];
                shard.consensus.reelect().await.expect("elected");
                elections += 1;
                tokio::time::sleep(Duration::from_millis(7)).await;
            }
            assert!(elections < 10_000);
        }
    };
    tokio::select! {
        biased;
        () = rejecting => {}
        () = electing => {}
    }
    let mut found = values(&broker, graves).await;
    found.sort_unstable();
    let mut expected = all;
    expected.sort_unstable();
    assert_eq!(found, expected, "each once");
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

/// A transfer gets its result through elections at either end of the channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_complete_over_elections() {
    let broker = open(&SimulatedDisk::new()).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let from = topic_in(&broker, 1, "from", &[]).await;
    let session = broker.lease_session();
    let mut elections = 0;
    for number in 0..60 {
        let sending = {
            let value = [number.to_string()];
            session.transfer(Vec::new(), vec![batch(&[from], &value), batch(&[to], &value)])
        };
        let electing = async {
            if number % 2 == 0 {
                let shard = &broker.local_shards()[1 + number / 2 % 2];
                shard.consensus.reelect().await.expect("elected");
                elections += 1;
            }
        };
        let (sent, ()) = tokio::join!(sending, electing);
        sent.expect("an election is a pause");
    }
    assert_eq!(elections, 30);
    let expected: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    assert_eq!(values(&broker, to).await, expected);
    broker.shutdown().await;
}
