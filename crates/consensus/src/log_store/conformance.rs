//! openraft's own suite for log stores, applied to ours.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use journal::{Journal, Options};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, RaftSnapshotBuilder, Snapshot, StorageError};
use parking_lot::Mutex;
use world::{SimulatedDisk, World};

use crate::engine::{LogId, SnapshotMeta, StoredMembership, TypeConfig};
use crate::log_store::LogStore;

type State = SnapshotMeta;
type Saved = openraft::type_config::alias::SnapshotOf<TypeConfig, State>;

/// Keeps only the state that the suite queries: this is a suite for the log.
#[derive(Clone, Default)]
struct NoMachine {
    state: State,
    /// Shared with the builder.
    saved: Arc<Mutex<Option<Saved>>>,
}

impl RaftStateMachine<TypeConfig> for NoMachine {
    type SnapshotData = State;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.state.last_log_id, self.state.last_membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, _) = next?;
            self.state.last_log_id = Some(entry.log_id);
            if let Some(members) = entry.get_membership() {
                self.state.last_membership = StoredMembership::new(Some(entry.log_id), members);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: State) -> io::Result<()> {
        self.state = snapshot.clone();
        *self.saved.lock() = Some(Snapshot { meta: meta.clone(), snapshot });
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Saved>> {
        Ok(self.saved.lock().clone())
    }
}

impl RaftSnapshotBuilder<TypeConfig> for NoMachine {
    type SnapshotData = State;

    async fn build_snapshot(&mut self) -> io::Result<Saved> {
        let saved = Snapshot { meta: self.state.clone(), snapshot: self.state.clone() };
        *self.saved.lock() = Some(saved.clone());
        Ok(saved)
    }
}

struct OnSimulatedDisk;

impl StoreBuilder<TypeConfig, LogStore, NoMachine> for OnSimulatedDisk {
    async fn build(&self) -> Result<((), LogStore, NoMachine), StorageError<TypeConfig>> {
        let options =
            Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
        let disk = Arc::new(SimulatedDisk::new());
        let opened = Journal::open(&World::on(disk), Path::new("/log"), options).unwrap();
        Ok(((), LogStore::new(opened.journal, Default::default()).unwrap(), NoMachine::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_store_passes_openrafts_suite() {
    Suite::test_all(OnSimulatedDisk).await.unwrap();
}
