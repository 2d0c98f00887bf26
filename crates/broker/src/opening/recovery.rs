//! Recovery of a node's shards when it continues alone, because the majority of its cluster is lost for good.
//!
//! Each shard's log gets an entry that makes the node the only member of the group ([`consensus::recovery`]).
//! Different logs may have lost more or less of their ends, so their knowledge of each other is repaired, by entries
//! in the logs as well:
//!
//! * the catalog skips all numbers that its lost end may have allocated, and every shard adopts the whole catalog:
//!   topics known only to the lost end are dropped
//! * both ends of each channel resume after everything known to either of them
//! * committed offsets beyond the end of a partition in another shard are set back to that end, where the next record
//!   will be

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use base::limits::SHARDS_MAX;
use base::{Offset, ShardId};
use consensus::recovery::{MemberLogState, RecoveryError, continue_alone, standing};
use consensus::{Consensus, Payload, ProposeError};
use journal::Journal;
use machine::rows::topic::TopicRows;
use machine::{
    Catalog, Channels, Command, CommitOffset, DocumentsChange, Group, MinimumCounters, Outbox, Role,
};
use shard::cpu::CpuPool;
use shard::delivery::trace_queue::TraceFeed;
use shard::timeline::Timeline;
use shard::{LocalShard, Shard};
use shard_peers::Peers;
use tasks::Failure;
use world::World;

use super::local_shard::{OpeningContext, journal_options, open_replica};
use super::removed_replica;
use crate::error::OpenError;
use crate::options::BrokerOptions;

/// Number of topics and of lease groups skipped: more than a lost end of a log allocates.
const NUMBERS_SKIPPED: u32 = 10_000;
/// The same for producer ids.
const PRODUCER_IDS_SKIPPED: i64 = 1 << 32;
const OFFSETS_PER_COMMAND: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Level(#[from] cluster::level::LevelError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{shard}: {source}")]
    Shard { shard: ShardId, source: RecoveryError },
    #[error("the directory has no catalog: nothing of it can be recovered")]
    NoCatalog,
    #[error("what puts the shards right is not in their logs: {0}; type the command again")]
    Propose(#[from] ProposeError),
}

/// State of a shard in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardLogState {
    pub shard: ShardId,
    pub standing: MemberLogState,
    /// Time of the log's last entry for the machine after the snapshot, ms since the epoch.
    pub last_ms: Option<i64>,
}

/// Messages between two shards, by number, that were sent and are at neither end: their effect is missing, or lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    pub from: ShardId,
    pub to: ShardId,
    pub numbers: std::ops::Range<Offset>,
}

/// Result of the recovery.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryOutcome {
    pub gaps: Vec<Gap>,
    /// Number of topics known only to lost entries of the catalog: their records are dropped.
    pub topics_dropped: usize,
    /// Number of offsets committed beyond the ends of partitions and set back to these ends.
    pub offsets_set_back: usize,
    /// Whether ends of channels disagreed.
    pub resumed: bool,
}

/// Reads the state of each shard in the directory, the catalog's first.
pub async fn survey(
    world: &World,
    dir: &Path,
    options: &BrokerOptions,
) -> Result<Vec<ShardLogState>, RecoverError> {
    let mut found = Vec::new();
    for shard in shards_in(world, dir)? {
        let opened = open(world, dir, options, shard)?;
        let standing = standing(&opened).map_err(|source| RecoverError::Shard { shard, source })?;
        close(world, opened.journal).await;
        let head = standing.last_head.as_deref().map(machine::decode_head);
        let last_ms = head.and_then(Result::ok).map(|head| head.now_ms);
        found.push(ShardLogState { shard, standing, last_ms });
    }
    if found.first().is_none_or(|it| it.shard != ShardId::CATALOG || it.standing.last.is_none()) {
        return Err(RecoverError::NoCatalog);
    }
    Ok(found)
}

