//! Backups under load, and clusters restored from them.

mod letters;
mod record_ids;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::backup::{Manifest, Source, StoredBackup, StoredError, TakeError, take};
use broker::BrokerOptions;
use nodes::Administration;
use nodes::restore::{RestoreError, RestoreReport, restore, verify};
use operations::backup::{BackupBegun, BackupEnds, Step};
use operations::cluster::Operation;
use operations::family::{OperationError, OperationFamily};
use serde::de::DeserializeOwned;
use test_cluster::{JournalOptions, NodeSetup};
use tokio::time::{sleep, timeout};
use world::World;

use self::letters::LetterWorkload;
use crate::harness::{Cluster, Load, SOON, wait_for};

const BACKUP: &str = "/backup";

/// A source node of backups.
struct BackupNode {
    administration: Administration,
    /// Delay before each reply.
    pause: Duration,
    /// Replies before the node is gone.
    answered: AtomicUsize,
    /// The first shard to report its end; the others follow, each a while later.
    first: Option<usize>,
    /// Requests of ends during which partitions move.
    moving: AtomicUsize,
}

/// Between the ends of two shards.
const A_WHILE: Duration = Duration::from_millis(40);

impl BackupNode {
    fn node(cluster: &Cluster, node: u64) -> Self {
        Self::slow(cluster, node, Duration::ZERO)
    }

    fn slow(cluster: &Cluster, node: u64, pause: Duration) -> Self {
        let administration = cluster.administration(node);
        let (answered, moving) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Self { administration, pause, answered, first: None, moving }
    }

    async fn carry_out(&self, step: &Step) -> Result<Vec<u8>, OperationError> {
        let document = serde_json::to_vec(&Operation::Backup(step.clone())).expect("written");
        self.administration.carry_out(document).await
    }

    /// The ends of all shards, each at another moment.
    async fn ends(&self, step: &Step, first: usize) -> Result<BackupEnds, OperationError> {
        let mut ends: Vec<u64> = Vec::new();
        for place in 0..4 {
            let answer = self.carry_out(step).await?;
            let now: BackupEnds = serde_json::from_slice(&answer).expect("an answer");
            ends.resize(now.ends.len(), 0);
            let place = (first + place) % now.ends.len();
            ends[place] = now.ends[place];
            sleep(A_WHILE).await;
        }
        Ok(BackupEnds { ends })
    }
}

impl Source for BackupNode {
    type Error = OperationError;

    async fn ask<A: DeserializeOwned + Send>(&self, step: Step) -> Result<A, OperationError> {
        let left = self.answered.load(Ordering::SeqCst);
        let is_end = matches!(step, Step::End { .. });
        if !is_end {
            if left == 0 {
                return Err(OperationError::Unavailable("it is gone".to_owned()));
            }
            self.answered.store(left - 1, Ordering::SeqCst);
        }
        sleep(self.pause).await;
        let moving = self.moving.load(Ordering::SeqCst);
        if moving > 0 && matches!(step, Step::Ends { .. }) {
            self.moving.store(moving - 1, Ordering::SeqCst);
            // The first request of two may find that nothing moves.
            if moving != 2 {
                return Err(OperationError::Unavailable("partitions moved".to_owned()));
            }
        }
        let answer = match (&step, self.first) {
            (Step::Ends { .. }, Some(first)) => {
                serde_json::to_vec(&self.ends(&step, first).await?).expect("written")
            }
            _ => self.carry_out(&step).await?,
        };
        Ok(serde_json::from_slice(&answer).expect("an answer"))
    }

    fn is_passing(error: &OperationError) -> bool {
        matches!(error, OperationError::Unavailable(_))
    }

    async fn pause(&self, pause: Duration) {
        sleep(pause).await;
    }
}

fn options() -> BrokerOptions {
    let journal = JournalOptions { segment_bytes: 8 << 20, ..JournalOptions::default() };
    BrokerOptions { journal, ..BrokerOptions::default() }
}

fn world(place: &NodeSetup) -> World {
    World::on(place.shared_disk())
}

async fn taken(at: &BackupNode, place: &NodeSetup) -> Result<Manifest, TakeError<OperationError>> {
    let world = world(place);
    timeout(SOON, take(at, &world, Path::new(BACKUP), |_| {})).await.expect("soon")
}

