//! The cluster's feature level: a document of the catalog sets it, and this node follows the document.
//!
//! A new cluster is founded at the newest level that all of its nodes support; one without a document is at the
//! first. Nothing is written at a level before the data directory records it: a program that does not support the
//! level would otherwise find entries that it cannot read, instead of an error.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use base::level::PROGRAM;
use base::{ClusterLevel, Level};
use cluster::level::{RaisedLevel, keep};
use machine::{Command, Refusal};
use serde::{Deserialize, Serialize};
use shard::LocalShard;
use shard::document_watch::DocumentWatch;
use shard::error::ExecuteError;
use tasks::{Failure, Task};
use world::World;

use crate::error::OpenError;

/// Space and name of the document.
pub const SPACE: &str = "cluster";
pub const NAME: &str = "level";

/// Contents of the document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LevelDocument {
    pub level: Level,
    /// The program that raised the cluster to the level.
    pub program: String,
}

impl LevelDocument {
    /// The document of a cluster raised by this program.
    pub fn of(level: Level) -> Self {
        Self { level, program: PROGRAM.to_owned() }
    }
}

impl From<LevelDocument> for RaisedLevel {
    fn from(LevelDocument { level, program }: LevelDocument) -> Self {
        Self { level, program }
    }
}

/// Reads the catalog's document; `None` if there is none, which means the first level.
fn stored_level(catalog: &LocalShard) -> Result<Option<LevelDocument>, serde_json::Error> {
    let body = catalog.read(|view| {
        let document = view.catalog.document(SPACE, NAME);
        document.map(|document| Arc::clone(&document.body))
    });
    body.map(|body| serde_json::from_slice(&body)).transpose()
}

/// Sets the level of a cluster without shards. It has to succeed before the number of shards is set, by a node that
/// founds alone or by the catalog's leader.
pub(crate) async fn begin(catalog: &LocalShard, level: Level) -> Result<(), ExecuteError> {
    if level == Level::FIRST || catalog.read(|view| view.catalog.document(SPACE, NAME).is_some()) {
        return Ok(());
    }
    let body = serde_json::to_vec(&LevelDocument::of(level)).unwrap_or_default();
    let (space, name) = (SPACE.to_owned(), NAME.to_owned());
    let put = Command::PutDocument { space, name, body, expect: Some(0) };
    match catalog.execute(put).await {
        Err(ExecuteError::Refused(Refusal::DocumentConflict { .. })) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Raises the level to that of the catalog, if that is later and this program supports it.
pub(crate) async fn reach(
    catalog: &LocalShard,
    world: &World,
    dir: &Path,
    level: &ClusterLevel,
) -> Result<(), OpenError> {
    let unreadable = |error| OpenError::Layout {
        path: dir.to_path_buf(),
        reason: format!("the catalog's document of the feature level makes no sense: {error}"),
    };
    let Some(stored) = stored_level(catalog).map_err(unreadable)? else { return Ok(()) };
    if stored.level <= level.now() {
        return Ok(());
    }
    let raised = RaisedLevel::from(stored);
    let to = raised.clone().check(level.can()).map_err(OpenError::Level)?;
    let (of_work, of_dir) = (world.clone(), dir.to_path_buf());
    let keeping = move || keep(&of_work, &of_dir, &raised);
    let kept = world.workers.blocking(Task::NodeDirectory, keeping).await;
    let kept = kept.unwrap_or_else(|ended| Err(std::io::Error::other(ended)));
    let doing = "writing the feature level".to_owned();
    kept.map_err(|source| OpenError::Io { doing, source })?;
    level.raise(to);
    tracing::info!(level = to.0, "the cluster's feature level");
    Ok(())
}

/// Follows the document for as long as the catalog is open. A node that does not support the cluster's new level
/// ends, with an error that names the program it needs.
pub(crate) async fn follow(
    catalog: Weak<LocalShard>,
    watch: DocumentWatch,
    world: World,
    dir: PathBuf,
    level: Arc<ClusterLevel>,
    failure: Failure,
) {
    loop {
        watch.take();
        let Some(catalog) = catalog.upgrade() else { return };
        if let Err(error) = reach(&catalog, &world, &dir, &level).await {
            return failure.report(error.to_string());
        }
        drop(catalog);
        if !watch.changed().await {
            return;
        }
    }
}