/// Makes the node of `options` the only member of all its groups, reached at `address`, and repairs its shards'
/// knowledge of each other. `change` returns the change of the catalog's documents, or an error. May be called again
/// after an interruption.
pub async fn recover<E>(
    world: &World,
    dir: &Path,
    options: &BrokerOptions,
    address: &str,
    change: impl FnOnce(&Catalog) -> Result<DocumentsChange, E>,
) -> Result<Result<RecoveryOutcome, E>, RecoverError> {
    let failure = Failure::new();
    let timeline = Arc::new(Timeline::new(Arc::clone(&world.clock)));
    let (cpu, peers) = (CpuPool::new(world.workers.clone()), Arc::new(Peers::new(None)));
    let watchers = Arc::default();
    let level = Arc::new(cluster::level::open(world, dir, options.levels)?);
    let context = OpeningContext {
        world,
        dir,
        options,
        failure: &failure,
        timeline: &timeline,
        cpu: &cpu,
        watchers: &watchers,
        peers: &peers,
        level: &level,
        traces: &TraceFeed::new().0,
    };
    let catalog = Replica::alone(&context, ShardId::CATALOG, address, None).await?;
    let mut rows = BTreeMap::new();
    let recovered = match open_rows(&context, &catalog, address, &mut rows).await {
        Ok(()) => reconcile_shards(&catalog, &rows, change).await,
        Err(error) => Err(error),
    };
    failure.expect_ends();
    for replica in rows.values().chain([&catalog]) {
        replica.consensus.shutdown().await;
        close(world, replica.shard.journal.clone()).await;
    }
    recovered
}

/// Opens all shards with rows of the catalog.
async fn open_rows(
    context: &OpeningContext<'_>,
    catalog: &Replica,
    address: &str,
    rows: &mut BTreeMap<ShardId, Replica>,
) -> Result<(), RecoverError> {
    let count = catalog.shard.read(|view| view.catalog.shard_count());
    for shard in (1..=count).map(ShardId) {
        rows.insert(shard, Replica::alone(context, shard, address, Some(&catalog.shard)).await?);
    }
    Ok(())
}

/// A shard that this node leads alone; only the proposals made here change it.
struct Replica {
    shard: Arc<Shard>,
    consensus: Consensus,
}

impl Replica {
    async fn alone(
        context: &OpeningContext<'_>,
        shard: ShardId,
        address: &str,
        catalog: Option<&Arc<Shard>>,
    ) -> Result<Self, RecoverError> {
        let OpeningContext { world, dir, options, .. } = context;
        let failed = |source| RecoverError::Shard { shard, source };
        let opened = open(world, dir, options, shard)?;
        let standing = standing(&opened).map_err(failed)?;
        let node = u64::from(options.node);
        continue_alone(&opened.journal, &standing, node, address).await.map_err(failed)?;
        close(world, opened.journal).await;
        removed_replica::forget(&*world.disk, dir, shard)?;
        let of_shard = LocalShard::dir(dir, shard);
        let (shard, consensus) = open_replica(context, &of_shard, role(shard), catalog).await?;
        Ok(Self { shard, consensus })
    }

    async fn propose(&self, now_ms: i64, command: Command) -> Result<(), ProposeError> {
        let leadership = self.consensus.leadership().await?;
        let head = machine::encode_head(now_ms, &[command], &[]);
        let payload = Payload { head, bodies: Vec::new(), ticket: 0 };
        leadership.propose(payload).await?.await.map(drop)
    }
}

async fn reconcile_shards<E>(
    catalog: &Replica,
    rows: &BTreeMap<ShardId, Replica>,
    change: impl FnOnce(&Catalog) -> Result<DocumentsChange, E>,
) -> Result<Result<RecoveryOutcome, E>, RecoverError> {
    let mut adopted = catalog.shard.read(|view| view.catalog.version());
    let (mut topics, mut groups, mut dropped) = (0, 0, BTreeSet::new());
    for replica in rows.values() {
        replica.shard.read(|view| {
            adopted = adopted.max(view.rows.adopted());
            topics = view.rows.topics().map(|topic| topic.id().0 + 1).fold(topics, u32::max);
            groups = view.rows.lease_group_ids().map(|group| group.0 + 1).fold(groups, u32::max);
            let ids = view.rows.topics().map(TopicRows::id);
            dropped.extend(ids.filter(|id| view.catalog.topic(*id).is_none()));
        });
    }
    let (skipped, change, now_ms) = catalog.shard.read(|view| {
        let (next_topic, next_group, next_producer) = view.catalog.next_numbers();
        let skipped = MinimumCounters {
            version: adopted + 1,
            next_topic: next_topic.max(topics).saturating_add(NUMBERS_SKIPPED),
            next_lease_group: next_group.max(groups).saturating_add(NUMBERS_SKIPPED),
            next_producer_id: next_producer.saturating_add(PRODUCER_IDS_SKIPPED),
        };
        (skipped, change(view.catalog), view.last_ms)
    });
    let change = match change {
        Ok(change) => change,
        Err(error) => return Ok(Err(error)),
    };
    catalog.propose(now_ms, Command::SkipNumbers(skipped)).await?;
    catalog.propose(now_ms, Command::ChangeDocuments(change)).await?;
    let mut channels = BTreeMap::new();
    let mut now_ms = BTreeMap::new();
    for (shard, replica) in rows {
        replica.shard.read(|view| {
            channels.insert(*shard, view.rows.channels().clone());
            now_ms.insert(*shard, view.last_ms);
        });
    }
    let (mut ends, gaps) = resume(&channels);
    let resumed = !ends.is_empty();
    for (shard, _) in channels.iter().filter(|(_, channels)| channels.have_fences()) {
        ends.entry(*shard).or_default();
    }
    for (shard, ResumedChannels { sent, taken }) in ends {
        let command = Command::ResumeChannels { sent, taken };
        rows[&shard].propose(now_ms[&shard], command).await?;
    }
    let offsets_set_back = set_offsets_back(rows, &now_ms).await?;
    Ok(Ok(RecoveryOutcome { gaps, topics_dropped: dropped.len(), offsets_set_back, resumed }))
}

