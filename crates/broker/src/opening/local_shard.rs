//! Opens a shard on this node: its journal, its part in consensus and its tasks.

use std::path::Path;
use std::sync::Arc;

use base::limits::SEGMENT_BYTES_DEFAULT;
use base::{ClusterLevel, ShardId};
use cluster::LinkedPeers;
use consensus::{Consensus, ConsensusOptions, Group, GroupId};
use delivery::driver;
use delivery::relay::RelayContext;
use journal::{BatchCheck, Journal};
use machine::Role;
use shard::cpu::CpuPool;
use shard::delivery::handle::Handle;
use shard::delivery::trace_queue::TraceFeed;
use shard::local_shard::{LocalShardParts, ShardTasks};
use shard::sequencer::Sequencer;
use shard::timeline::Timeline;
use shard::watch::Watchers;
use shard::{LocalShard, Shard};
use shard_peers::{Peers, pusher};
use tasks::{Failure, Task};
use tokio::sync::mpsc;
use world::World;

use super::removed_replica;
use crate::error::OpenError;
use crate::limits::CATALOG_SEGMENT_BYTES;
use crate::options::BrokerOptions;

/// Parts of a node that its shards share.
pub(crate) struct OpeningContext<'a> {
    pub(crate) world: &'a World,
    pub(crate) dir: &'a Path,
    pub(crate) options: &'a BrokerOptions,
    pub(crate) failure: &'a Failure,
    pub(crate) timeline: &'a Arc<Timeline>,
    pub(crate) cpu: &'a CpuPool,
    pub(crate) watchers: &'a Arc<Watchers>,
    pub(crate) peers: &'a Arc<Peers>,
    pub(crate) level: &'a Arc<ClusterLevel>,
    pub(crate) traces: &'a TraceFeed,
}

/// Recovers a shard, and leads it unless it has other members. A shard with rows follows the given catalog.
pub(crate) async fn open_shard(
    context: &OpeningContext<'_>,
    role: Role,
    catalog: Option<&Arc<Shard>>,
) -> Result<LocalShard, OpenError> {
    let OpeningContext { world, options, failure, .. } = context;
    let dir = LocalShard::dir(context.dir, role.shard());
    let (shard, consensus) = open_replica(context, &dir, role, catalog).await?;
    let (requests, inbox) = mpsc::unbounded_channel();
    let sequencer = Sequencer::new(
        Arc::clone(&shard),
        consensus.clone(),
        options.cluster.clone(),
        Arc::clone(&world.clock),
        context.cpu.clone(),
        inbox,
    );
    let sequencer = tasks::vital(Task::Sequencer, sequencer.run(), failure);
    let group_role = options.cluster.is_some().then(|| consensus.role());
    context.peers.add(&requests, group_role, &shard);
    let (mut driver, mut pusher) = (None, None);
    if matches!(role, Role::Rows(_)) {
        let (handle, messages) = Handle::new(
            Arc::clone(context.timeline),
            options.history_bytes,
            options.feed.clone(),
            context.traces.clone(),
            Arc::clone(context.peers.unread()),
        );
        let _ = shard.delivery.set(handle.clone());
        let parts = driver::DriverContext {
            shard: Arc::clone(&shard),
            consensus: consensus.clone(),
            clock: Arc::clone(&world.clock),
            workers: world.workers.clone(),
            timeline: Arc::clone(context.timeline),
            requests: requests.clone(),
            peers: Arc::clone(context.peers),
            handle,
            relaying: options.cluster.as_ref().map(|node| RelayContext {
                node: Arc::clone(node),
                shard: Arc::clone(&shard),
                role: consensus.role(),
                attempts: Arc::default(),
                timeline: Arc::clone(context.timeline),
            }),
            sleep_max: options.housekeeping_interval,
        };
        driver = Some(tasks::vital(Task::Delivery, driver::run(parts, messages), failure));
        let peers = Arc::clone(context.peers);
        let pushing = pusher::run(Arc::clone(&shard), consensus.clone(), peers);
        pusher = Some(tasks::vital(Task::Channels, pushing, failure));
    }
    let removed = match &options.cluster {
        Some(_) => removed_replica::read(&*world.disk, context.dir, role.shard())?,
        None => None,
    };
    Ok(LocalShard::new(LocalShardParts {
        shard,
        consensus,
        timeline: Arc::clone(context.timeline),
        workers: world.workers.clone(),
        cpu: context.cpu.clone(),
        requests,
        tasks: ShardTasks { sequencer, driver, pusher },
        node: options.node,
        cluster: options.cluster.clone(),
        removed,
    }))
}

