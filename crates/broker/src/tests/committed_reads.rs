//! Readers of a partition with transactions: committed records, and none of open or aborted ones.

use base::Offset;
use machine::command::EndCause;
use machine::{Command, Outcome, ProducerKey, Refusal, TransactionCommand, TransactionRefusal};
use shard::error::ExecuteError;
use shard_peers::bounds::Bounds;
use shard_peers::shard_query::{ShardQuery, ShardQueryReply};
use tokio::time::timeout;

use super::*;
use crate::delivery::SeekTo;
use crate::remote::query_server::reply_to;
use crate::shard_reads::Batches;

const SOON: Duration = Duration::from_secs(10);

/// A producer with a transactional id whose home is the shard of its partition.
struct Producer<'a> {
    broker: &'a Broker,
    partition: PartitionId,
    id: String,
    key: ProducerKey,
    sequence: i32,
}

impl<'a> Producer<'a> {
    async fn new(broker: &'a Broker, partition: PartitionId, number: i64) -> Self {
        let id = format!("producer-{number}");
        let command = TransactionCommand::Initialize {
            id: id.clone(),
            expect: None,
            fresh: 1_000 + number,
            timeout_ms: 60_000,
        };
        let key = match execute(broker, partition, command).await {
            Outcome::Producer { producer } => producer,
            other => panic!("{other:?}"),
        };
        Self { broker, partition, id, key, sequence: 0 }
    }

    async fn begin(&self) {
        let shard = Some(self.broker.shard_of(self.partition).id());
        let (id, producer) = (self.id.clone(), self.key);
        let join = TransactionCommand::Join { id, producer, shard, added: vec![], requires: None };
        execute(self.broker, self.partition, join).await;
    }

    /// Appends a batch of its transaction; returns the base offset.
    async fn append(&mut self, records: &[(&str, &str)]) -> Offset {
        let options = BatchOptions {
            producer_id: self.key.id,
            producer_epoch: self.key.epoch,
            base_sequence: self.sequence,
            transactional: true,
            ..BatchOptions::default()
        };
        self.sequence += records.len() as i32;
        append_with(self.broker, self.partition, options, records).await
    }

    async fn end(&self, commit: bool) {
        let (id, producer, cause) = (self.id.clone(), self.key, EndCause::Client);
        let end = TransactionCommand::End { id, producer, commit, cause, fresh: -1 };
        execute(self.broker, self.partition, end).await;
    }
}

async fn execute(broker: &Broker, partition: PartitionId, command: TransactionCommand) -> Outcome {
    let shard = broker.shard_of(partition);
    let markers = Refusal::Transaction(TransactionRefusal::Markers);
    for _ in 0..1_000 {
        match shard.execute(Command::Transaction(command.clone())).await {
            // The entry of the last batch is still in flight, though it was answered.
            Err(ExecuteError::Refused(refusal)) if refusal == markers => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            done => return done.expect("it is accepted"),
        }
    }
    panic!("the transaction does not end");
}

async fn append_with(
    broker: &Broker,
    partition: PartitionId,
    options: BatchOptions,
    records: &[(&str, &str)],
) -> Offset {
    let mut batch = BatchBuilder::new(options);
    for (key, value) in records {
        let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
        batch.push(1, key, value, &[]).expect("has room");
    }
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let appended = broker.append(vec![AppendBatch::new(partition, header, bytes)]).await.remove(0);
    appended.expect("it is accepted").base_offset
}

async fn plain(broker: &Broker, partition: PartitionId, value: &str) -> Offset {
    append_with(broker, partition, BatchOptions::default(), &[("plain", value)]).await
}

fn values_in(read: &Batches) -> Vec<String> {
    let mut values = Vec::new();
    for batch in read.iter() {
        let (_, bytes) = batch.expect("a batch");
        let batch = record::SharedBatch::decode(&bytes).expect("records");
        for record in batch.records().map(|it| it.expect("a record")) {
            values.push(String::from_utf8(record.value.expect("a value").to_vec()).expect("text"));
        }
    }
    values
}