/// A group with a committed offset has read up to it; it continues with the next new record.
async fn set_offsets_back(
    rows: &BTreeMap<ShardId, Replica>,
    now_ms: &BTreeMap<ShardId, i64>,
) -> Result<usize, ProposeError> {
    let end = |partition| {
        rows.values().find_map(|replica| {
            replica.shard.read(|view| Some(view.rows.partition(partition)?.next_offset()))
        })
    };
    let mut count = 0;
    for (shard, replica) in rows {
        let committed: Vec<(String, Vec<CommitOffset>)> = replica.shard.read(|view| {
            let of_group = |(name, group): (&str, &Group)| {
                let offsets = group.offsets.iter().map(|(&partition, committed)| CommitOffset {
                    partition,
                    offset: committed.offset,
                    leader_epoch: committed.leader_epoch,
                    metadata: committed.metadata.clone(),
                    expire_ms: committed.expire_ms,
                });
                (name.to_owned(), offsets.collect())
            };
            view.rows.groups().map(of_group).collect()
        });
        for (group, offsets) in committed {
            let beyond = offsets.into_iter().filter_map(|committed| {
                let end = end(committed.partition).filter(|end| *end < committed.offset)?;
                Some(CommitOffset { offset: end, leader_epoch: -1, ..committed })
            });
            let offsets: Vec<CommitOffset> = beyond.collect();
            count += offsets.len();
            for offsets in offsets.chunks(OFFSETS_PER_COMMAND) {
                let (group, offsets) = (group.clone(), offsets.to_vec());
                replica.propose(now_ms[shard], Command::CommitOffsets { group, offsets }).await?;
            }
        }
    }
    Ok(count)
}

/// New ends of a shard's channels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct ResumedChannels {
    sent: Vec<(ShardId, Offset)>,
    taken: Vec<(ShardId, Offset)>,
}

/// Returns where both ends of all channels resume, and the messages at neither end.
fn resume(
    channels: &BTreeMap<ShardId, Channels>,
) -> (BTreeMap<ShardId, ResumedChannels>, Vec<Gap>) {
    let (mut resumed, mut gaps) = (BTreeMap::<_, ResumedChannels>::new(), Vec::new());
    for (&from, sender) in channels {
        for (&to, receiver) in channels.iter().filter(|(to, _)| **to != from) {
            let outbox = sender.outbox(to);
            let (start, end) = outbox.map_or((0, 0), |it| (it.acknowledged(), it.end()));
            let expected = receiver.expected(from);
            if expected > end {
                resumed.entry(from).or_default().sent.push((to, expected));
            }
            if start > expected {
                gaps.push(Gap { from, to, numbers: expected..start });
            }
            let next = match outbox {
                Some(outbox) if expected < end => next_whole(outbox, expected.max(start)),
                _ => expected,
            };
            if next > expected {
                resumed.entry(to).or_default().taken.push((from, next));
            }
        }
    }
    (resumed, gaps)
}

/// Returns the number of the first message of an outbox that begins at `from` or later. An uncommitted message may
/// span the end of the received ones.
fn next_whole(outbox: &Outbox, from: Offset) -> Offset {
    outbox.messages_from(from).next().map_or(outbox.end(), |(number, _)| number)
}

fn role(shard: ShardId) -> Role {
    if shard == ShardId::CATALOG { Role::Catalog } else { Role::Rows(shard) }
}

/// Shards are numbered without a gap.
fn shards_in(world: &World, dir: &Path) -> Result<Vec<ShardId>, OpenError> {
    let mut shards = Vec::new();
    for shard in (0..=SHARDS_MAX).map(ShardId) {
        let of_shard = LocalShard::dir(dir, shard);
        match world.disk.list(&of_shard) {
            Ok(names) if !names.is_empty() => shards.push(shard),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(source) => {
                let doing = format!("reading {}", of_shard.display());
                return Err(OpenError::Io { doing, source });
            }
        }
    }
    Ok(shards)
}

