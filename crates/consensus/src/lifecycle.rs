//! Start and shutdown of a member.
//!
//! A group of one voter takes the path of any group: election, log, quorum, apply. Alone it is its own quorum, so
//! that a proposal is committed as soon as this node's journal has synced it. A member of a larger group starts in
//! the state of its log, and leads when the others elect it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::{OpenedJournal, Snapshot};
use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use tasks::Task;
use world::{Instant, World};

use crate::consensus::{Consensus, State, note_end};
use crate::encoding;
use crate::engine::{SnapshotMeta, TypeConfig, runtime, settings};
use crate::error::{Failure, FoundingError, StartError};
use crate::floor::LogEnd;
use crate::group::Members;
use crate::log_store::LogStore;
use crate::machine::StateMachine;
use crate::network::Links;
use crate::options::ConsensusOptions;
use crate::replica::{Replica, Snapshots};
use crate::retention::Retention;
use crate::role;
use crate::transfer::OutgoingSnapshots;

impl Consensus {
    /// Restores the machine. In a group of one it also founds the group if the journal is empty, replays the log
    /// and leads. As a member of any other group it returns at once, and [`Consensus::role`] reports its state. An
    /// empty member waits until another one adds it, or for [`Consensus::found`].
    #[tasks::boxed]
    pub async fn start(
        world: &World,
        node: u64,
        opened: OpenedJournal,
        machine: Arc<dyn StateMachine>,
        options: ConsensusOptions,
    ) -> Result<Self, StartError> {
        let OpenedJournal { journal, snapshot, report } = opened;
        let begun = Instant::now();
        let newest = snapshot.map(|snapshot| restore(&snapshot, &*machine)).transpose()?;
        let meta = newest.as_ref().map(|(meta, _)| meta.clone()).unwrap_or_default();
        let snapshot_bytes = newest.as_ref().map_or(0, |(_, bytes)| *bytes);
        let restored = begun.elapsed();
        let floor = options.floor.and_then(|floor| floor.last());
        let is_above_floor = journal.last_id().map(LogEnd::from) >= floor;
        if let Some(floor) = &options.floor {
            floor.restore(&journal, &world.workers).await?;
        }
        let log = LogStore::new(journal.clone(), world.workers.clone())
            .map_err(|error| unreadable("the vote", error.to_string()))?;
        let pristine = log.is_pristine();
        let retention = Arc::new(Retention::new(options.kept_log_bytes_max));
        let sending = Arc::new(OutgoingSnapshots::new(world.entropy.u64()));
        let snapshots = Arc::new(Snapshots::new(
            journal.clone(),
            world.workers.clone(),
            &options,
            newest,
            Arc::clone(&retention),
            Arc::clone(&sending),
        ));
        log.report_written(&machine);
        let replica = Replica::new(
            world,
            Arc::clone(&machine),
            journal.clone(),
            log.clone(),
            Arc::clone(&snapshots),
            meta,
        );
        let terms = replica.begun();

        let config = Arc::new(settings::of(options.group.is_some(), is_above_floor)?);
        let links = Links::of(options.group.as_ref(), node, &retention);
        let (route, peers) = (links.route, Arc::clone(&links.peers));
        let engine = async {
            log.set_starting(true);
            let raft = Raft::build(node, config, links, log.clone(), replica)
                .await
                .map_err(|error| StartError::Engine(error.to_string()))?;
            log.set_starting(false);
            let looked_through = begun.elapsed();
            raft.run();
            Ok::<_, StartError>((raft, looked_through))
        };
        let (raft, looked_through) = runtime::with_seed(world.entropy.u64(), engine).await?;

        let state = Arc::new(State::new(node, floor, is_above_floor));
        let server = retention.watch_members(raft.server_metrics());
        let watching = watch_end(raft.clone(), Arc::clone(&state), options.node.clone());
        tasks::spawn(Task::ConsensusEnd, watching);
        let (workers, group) = (world.workers.clone(), options.group.as_ref());
        let (watcher, roles) = role::watch(raft.clone(), node, terms.clone(), group);
        let consensus = Self {
            raft,
            journal,
            workers,
            machine,
            log: log.clone(),
            peers,
            snapshots,
            sending,
            reception: Arc::default(),
            server,
            begun: terms,
            roles,
            pace: options.group.as_ref().map(|it| it.pace.clone()).unwrap_or_default(),
            route,
            retention,
            state,
        };
        let voters = consensus.voters().await?;
        // A member whose log had more may know only how the group began.
        let alone = voters == BTreeSet::from([node]) && is_above_floor;
        log.set_alone(alone);
        if options.group.is_none() || alone {
            tokio::select! {
                biased;
                led = consensus.lead(pristine, &voters) => led?,
                _ = consensus.ended() => return Err(consensus.state.failure().into()),
            }
        }
        tracing::info!(
            "machine: {} MB restored in {} ms, log looked through in {} ms, {} entries applied with {} \
             changes in {} ms",
            snapshot_bytes >> 20,
            restored.as_millis(),
            (looked_through - restored).as_millis(),
            report.entries,
            consensus.snapshots.changes(),
            (begun.elapsed() - looked_through).as_millis(),
        );
        let keeping_up = consensus.snapshots.clone().keep_up(consensus.raft.clone());
        let saving = tasks::vital(Task::Snapshots, keeping_up, &options.node);
        let watching = tasks::vital(Task::ConsensusRole, watcher, &options.node);
        let mut running = vec![saving.abort_handle(), watching.abort_handle()];
        if options.group.is_some() {
            let repairing = consensus.clone().keep_repaired();
            running.push(tasks::vital(Task::Repair, repairing, &options.node).abort_handle());
        }
        if !is_above_floor {
            let rising = consensus.clone().campaign_above_floor();
            running.push(tasks::vital(Task::ConsensusRole, rising, &options.node).abort_handle());
        }
        let _ = consensus.state.tasks.set(running);
        Ok(consensus)
    }