/// Values of the committed records from an offset on, read in small parts, and the offset at which a reader waits.
async fn committed(broker: &Broker, partition: PartitionId, from: Offset) -> (Vec<String>, Offset) {
    let (mut values, mut next) = (Vec::new(), from);
    loop {
        let read = broker.read_batches(partition, next, 1).await.expect("reads");
        values.extend(values_in(&read));
        let stable = broker.bounds(partition).expect("it is there").stable;
        assert!(read.next_offset() <= stable.max(next));
        if read.next_offset() == next {
            assert!(next >= stable, "a reader waits below the stable end");
            return (values, next);
        }
        next = read.next_offset();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_reader_stops_at_the_stable_end_and_skips_aborted_batches() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let partition = topic_in(&broker, 2, "orders", &[]).await;
    let (mut one, mut two) =
        (Producer::new(&broker, partition, 1).await, Producer::new(&broker, partition, 2).await);
    plain(&broker, partition, "a").await;
    one.begin().await;
    assert_eq!(one.append(&[("k", "one"), ("k", "more")]).await, 1);
    two.begin().await;
    assert_eq!(two.append(&[("k", "two")]).await, 3);
    plain(&broker, partition, "b").await;
    two.end(false).await;
    assert_eq!(one.append(&[("k", "last")]).await, 6);

    let bounds = broker.bounds(partition).expect("it is there");
    assert_eq!(bounds, Bounds { log_start: 0, stable: 1, end: 7 });
    assert_eq!(committed(&broker, partition, 0).await, (vec!["a".to_owned()], 1));
    assert_eq!(committed(&broker, partition, 4).await, (vec![], 4));
    let raw = broker.read_raw_batches(partition, 0, 1 << 20).await.expect("reads");
    assert_eq!((raw.high_watermark, raw.stable_end()), (7, 1));
    assert_eq!(batches_in(&raw.records).count(), 6);
    let aborted: Vec<_> = raw.aborted().iter().map(|it| (it.producer, it.first, it.last)).collect();
    assert_eq!(aborted, [(two.key.id, 3, 5)]);
    let mut cut = raw.clone();
    cut.cut_at_stable_end();
    assert_eq!(batches_in(&cut.records).count(), 1);
    assert!(cut.aborted().is_empty());
    assert!(broker.read_batches(partition, 8, 1).await.is_err(), "it is above the end");

    one.end(true).await;
    let expected: Vec<String> = ["a", "one", "more", "b", "last"].map(str::to_owned).into();
    assert_eq!(committed(&broker, partition, 0).await, (expected.clone(), 8));
    let read = broker.read_batches(partition, 0, 1 << 20).await.expect("reads");
    assert_eq!((values_in(&read), read.next_offset()), (expected.clone(), 8));
    assert_eq!(committed(&broker, partition, 5).await, (vec!["last".to_owned()], 8));
    assert_eq!(committed(&broker, partition, 7).await, (vec![], 8));

    broker.shutdown().await;
    let broker = open(&disk).await;
    assert_eq!(committed(&broker, partition, 0).await, (expected, 8));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_of_several_partitions_are_skipped_in_each() {
    let broker = open(&SimulatedDisk::new()).await;
    let topic = topic(&broker, "wide", 6, &[]).await;
    let shard = broker.shard_of(PartitionId::new(topic, 0)).id();
    let here: Vec<PartitionId> = (0..6)
        .map(|index| PartitionId::new(topic, index))
        .filter(|id| broker.shard_of(*id).id() == shard)
        .collect();
    assert!(here.len() > 1);
    for &partition in &here[1..] {
        plain(&broker, partition, "before").await;
    }
    let mut producer = Producer::new(&broker, here[0], 1).await;
    for commit in [true, false] {
        producer.begin().await;
        let sequence = producer.sequence;
        for &partition in &here {
            (producer.partition, producer.sequence) = (partition, sequence);
            producer.append(&[("k", if commit { "kept" } else { "dropped" })]).await;
        }
        producer.end(commit).await;
    }
    assert_eq!(committed(&broker, here[0], 0).await, (vec!["kept".to_owned()], 4));
    let expected = ["before", "kept"].map(str::to_owned).to_vec();
    for &partition in &here[1..] {
        assert_eq!(committed(&broker, partition, 0).await, (expected.clone(), 5));
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_node_gets_the_stable_end_and_the_aborted_transactions_with_the_batches() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "orders", &[]).await;
    let mut producer = Producer::new(&broker, partition, 1).await;
    producer.begin().await;
    producer.append(&[("k", "aborted")]).await;
    producer.end(false).await;
    plain(&broker, partition, "plain").await;
    producer.begin().await;
    producer.append(&[("k", "open")]).await;

    let shard = broker.shard_of(partition);
    let expected = Bounds { log_start: 0, stable: 3, end: 4 };
    let ask = async |query| reply_to(shard, query).await.expect("it leads");
    let (reply, body) =
        ask(ShardQuery::ReadStable { partition, offset: 0, bytes_max: 1 << 20 }).await;
    let ShardQueryReply::ReadStable { bounds, aborted } = reply else { panic!("{reply:?}") };
    assert_eq!(bounds, expected);
    assert_eq!((aborted.len(), aborted[0].first, aborted[0].last), (1, 0, 1));
    assert_eq!(record::split(&body.concat()).count(), 4);
    let (reply, _) = ask(ShardQuery::StableBounds(vec![partition])).await;
    assert_eq!(reply, ShardQueryReply::StableBounds(vec![Some(expected)]));
    let (reply, _) = ask(ShardQuery::Bounds(vec![partition])).await;
    assert_eq!(reply, ShardQueryReply::Bounds(vec![Some(expected.into())]));

    let known = ShardQueryReply::StableBounds(vec![Some(expected)]);
    let changed = async {
        loop {
            // It may be woken late, by the append above.
            let query = ShardQuery::StableChanged(vec![(partition, Some(expected))]);
            let (reply, _) = reply_to(shard, query).await.expect("it leads");
            if reply != known {
                return reply;
            }
        }
    };
    let (reply, ()) = tokio::join!(changed, producer.end(true));
    let expected = Bounds { log_start: 0, stable: 5, end: 5 };
    assert_eq!(reply, ShardQueryReply::StableBounds(vec![Some(expected)]));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_at_the_stable_end_is_woken_by_the_marker() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 3, "orders", &[]).await;
    let mut producer = Producer::new(&broker, partition, 1).await;
    producer.begin().await;
    producer.append(&[("k", "it")]).await;
    let watch = broker.watch();
    watch.add(partition);
    let _ = watch.take_ready();
    assert_eq!(committed(&broker, partition, 0).await, (vec![], 0));
    producer.end(true).await;
    timeout(SOON, watch.ready()).await.expect("it is woken");
    assert_eq!(committed(&broker, partition, 0).await, (vec!["it".to_owned()], 2));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_gets_records_with_their_commit_and_its_floor_passes_aborted_ones() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 2, "jobs", &[("retention.settled", "true")]).await;
    let group = group(&broker, partition.topic, &[]).await;
    let session = broker.lease_session();
    let (mut one, mut two) =
        (Producer::new(&broker, partition, 1).await, Producer::new(&broker, partition, 2).await);
    one.begin().await;
    one.append(&[("k", "a"), ("k", "b")]).await;
    plain(&broker, partition, "plain").await;
    assert!(take(&session, group, 10).await.is_empty(), "a transaction is open");
    one.end(true).await;
    let taken = take(&session, group, 10).await;
    assert_eq!(taken.iter().map(text).collect::<Vec<_>>(), ["a", "b", "plain"]);
    two.begin().await;
    two.append(&[("k", "c")]).await;
    two.end(false).await;
    one.begin().await;
    one.append(&[("k", "d")]).await;
    assert!(take(&session, group, 10).await.is_empty(), "it is aborted or open");
    let found = broker.stored_records(partition, 0, 10).await.expect("reads");
    assert_eq!(found.iter().map(|it| it.view().offset).collect::<Vec<_>>(), [0, 1, 2]);
    one.end(true).await;
    let more = take(&session, group, 10).await;
    assert_eq!(more.iter().map(text).collect::<Vec<_>>(), ["d"]);
    for deliveries in [taken, more] {
        for settled in session.settle(settles(&deliveries, Settlement::Accept)).await {
            settled.expect("settled");
        }
    }
    let end = broker.bounds(partition).expect("it is there").end;
    assert_eq!(end, 8);
    wait_for("an empty partition", async || {
        // The last hole is found by a consumer that reads on.
        assert!(take(&session, group, 10).await.is_empty());
        broker.bounds(partition).is_some_and(|bounds| bounds.log_start == end)
    })
    .await;
    drop(session);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_sought_beyond_the_stable_end_gets_later_records_only() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 2, "jobs", &[]).await;
    let group = group(&broker, partition.topic, &[]).await;
    let session = broker.lease_session();
    let mut producer = Producer::new(&broker, partition, 1).await;
    producer.begin().await;
    producer.append(&[("k", "skipped")]).await;
    assert!(take(&session, group, 10).await.is_empty());
    broker.seek(group, SeekTo::Offsets(vec![(0, 1)])).await.expect("it is in the log");
    assert!(take(&session, group, 10).await.is_empty());
    producer.append(&[("k", "later")]).await;
    producer.end(true).await;
    let taken = take(&session, group, 10).await;
    assert_eq!(taken.iter().map(text).collect::<Vec<_>>(), ["later"]);
    drop(session);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_drops_aborted_records_and_keeps_markers_and_open_transactions() {
    let broker = open(&SimulatedDisk::new()).await;
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "10"),
        ("min.cleanable.dirty.ratio", "0.01"),
    ];
    let partition = topic_in(&broker, 1, "table", &config).await;
    let mut one = Producer::new(&broker, partition, 1).await;
    let mut two = Producer::new(&broker, partition, 2).await;
    one.begin().await;
    one.append(&[("k", "first")]).await;
    one.append(&[("l", "kept")]).await;
    one.end(true).await;
    two.begin().await;
    two.append(&[("l", "aborted")]).await;
    two.end(false).await;
    two.begin().await;
    two.append(&[("k", "second")]).await;
    two.end(true).await;
    one.begin().await;
    one.append(&[("k", "open")]).await;
    plain(&broker, partition, "last").await;

    let stored = async || {
        let raw = broker.read_raw_batches(partition, 0, 1 << 20).await.expect("reads");
        let headers = batches_in(&raw.records).map(|batch| batch.expect("a batch").0);
        let stored = headers.map(|it| (it.base_offset, it.attributes.is_control()));
        stored.collect::<BTreeMap<_, _>>()
    };
    let markers = [(2, true), (4, true), (6, true)];
    let mut expected = BTreeMap::from([(1, false), (5, false), (7, false), (8, false)]);
    expected.extend(markers);
    wait_for("compaction below the stable end", async || stored().await == expected).await;
    one.end(true).await;
    plain(&broker, partition, "end").await;
    let mut expected = BTreeMap::from([(1, false), (7, false), (9, true), (10, false)]);
    expected.extend(markers);
    wait_for("compaction of the rest", async || stored().await == expected).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_does_not_pass_the_stable_end() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "log", &[("retention.bytes", "1")]).await;
    let mut producer = Producer::new(&broker, partition, 1).await;
    plain(&broker, partition, "a").await;
    producer.begin().await;
    producer.append(&[("k", "open")]).await;
    plain(&broker, partition, "b").await;
    let start = || broker.bounds(partition).expect("it is there").log_start;
    wait_for("retention up to the stable end", async || start() == 1).await;
    plain(&broker, partition, "c").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(start(), 1);
    producer.end(true).await;
    wait_for("retention of the rest", async || start() >= 4).await;
    broker.shutdown().await;
}

#[tokio::test]
async fn moved_partition_keeps_its_aborted_transactions_and_waits_for_an_open_one() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let partition = topic_in(&broker, 1, "log", &[]).await;
    let mut producer = Producer::new(&broker, partition, 1).await;
    for (value, commit) in [("aborted", false), ("committed", true)] {
        producer.begin().await;
        producer.append(&[("k", value)]).await;
        producer.end(commit).await;
    }
    producer.begin().await;
    producer.append(&[("k", "open")]).await;
    broker.move_partitions(partition.topic, vec![0], ShardId(2)).await.expect("it may move");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(broker.shard_of(partition).id(), ShardId(1), "a transaction is open");
    producer.end(true).await;
    wait_for("the move", async || broker.shard_of(partition).id() == ShardId(2)).await;
    let expected = ["committed", "open"].map(str::to_owned).to_vec();
    wait_for("its records", async || committed(&broker, partition, 0).await.0 == expected).await;
    broker.shutdown().await;
    let broker = open(&disk).await;
    assert_eq!(committed(&broker, partition, 0).await.0, expected);
}
