//! A member gets entries that the log no longer has over the bulk lane.

use std::time::Duration;

use base::limits::SNAPSHOT_PIECE_BYTES;
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use crate::node::{Nodes, propose};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_away_for_long_receives_a_snapshot_and_serves_it() {
    let mut nodes = Nodes::founded_with(3, 1 << 20).await;
    let (leader, leadership) = nodes.leader().await;
    let away = leader % 3 + 1;
    nodes.kill(away).await;
    // One of them is larger than a piece.
    let bytes = |number: u64| if number == 7 { 3 * SNAPSHOT_PIECE_BYTES } else { 300_000 };
    let heads: Vec<Bytes> = (0..40).map(|number| format!("entry {number}").into()).collect();
    for (number, head) in (0..).zip(&heads) {
        propose(&leadership, head, number, bytes(number)).await.expect("it is committed");
    }
    let let_go = async {
        while nodes.running[&leader].journal.purged_id().map(|id| id.index) < Some(20) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), let_go).await.expect("the log is let go of");
    nodes.start(away).await;
    nodes.all_have(&heads).await;
    let journal = &nodes.running[&away].journal;
    assert!(journal.purged_id().map(|id| id.index) >= Some(20), "it was sent entries");
    for number in 0..40 {
        let read = journal.read(5, number, 1).await.expect("it is read");
        let read: Vec<Bytes> = read.into_iter().map(|stored| stored.into_bytes()).collect();
        assert!(read.concat() == vec![number as u8; bytes(number)], "batch {number}");
    }
}