/// Opens a shard's journal and recovers its state. Leads unless the shard has other members.
pub(crate) async fn open_replica(
    context: &OpeningContext<'_>,
    dir: &Path,
    role: Role,
    catalog: Option<&Arc<Shard>>,
) -> Result<(Arc<Shard>, Consensus), OpenError> {
    let OpeningContext { world, options, failure, .. } = context;
    let mut options_of_journal = journal_options(options, role);
    // Segments claimed by the log cannot be reclaimed; small segments make that a small amount.
    let snapshot_log_bytes_min = options_of_journal.segment_bytes.min(SEGMENT_BYTES_DEFAULT);
    let others = options.cluster.as_ref().is_some_and(|node| node.known().len() > 1);
    options_of_journal.repairable |= others;
    let removed = match &options.cluster {
        Some(_) => {
            removed_replica::prepare(world, context.dir, role.shard(), dir, &options_of_journal)
                .await?
        }
        None => None,
    };
    let opened = Journal::open(world, dir, options_of_journal).map_err(|error| match others {
        true if error.is_loss() => OpenError::Lost { node: options.node, error },
        _ => OpenError::Journal(error),
    })?;
    let journal = opened.journal.clone();
    let failing = (*failure).clone();
    journal.on_fatal(move |failed| failing.report(failed.to_string()));
    let (level, watchers) = (Arc::clone(context.level), Arc::clone(context.watchers));
    let shard = Shard::new(journal, level, role, catalog.cloned(), watchers);
    if options.cluster.is_some() {
        shard.compacted.keep_in(&world.disk, dir);
    }
    let shard = Arc::new(shard);
    let consensus = Consensus::start(
        world,
        u64::from(options.node),
        opened,
        Arc::clone(&shard) as Arc<dyn consensus::StateMachine>,
        ConsensusOptions {
            snapshot_log_bytes_min,
            kept_log_bytes_max: options.kept_log_bytes_max,
            node: (*failure).clone(),
            group: options.cluster.as_ref().map(|cluster| group(cluster, role.shard())),
            floor: removed.map(|removed| removed.floor),
            ..ConsensusOptions::default()
        },
    )
    .await?;
    if let Some(cluster) = &options.cluster {
        cluster.groups().join(role.shard(), consensus.clone(), failure);
    }
    Ok((shard, consensus))
}

/// Returns the options for a shard's journal.
pub(crate) fn journal_options(options: &BrokerOptions, role: Role) -> journal::Options {
    let mut of_shard = options.journal.clone();
    if role == Role::Catalog {
        of_shard.segment_bytes = of_shard.segment_bytes.min(CATALOG_SEGMENT_BYTES);
    }
    of_shard.keep_log |= options.cluster.is_some();
    of_shard.check = BatchCheck(is_sound);
    of_shard
}

/// Whether a stored batch has its original bytes and offset.
fn is_sound(batch: &[u8], base_offset: Option<u64>) -> bool {
    let header = record::verify_checksum(batch);
    header.is_ok_and(|header| base_offset.is_none_or(|offset| header.base_offset == offset))
}

/// Returns the group of a shard, whose members are reached by the node's links.
fn group(node: &cluster::Node, shard: ShardId) -> Group {
    let id = GroupId { cluster: node.identity().at.cluster.as_u128(), shard: shard.0 };
    let peers = Arc::new(LinkedPeers::new(node.links(), shard));
    let (pace, starvation) =
        (node.groups().catch_up_pace().clone(), node.groups().starvation().clone());
    Group { id, peers, pace, starvation }
}