    /// Wins an election without waiting for a timeout, and applies all that was committed before.
    async fn lead(&self, pristine: bool, voters: &BTreeSet<u64>) -> Result<(), StartError> {
        let node = self.state.node;
        if pristine {
            // No other node connects to it, so it needs no address yet.
            let founded = self.found(Members::voting([(node, String::new())])).await;
            founded.map_err(|error| match error {
                FoundingError::Failed(failure) => failure.into(),
                error => StartError::Engine(error.to_string()),
            })?;
        } else if voters.contains(&node) {
            self.raft.trigger().elect(false).await.map_err(Failure::from)?;
        } else {
            // A node without a vote would wait for a leader that never comes.
            return Err(StartError::NotAVoter { node, voters: voters.clone() });
        }
        match self.leadership().await {
            Ok(_) => Ok(()),
            Err(_) => {
                self.ended().await;
                Err(self.state.failure().into())
            }
        }
    }

    /// The voters by the newest members in the log.
    async fn voters(&self) -> Result<BTreeSet<u64>, Failure> {
        let voters = self
            .raft
            .with_raft_state(|raft| raft.membership_state.effective().voter_ids().collect());
        voters.await.map_err(Failure::from)
    }

    /// Accepts no more proposals, waits for those in flight, then closes the journal. Waits as long as the disk
    /// does: an impatient caller adds a timeout.
    pub async fn shutdown(&self) {
        self.state.stopping.store(true, Ordering::Release);
        // Applied after everything that was proposed before it. If this node does not lead, it has no proposal in
        // flight to wait for.
        tokio::select! {
            biased;
            _ = self.raft.write_blank() => {}
            _ = self.ended() => {}
            () = self.leads_no_more() => {}
        }
        self.reception.stop();
        for task in self.state.tasks.get().into_iter().flatten() {
            task.abort();
        }
        self.state.stopped.store(true, Ordering::Release);
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not end well");
        }
        let journal = self.journal.clone();
        let closing = self.workers.blocking(Task::JournalClosing, move || journal.close());
        if closing.await.is_err() {
            tracing::warn!("closing the journal panicked");
        }
    }
}

fn restore(
    snapshot: &Snapshot,
    machine: &dyn StateMachine,
) -> Result<(SnapshotMeta, u64), StartError> {
    let meta = encoding::decode_snapshot_meta(&snapshot.meta)
        .map_err(|error| unreadable("the head of the snapshot", error.to_string()))?;
    machine
        .restore(&snapshot.machine)
        .map_err(|source| StartError::Restore { index: snapshot.id.index, source })?;
    Ok((meta, snapshot.bytes))
}

fn unreadable(what: &'static str, reason: String) -> StartError {
    StartError::Unreadable { what, reason }
}

/// Waits for the engine's end, and reports the reason unless the end was requested.
async fn watch_end(raft: Raft<TypeConfig, Replica>, state: Arc<State>, node: tasks::Failure) {
    let mut server = raft.server_metrics();
    while server.changed().await.is_ok() {}
    let Some(failure) = note_end(&raft, &state) else { return };
    // Before the log, which may block: this may end the process.
    node.report(format!("consensus stopped: {failure}"));
    tracing::error!(%failure, "consensus stopped for good");
}