async fn restored(place: &NodeSetup) -> Result<RestoreReport, RestoreError> {
    let (dir, from) = (Path::new(NodeSetup::DIR), Path::new(BACKUP));
    let world = world(place);
    let restoring = restore(&world, dir, from, place.address(), options(), |_| {});
    timeout(SOON, restoring).await.expect("soon")
}

/// A cluster of the restored node.
async fn started(place: &NodeSetup, former: &Cluster) -> Cluster {
    let mut cluster =
        Cluster { members: BTreeMap::new(), topic: former.topic, racks: BTreeMap::new() };
    assert_eq!(cluster.start_again(place.clone()).await, 1);
    cluster.are_ready().await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_between_shards_are_restored_exactly_once() {
    crosses_shards(Cluster::start().await, [1, 2, 3, 1]).await;
}

/// Each node has three of the four shards, and pulls the fourth from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_from_a_node_without_some_shards_is_complete() {
    let newest = base::Levels::OURS.max.0;
    crosses_shards(Cluster::start_all_with_levels(&[newest; 4]).await, [4, 1, 2, 3]).await;
}

/// Takes backups from these nodes, one after the other.
async fn crosses_shards(former: Cluster, nodes: [u64; 4]) {
    let letters = LetterWorkload::begin(former.broker(1)).await;
    wait_for(async || letters.so_far().rejected.len() > 40, || "dead letters".to_owned()).await;
    // Each node and each order of shards; at last while leaders change.
    for (round, node) in nodes.into_iter().enumerate() {
        let before = letters.so_far();
        let at = BackupNode {
            first: Some(round),
            ..BackupNode::slow(&former, node, Duration::from_millis(10))
        };
        let place = NodeSetup::elsewhere();
        let taking = taken(&at, &place);
        let changing = async {
            if round == 3 {
                for step in [Operation::DrainNode { node: 2 }, Operation::ResumeNode { node: 2 }] {
                    former.ask(1, step).await.expect("it is decided");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        };
        let (manifest, ()) = tokio::join!(taking, changing);
        let manifest = manifest.expect("it is taken");
        assert_eq!((manifest.node, manifest.shards.len()), (node, 4));
        let tried = letters.so_far();
        let outcome = restored(&place).await.expect("it is restored");
        assert_eq!(outcome.manifest, manifest);
        let cluster = started(&place, &former).await;
        // Boot numbers of the former node 1 are not reused.
        let boots = [&former, &cluster].map(|of| of.members[&1].node.member.identity().at.boot);
        assert!(boots[1] > boots[0], "{boots:?}");
        let id = cluster.status(1).await.cluster;
        assert_ne!(id, former.status(1).await.cluster);
        letters::check(cluster.broker(1), letters.of(), &before, &tried).await;
        cluster.end_all().await;
    }
    letters.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_cluster_admits_new_nodes_and_rejects_the_former_ones() {
    let mut former = Cluster::start().await;
    let load = Load::on(&former);
    wait_for(async || load.acknowledged() > 50, || "acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    let place = NodeSetup::elsewhere();
    taken(&BackupNode::node(&former, 2), &place).await.expect("it is taken");
    restored(&place).await.expect("it is restored");
    let mut cluster = started(&place, &former).await;
    assert_eq!(cluster.values_at(1).await, acknowledged);
    let of_former = former.end(3).await;
    let refused = cluster.join_from(of_former.rejoining(&cluster.nodes())).await;
    let refused = refused.expect_err("it is of another cluster");
    assert!(matches!(refused, cluster::NodeStartError::Foreign { node: 3, .. }), "{refused}");
    // Numbers continue after those of the former nodes.
    assert_eq!((cluster.join().await, cluster.join().await), (4, 5));
    cluster.becomes(&[1, 4, 5]).await;
    let load = Load::on(&cluster);
    cluster.end(1).await;
    load.leave(1);
    wait_for(async || load.acknowledged() > 20, || "appends without node 1".to_owned()).await;
    load.stop().await;
    cluster.end_all().await;
    former.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_with_a_changed_file_is_rejected_with_the_files_name() {
    let cluster = Cluster::start().await;
    cluster.append_at_leader(base::PartitionId::new(cluster.topic, 0), "one").await;
    let place = NodeSetup::elsewhere();
    let manifest = taken(&BackupNode::node(&cluster, 1), &place).await.expect("it is taken");
    cluster.end_all().await;
    let files = manifest.shards.iter().flat_map(|shard| &shard.files);
    let mut names: Vec<String> =
        files.filter(|file| file.bytes > 0).map(|file| file.name.clone()).collect();
    names.push("backup.json".to_owned());
    assert!(names.iter().any(|name| name.contains("batches")), "{names:?}");
    let (dir, from) = (Path::new(NodeSetup::DIR), Path::new(BACKUP));
    let refused = |name: &str| {
        let error = verify(&world(&place), dir, from).expect_err("it is damaged");
        assert!(error.to_string().contains(name), "{name}: {error}");
    };
    for name in &names {
        let path: PathBuf = from.join(name);
        let content = place.disk().content(&path).expect("it is there");
        let middle = content.len() as u64 / 2;
        place.disk().flip_bit(&path, middle, 1);
        refused(name);
        let restoring = restored(&place).await.expect_err("it is damaged");
        assert!(restoring.to_string().contains(name), "{name}: {restoring}");
        place.disk().flip_bit(&path, middle, 1);
        verify(&world(&place), dir, from).expect("as it was");
        if name != "backup.json" {
            place.disk().cut_file(&path, middle);
            refused(name);
            place.disk().lose_file(&path);
            refused(name);
            let file = place.shared_disk().open(&path, true).expect("made");
            file.write_at(&mut [std::io::IoSlice::new(&content)], 0).expect("written");
        }
    }
    // The failed attempts have written nothing.
    assert!(place.shared_disk().list(dir).is_err());
    restored(&place).await.expect("as it was");
    let error = restored(&place).await.expect_err("there is something").to_string();
    assert!(error.contains("not empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_waits_for_moving_partitions_at_its_end() {
    let cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 20, || "acknowledged appends".to_owned()).await;
    let (at, place) = (BackupNode::node(&cluster, 1), NodeSetup::elsewhere());
    at.moving.store(4, Ordering::SeqCst);
    taken(&at, &place).await.expect("it is complete");
    assert_eq!(at.moving.load(Ordering::SeqCst), 0);
    StoredBackup::open(&place.shared_disk(), Path::new(BACKUP)).expect("complete");
    load.stop().await;
    drop(at);
    cluster.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_backup_is_rejected_and_can_be_restarted() {
    let mut cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 20, || "acknowledged appends".to_owned()).await;
    let place = NodeSetup::elsewhere();
    let dir = Path::new(NodeSetup::DIR);
    // The node is gone after each of its replies in turn.
    for answers in 0.. {
        let at = BackupNode::node(&cluster, 1);
        at.answered.store(answers, Ordering::SeqCst);
        match taken(&at, &place).await {
            Err(TakeError::Asked(_)) => {}
            Ok(_) => {
                assert!(answers > 12, "{answers}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
        let refused =
            verify(&world(&place), dir, Path::new(BACKUP)).expect_err("it is not complete");
        let is_so = matches!(refused, RestoreError::Stored(StoredError::Incomplete { .. }));
        assert!(is_so && refused.to_string().contains("postroad backup /backup"), "{refused}");
    }
    StoredBackup::open(&place.shared_disk(), Path::new(BACKUP)).expect("complete");
    let again = taken(&BackupNode::node(&cluster, 1), &place).await;
    assert!(matches!(again, Err(TakeError::HasBackup { .. })), "{again:?}");

    // The directory is full.
    let full = NodeSetup::elsewhere();
    full.disk().set_capacity(Some(2_000));
    let error = taken(&BackupNode::node(&cluster, 2), &full).await.expect_err("it is full");
    assert!(matches!(error, TakeError::Write { .. }), "{error}");
    full.disk().set_capacity(None);

    // The node stops, and the backup is taken from another one.
    let at = BackupNode::slow(&cluster, 3, Duration::from_millis(5));
    load.leave(3);
    let ending = async {
        sleep(Duration::from_millis(40)).await;
        at.answered.store(0, Ordering::SeqCst);
    };
    let (error, ()) = tokio::join!(taken(&at, &full), ending);
    assert!(matches!(error, Err(TakeError::Asked(_))), "{error:?}");
    drop(at);
    cluster.end(3).await;
    let acknowledged = load.acknowledged();
    taken(&BackupNode::node(&cluster, 1), &full).await.expect("it is taken from another one");
    restored(&full).await.expect("it is restored");
    load.stop().await;
    let other = started(&full, &cluster).await;
    assert!(other.values_at(1).await.len() >= acknowledged);
    other.end_all().await;
    cluster.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_restore_or_one_without_room_can_be_repeated() {
    let cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 50, || "acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    let place = NodeSetup::elsewhere();
    taken(&BackupNode::node(&cluster, 1), &place).await.expect("it is taken");
    let mut place = place.after_power_loss(1);
    let image = place.disk().pack();
    let begun = place.disk().operations();
    let whole = NodeSetup::on_disk(world::SimulatedDisk::unpack(&image, Path::new("/")));
    let before = whole.disk().operations();
    restored(&whole).await.expect("it is restored");
    let changes = whole.disk().operations() - before;
    assert!(changes > 20 && begun == 0, "{changes} {begun}");
    // Power fails after some of the changes in turn, and once more during the repetition.
    for after in (0..changes).step_by(changes as usize / 12) {
        place = NodeSetup::on_disk(world::SimulatedDisk::unpack(&image, Path::new("/")));
        for again in [0, 7] {
            place.disk().cut_power_after(after + again);
            let done = restored(&place).await;
            place = place.after_power_loss(after);
            if done.is_ok() {
                continue;
            }
            // The node starts only if nothing had begun, and then as a node without a cluster.
            let names = place.shared_disk().list(Path::new(NodeSetup::DIR)).unwrap_or_default();
            if names.iter().any(|name| name == cluster::MEMBER_FILE) {
                let mut none = Cluster {
                    members: BTreeMap::new(),
                    topic: cluster.topic,
                    racks: BTreeMap::new(),
                };
                match none.join_from(place.clone()).await {
                    Err(refused) => {
                        let refused = refused.to_string();
                        assert!(refused.contains("postroad restore"), "{refused}");
                    }
                    // The restore was complete when the power failed.
                    Ok(_) => {
                        none.end_all().await;
                        break;
                    }
                }
            }
        }
        match restored(&place).await {
            Ok(_) => {}
            // The former attempt had completed.
            Err(RestoreError::Vacant(_)) => {}
            Err(error) => panic!("after {after} of {changes}: {error}"),
        }
    }
    let other = started(&place, &cluster).await;
    assert_eq!(other.values_at(1).await, acknowledged);
    other.end_all().await;

    let full = NodeSetup::on_disk(world::SimulatedDisk::unpack(&image, Path::new("/")));
    full.disk().set_capacity(Some(1 << 20));
    restored(&full).await.expect_err("it is full");
    full.disk().set_capacity(None);
    restored(&full).await.expect("it is restored");
    cluster.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_serves_two_backups_at_a_time_and_rejects_unknown_parts() {
    let cluster = Cluster::start().await;
    let (one, other) = (NodeSetup::elsewhere(), NodeSetup::elsewhere());
    let at = BackupNode::slow(&cluster, 1, Duration::from_millis(5));
    let (first, second) = tokio::join!(taken(&at, &one), taken(&at, &other));
    let (first, second) = (first.expect("taken"), second.expect("taken"));
    assert_eq!(first.shards.len(), second.shards.len());
    let begin = async || at.ask::<BackupBegun>(Step::Begin {}).await;
    let begun = begin().await.expect("begun");
    begin().await.expect("begun");
    let refused = begin().await.expect_err("there are two").to_string();
    assert!(refused.contains("2 backups"), "{refused}");
    let backup = begun.backup;
    let ask = async |step: Step| at.ask::<serde_json::Value>(step).await;
    for step in [
        Step::Shard { backup: backup ^ 1, shard: 0 },
        Step::Shard { backup, shard: 9 },
        Step::Log { backup, shard: 0, from: 1 },
        Step::Section { backup, shard: 0, section: 1, from: 0 },
    ] {
        ask(step.clone()).await.expect_err("there is no such thing");
    }
    ask(Step::Shard { backup, shard: 1 }).await.expect("begun");
    for step in [
        Step::Log { backup, shard: 1, from: 0 },
        Step::Section { backup, shard: 1, section: 4, from: 0 },
        Step::Segment { backup, shard: 1, segment: u64::MAX, row: 0 },
        Step::Segment { backup, shard: 1, segment: 0, row: u64::MAX },
    ] {
        ask(step.clone()).await.expect_err("there is no such place");
    }
    let far = ask(Step::Log { backup, shard: 1, from: u64::MAX }).await.expect("nothing yet");
    assert_eq!(far["more"], false);
    ask(Step::End { backup }).await.expect("ended");
    ask(Step::Ends { backup }).await.expect_err("it has ended");
    begin().await.expect("there is one less");
    drop(at);
    cluster.end_all().await;
}
