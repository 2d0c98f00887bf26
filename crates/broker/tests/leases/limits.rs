//! Topics with limits, and the return of disk space.

use std::time::Duration;

use base::{PartitionId, headers};
use broker::{AppendError, ConsumeOptions, Credit, RecordIds, Settlement};
use futures_util::FutureExt;
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_topic_refuses_records_until_some_are_leased() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("small", 1, &[("limit.records", "3")]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(3)).await;
    let refused = node.try_append(topic, &values(1)).await;
    assert_eq!(refused, Err(AppendError::Full { limit: "limit.records".into() }));
    let session = node.broker.lease_session();
    let taken = take(&session, group, 2).await;
    assert!(node.try_append(topic, &values(3)).await.is_err(), "as many as fit, or none");
    node.append(topic, &values(2)).await;
    assert!(node.try_append(topic, &values(1)).await.is_err());
    // Settling a leased record makes no room, since it did not count; a released one counts again.
    settle(&session, &taken[..1], Settlement::Accept).await;
    assert!(node.try_append(topic, &values(1)).await.is_err());
    let back = Settlement::Release { delay_ms: None, count: true };
    settle(&session, &taken[1..], back).await;
    take(&session, group, 1).await;
    assert!(node.try_append(topic, &values(1)).await.is_err());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_within_free_credit_are_accepted_by_a_full_topic() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("small", 1, &[("limit.records", "2")]).await;
    let group = node.group(topic, &[]).await;
    let options = ConsumeOptions { credit: Credit::records(3), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    // All are in flight together: three are delivered, two wait, and for two there is no room.
    let appends: Vec<_> = (0..7)
        .map(|number| {
            let record = [new(format!("v{number}"))];
            let batch = batch(PartitionId::new(topic, 0), Default::default(), &record);
            node.broker.append(vec![batch])
        })
        .collect();
    let mut taken = Vec::new();
    for append in appends {
        taken.push(append.await[0].is_ok());
    }
    assert_eq!(taken, [true, true, true, true, true, false, false]);
    assert_eq!(texts(&consumer.next(3).await), ["v0", "v1", "v2"]);
    assert_eq!(node.depth(group).await, 5);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_records_do_not_count_in_the_limit() {
    let node = open(&SimulatedDisk::new()).await;
    let limits = [("limit.records", "2"), ("limit.overflow", "drop-oldest")];
    let topic = node.topic("recent", 1, &limits).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(2)).await;
    let session = node.broker.lease_session();
    let held = take(&session, group, 1).await;
    node.append(topic, &[new("c")]).await;
    node.append(topic, &[new("d")]).await;
    node.wait_for_depth(group, 3).await;
    assert_eq!(texts(&take(&session, group, 9).await), ["c", "d"]);
    settle(&session, &held, Settlement::Accept).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_refused_by_a_full_topic_can_become_dead_letters() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let limits = [("limit.records", "1"), ("limit.overflow", "reject-dead-letter")];
    let topic = node.topic_beside(dead, "small", 1, &limits).await;
    node.group(topic, &[("dead.letter.topic", "dead")]).await;
    node.append(topic, &[new("kept")]).await;
    assert!(node.try_append(topic, &[new("refused")]).await.is_err());
    node.wait_for_depth(of_dead, 1).await;
    let session = node.broker.lease_session();
    let dead = take(&session, of_dead, 1).await;
    assert_eq!((text(&dead[0]), reason(&dead[0])), ("refused".into(), "overflow".into()));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_topic_drops_the_oldest_records() {
    for dead_letters in [false, true] {
        let node = open(&SimulatedDisk::new()).await;
        let dead = node.topic("dead", 1, &[]).await;
        let of_dead = node.group(dead, &[]).await;
        let limits = [("limit.records", "5"), ("limit.overflow", "drop-oldest")];
        let topic = node.topic_beside(dead, "recent", 1, &limits).await;
        let config = [("dead.letter.topic", "dead")];
        let group = node.group(topic, if dead_letters { &config } else { &[] }).await;
        node.append(topic, &values(12)).await;
        node.wait_for_depth(group, 5).await;
        let session = node.broker.lease_session();
        let kept = take(&session, group, 20).await;
        assert_eq!(texts(&kept), ["v7", "v8", "v9", "v10", "v11"]);
        if dead_letters {
            let dead = take(&session, of_dead, 20).await;
            assert_eq!(texts(&dead), ["v0", "v1", "v2", "v3", "v4", "v5", "v6"]);
            assert!(dead.iter().all(|dead| reason(dead) == "overflow"));
        }
        node.broker.shutdown().await;
    }
}

/// The driver learns of records after the producers' acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_after_a_publish_finds_only_the_newest_records() {
    let node = open(&SimulatedDisk::new()).await;
    let limits = [("limit.records", "3"), ("limit.overflow", "drop-oldest")];
    let topic = node.topic("recent", 1, &limits).await;
    let group = node.group(topic, &[]).await;
    let session = node.broker.lease_session();
    for round in 0..200 {
        let appends: Vec<_> = (0..10)
            .map(|number| {
                let record = [new(format!("v{number}"))];
                let batch = batch(PartitionId::new(topic, 0), Default::default(), &record);
                node.broker.append(vec![batch])
            })
            .collect();
        for append in appends {
            append.await[0].as_ref().expect("appended");
        }
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.extend(take(&session, group, 1).await);
        }
        assert_eq!(texts(&taken), ["v7", "v8", "v9"], "round {round}");
        settle(&session, &taken, Settlement::Accept).await;
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_settled_by_all_groups_free_their_space() {
    let node = open(&SimulatedDisk::new()).await;
    let config = [("retention.settled", "true"), ("retention.ms", "-1")];
    let topic = node.topic("queue", 1, &config).await;
    let group = node.group(topic, &[]).await;
    let partition = PartitionId::new(topic, 0);
    let large = TestRecord { value: "x".repeat(32 << 10), ..TestRecord::default() };
    for _ in 0..200 {
        node.append(topic, std::slice::from_ref(&large)).await;
    }
    let stored = node.live_bytes(partition).await;
    assert!(stored > 6 << 20);
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let held = consumer.next(200).await;
    // All but the oldest: the floor cannot move, but the space is freed.
    consumer.accept(&held[1..]).await;
    let is_below = async |bytes| node.live_bytes(partition).await < bytes;
    wait_for(async || is_below(256 << 10).await, || "fewer live bytes".to_owned()).await;
    consumer.accept(&held[..1]).await;
    wait_for(async || is_below(1).await, || "no live bytes".to_owned()).await;
    assert_eq!(node.broker.bounds(partition).expect("there").log_start, 200);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_with_a_wrong_expected_offset_is_refused() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("state", 1, &[]).await;
    let expecting = |expect| {
        let mut batch = batch(PartitionId::new(topic, 0), Default::default(), &values(2));
        batch.expect = Some(expect);
        batch
    };
    // Both are in flight together: only one can have read the end that it expects.
    let first = node.broker.append(vec![expecting(0)]);
    let second = node.broker.append(vec![expecting(0)]);
    assert_eq!(first.await[0].as_ref().expect("taken").base_offset, 0);
    assert_eq!(second.await[0], Err(AppendError::NotAtExpected { end: 2 }));
    let third = node.broker.append(vec![expecting(2)]).await;
    assert_eq!(third[0].as_ref().expect("taken").base_offset, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_wait_while_their_topic_is_full() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[("limit.records", "1")]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic_beside(dead, "jobs", 1, &[]).await;
    let group = node.group(topic, &[("dead.letter.topic", "dead")]).await;
    let session = node.broker.lease_session();
    for value in ["a", "b"] {
        node.append(topic, &[new(value)]).await;
        let taken = take(&session, group, 1).await;
        // The second is acknowledged only once it is dead-lettered.
        let reply = session.settle(vec![broker::Settle {
            group,
            what: taken[0].lease(),
            settlement: Settlement::Reject,
        }]);
        let answered = tokio::time::timeout(Duration::from_millis(300), reply).await;
        assert_eq!(answered.is_ok(), value == "a");
    }
    let dead_lettered = take(&session, of_dead, 1).await;
    settle(&session, &dead_lettered, Settlement::Accept).await;
    node.wait_for_depth(group, 0).await;
    assert_eq!(texts(&take(&session, of_dead, 1).await), ["b"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_with_a_recent_id_is_not_appended_again() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let topic = node.topic("once", 1, &[("dedup.window.ms", "60000")]).await;
    let id = |id: &str| new(id).header(headers::ID, id);
    // Both are in flight together.
    let record = [id("a")];
    let (first, second) =
        tokio::join!(node.try_append(topic, &record), node.try_append(topic, &record));
    let (first, second) = (first.expect("taken"), second.expect("recognised"));
    assert_eq!((first.base_offset, first.duplicate), (0, false));
    assert_eq!((second.base_offset, second.duplicate), (0, true));
    node.append(topic, &[id("a"), id("b"), new("without")]).await;
    node.broker.shutdown().await;
    drop(node);

    // Also after a restart, and until the window is over.
    let node = open(&disk).await;
    let group = node.group(topic, &[]).await;
    let again = node.try_append(topic, &[id("b")]).await.expect("recognised");
    assert!(again.duplicate);
    let session = node.broker.lease_session();
    assert_eq!(texts(&take_all(&session, group).await), ["a", "b", "without"]);
    node.clock.advance_ms(60_001);
    let later = node.try_append(topic, &[id("b")]).await.expect("taken");
    assert!(!later.duplicate);
    node.broker.shutdown().await;
}

/// Decompressing such a batch and compressing the rest takes a tenth of a second and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_does_not_wait_while_a_large_batch_is_deduplicated() {
    let node = open(&SimulatedDisk::new()).await;
    let once = node.topic("once", 1, &[("dedup.window.ms", "60000")]).await;
    let other = node.topic("other", 1, &[]).await;
    let id = |number: u32| new("v".repeat(2_000)).header(headers::ID, number);
    node.append(once, &[id(7), id(8)]).await;

    let records: Vec<_> = (0..20_000).map(id).chain([id(5)]).collect();
    let mut large = batch(PartitionId::new(once, 0), Compression::Zstd, &records);
    large.ids = Some(RecordIds::read(&large.bytes));
    let mut large = node.broker.append(vec![large]);
    node.append(other, &values(1)).await;
    assert!((&mut large).now_or_never().is_none(), "the other append waited for it");
    let taken = large.await.remove(0).expect("taken");
    assert_eq!((taken.base_offset, taken.duplicate), (2, false));

    // Its records keep their offsets in the batch; those of the duplicates are empty.
    let group = node.group(once, &[]).await;
    let session = node.broker.lease_session();
    let mut offsets = Vec::new();
    loop {
        let leased = take(&session, group, 1_000).await;
        if leased.is_empty() {
            break;
        }
        offsets.extend(leased.iter().map(|it| it.offset));
        settle(&session, &leased, Settlement::Accept).await;
    }
    let copies = [2 + 7, 2 + 8, 2 + 20_000];
    let expected: Vec<u64> = (0..2 + 20_001).filter(|offset| !copies.contains(offset)).collect();
    assert_eq!(offsets, expected);
    let again = node.try_append(once, &[id(19_999)]).await.expect("recognised");
    assert_eq!((again.base_offset, again.duplicate), (2 + 19_999, true));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_batch_for_a_full_topic_is_dead_lettered_in_bounded_requests() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let refusing = [("limit.records", "1"), ("limit.overflow", "reject-dead-letter")];
    let small = node.topic_beside(dead, "small", 1, &refusing).await;
    node.group(small, &[("dead.letter.topic", "dead")]).await;
    let record = |number: u32| new(format!("{number:->500}"));
    let packed = |from: u32| {
        let records: Vec<_> = (from..from + 10_000).map(record).collect();
        batch(PartitionId::new(small, 0), Compression::Zstd, &records)
    };
    // Five megabytes and a few records each, and one uncompressed.
    let plain = batch(PartitionId::new(small, 0), Compression::None, &values(3));
    let answers = node.broker.append(vec![packed(0), plain, packed(10_000)]).await;
    let full = Err(AppendError::Full { limit: "limit.records".into() });
    assert!(answers.iter().all(|answer| *answer == full), "{answers:?}");

    // All of them are there when the producer gets its reply.
    let group = node.group(dead, &[]).await;
    let session = node.broker.lease_session();
    let letters = texts(&take_all(&session, group).await);
    let expected = (0..10_000).map(|it| record(it).value);
    let expected = expected.chain(values(3).into_iter().map(|it| it.value));
    let expected = expected.chain((10_000..20_000).map(|it| record(it).value));
    assert!(
        letters
            .iter()
            .map(String::as_str)
            .eq(expected.collect::<Vec<_>>().iter().map(String::as_str))
    );
    node.broker.shutdown().await;
}
