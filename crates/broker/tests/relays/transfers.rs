//! Transfers with settles in several shards, at a node that leads none or some of them.

use std::time::Duration;

use broker::Settlement;
use broker::delivery::{Settle, SettleTarget, TransferError};

use crate::harness::*;

/// No record comes within this time.
const MOMENT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_over_shards_led_elsewhere_takes_effect_as_a_whole() {
    let cluster = Cluster::start_of(4, 3, &[]).await;
    for partition in 0..3 {
        cluster.append(partition, &values(0..2)).await;
    }
    let (node, group) = (cluster.outsider(0), cluster.group);
    let session = cluster.broker(node).lease_session();
    let mut taken = Vec::new();
    while taken.len() < 6 {
        taken.extend(take(&session, group, 6, SOON).await);
    }
    // One lease is not held: then none of the records is settled, and those that other shards withheld come again.
    let mut wrong = settles(&taken, Settlement::Accept);
    let place = wrong.iter().position(|it| shard_index(it) == 1).expect("of the second partition");
    wrong[place].what = SettleTarget::Lease { partition: 1, token: 12_345 };
    let refused = session.transfer(wrong, Vec::new()).await;
    assert!(
        matches!(refused, Err(TransferError::Settle { item, .. }) if item == place),
        "{refused:?}"
    );
    drop(session);

    let session = cluster.broker(node).lease_session();
    let mut taken = Vec::new();
    while taken.len() < 6 {
        taken.extend(take(&session, group, 6, SOON).await);
    }
    let accepted = settles(&taken, Settlement::Accept);
    session.transfer(accepted, Vec::new()).await.expect("it takes effect");
    let progress = cluster.broker(node).shards().lease_progress(group, &[0, 1, 2]).await;
    let floors: Vec<_> =
        progress.expect("known").into_iter().map(|it| it.map(|it| it.floor)).collect();
    assert_eq!(floors, [Some(2); 3]);
    assert!(take(&session, group, 6, MOMENT).await.is_empty(), "nothing comes again");
}

fn shard_index(settle: &Settle) -> u32 {
    match settle.what {
        SettleTarget::Lease { partition, .. } => partition,
        ref other => panic!("{other:?}"),
    }
}