fn open(
    world: &World,
    dir: &Path,
    options: &BrokerOptions,
    shard: ShardId,
) -> Result<journal::OpenedJournal, OpenError> {
    let of_journal = journal_options(options, role(shard));
    Ok(Journal::open(world, &LocalShard::dir(dir, shard), of_journal)?)
}

async fn close(world: &World, journal: Journal) {
    // Waits for the journal's threads.
    let closing = world.workers.blocking(tasks::Task::JournalClosing, move || journal.close());
    let _ = closing.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    use machine::{Append, BatchKind, Entry, EntryEffects, SentBatch, State, Unit};

    const A: ShardId = ShardId(1);
    const B: ShardId = ShardId(2);

    /// A sender of messages with these numbers of records to another shard, which acknowledged all below.
    fn sender(of: ShardId, to: ShardId, messages: &[u32], acknowledged: Offset) -> Channels {
        let mut state = State::of(Role::Rows(of));
        let mut applied = EntryEffects::new();
        let mut apply = |appends: &[Append], command: Command, units: &[Unit]| {
            let commands = &[command][..];
            let entry = Entry { now_ms: 1, leader_epoch: None, appends, commands, units };
            state.apply(&entry, &mut applied);
        };
        let (partition, mut base_offset) = (base::PartitionId::channel_to(to), 0);
        for &span in messages {
            let append = Append {
                partition,
                base_offset,
                span,
                leader_epoch: 0,
                max_timestamp: 0,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                kind: BatchKind::Plain,
            };
            let targets = vec![base::PartitionId::new(base::TopicId(0), 0)];
            let send = Command::Send { to, batches: vec![SentBatch { bytes: 1, targets }] };
            apply(&[append], send, &[Unit { appends: 1, commands: 1, ..Unit::default() }]);
            base_offset += u64::from(span);
        }
        apply(&[], Command::Acknowledged { to, below: acknowledged }, &[]);
        state.rows.channels().clone()
    }

    fn receiver(from: ShardId, next: Offset) -> Channels {
        let mut state = State::of(Role::Rows(B));
        let command = Command::ResumeChannels { sent: Vec::new(), taken: vec![(from, next)] };
        let commands = &[command][..];
        let entry = Entry { now_ms: 1, leader_epoch: None, appends: &[], commands, units: &[] };
        state.apply(&entry, &mut EntryEffects::new());
        state.rows.channels().clone()
    }

    /// By shard.
    type Numbers = Vec<(ShardId, Offset)>;

    fn resumed(a: Channels, b: Channels) -> (Numbers, Numbers, Vec<Gap>) {
        let (mut resumed, gaps) = resume(&BTreeMap::from([(A, a), (B, b)]));
        let (a, b) = (resumed.remove(&A), resumed.remove(&B));
        (a.unwrap_or_default().sent, b.unwrap_or_default().taken, gaps)
    }

    #[test]
    fn channel_ends_that_agree_stay_unchanged() {
        let nothing = (Vec::new(), Vec::new(), Vec::new());
        assert_eq!(resumed(Channels::default(), Channels::default()), nothing);
        // In flight, acknowledged, and received without an acknowledgement.
        for (acknowledged, expected) in [(0, 0), (3, 3), (0, 3), (1, 2)] {
            let sent = sender(A, B, &[1, 1, 1], acknowledged);
            assert_eq!(resumed(sent, receiver(A, expected)), nothing, "{acknowledged} {expected}");
        }
    }

    #[test]
    fn sender_that_was_set_back_resumes_after_the_received_messages() {
        let sent = sender(A, B, &[1, 1], 1);
        assert_eq!(resumed(sent, receiver(A, 9)), (vec![(B, 9)], vec![], vec![]));
        assert_eq!(resumed(Channels::default(), receiver(A, 4)), (vec![(B, 4)], vec![], vec![]));
    }

    #[test]
    fn receiver_that_was_set_back_skips_lost_messages_and_reports_the_gap() {
        let sent = sender(A, B, &[1, 1, 1, 1], 3);
        let gap = Gap { from: A, to: B, numbers: 1..3 };
        assert_eq!(resumed(sent, receiver(A, 1)), (vec![], vec![(A, 3)], vec![gap]));
    }

    #[test]
    fn message_across_the_end_of_the_received_ones_is_skipped() {
        let sent = sender(A, B, &[1, 5, 1], 0);
        assert_eq!(resumed(sent, receiver(A, 3)), (vec![], vec![(A, 6)], vec![]));
    }
}
