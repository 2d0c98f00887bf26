//! `postroad backup`: writes the contents of a cluster to a directory.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::backup::{BackupProgress, Manifest, Source, TakeError, take};
use ::world::World;
use clap::Args;
use client::{Client, ClientError};
use operations::backup::Step;
use operations::cluster::Operation;
use operations::time::human_time;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use world::Instant;

use super::operate;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::failure::{ClientErrorText, is_the_users};
use crate::output::{Table, bytes};

const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// Write all that a cluster has, or a node that is alone, to a directory
///
/// Clients go on meanwhile. All that was acknowledged before the command began is in it, and of each shard as much as fits
/// together with the others. It is read from the node that is asked, with up to 64 MiB a second. 'postroad restore' makes
/// a cluster of it.
#[derive(Args, Debug)]
pub struct BackupArguments {
    #[command(flatten)]
    client: ClientOptions,
    /// Directory that is empty, is not there yet, or has a backup that was interrupted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

struct Node(Client);

impl Source for Node {
    type Error = ClientError;

    async fn ask<A: DeserializeOwned + Send>(&self, step: Step) -> Result<A, ClientError> {
        operate(&self.0, &Operation::Backup(step)).await
    }

    fn is_passing(error: &ClientError) -> bool {
        error.code().is_some_and(|code| code.is_retriable())
    }

    async fn pause(&self, pause: Duration) {
        sleep(pause).await;
    }
}

pub(crate) async fn run(arguments: BackupArguments) -> Result<(), CommandError> {
    let BackupArguments { client: options, dir } = arguments;
    let node = Node(options.connect().await?);
    let mut shown = Progress::new();
    let taken =
        take(&node, &World::real(), &dir, |BackupProgress { bytes }| shown.show(bytes)).await;
    shown.clear();
    let manifest = taken.map_err(|error| refused(error, &dir))?;
    let report = BackupReport::of(&manifest, &dir);
    options.output().show(&report, |report| {
        let dir = dir.display();
        let next = format!("look through it, and restore it to an empty directory, with\n  postroad restore --data NEW --from {dir}\n");
        format!("{}{next}", report.describe())
    })?;
    Ok(())
}

fn refused(error: TakeError<ClientError>, dir: &Path) -> CommandError {
    match error {
        TakeError::Asked(error) => {
            let is_the_users = is_the_users(&error);
            let words = format!(
                "{}; the backup in {} is not complete, type the command again to start over",
                ClientErrorText(error),
                dir.display()
            );
            if is_the_users { CommandError::user(words) } else { CommandError::server(words) }
        }
        TakeError::HasBackup { .. } | TakeError::NotEmpty { .. } | TakeError::InUse { .. } => {
            CommandError::user(error)
        }
        error => CommandError::server(error),
    }
}

/// Contents of a backup, as printed by both commands.
#[derive(Debug, Serialize)]
pub struct BackupReport {
    backup: String,
    /// Everything acknowledged before this time is in it.
    begun_ms: i64,
    ended_ms: i64,
    cluster: String,
    node: u64,
    version: String,
    bytes: u64,
    shards: Vec<ShardReport>,
}

#[derive(Debug, Serialize)]
struct ShardReport {
    shard: u32,
    last_index: u64,
    /// Null: no entry has a time yet.
    last_ms: Option<i64>,
    bytes: u64,
}

impl BackupReport {
    pub fn of(manifest: &Manifest, dir: &Path) -> Self {
        let shards = manifest.shards.iter().map(|entry| ShardReport {
            shard: entry.shard,
            last_index: entry.last_index,
            last_ms: Some(entry.last_ms).filter(|ms| *ms > 0),
            bytes: entry.bytes(),
        });
        Self {
            backup: dir.display().to_string(),
            begun_ms: manifest.begun_ms,
            ended_ms: manifest.ended_ms,
            cluster: manifest.cluster.clone(),
            node: manifest.node,
            version: manifest.version.clone(),
            bytes: manifest.bytes(),
            shards: shards.collect(),
        }
    }

    pub fn describe(&self) -> String {
        let mut table = Table::new(&["SHARD", ">LAST ENTRY", "WRITTEN", ">BYTES"]);
        for ShardReport { shard, last_index, last_ms, bytes: size } in &self.shards {
            let name = if *shard == 0 { "catalog".to_owned() } else { shard.to_string() };
            let size = bytes(*size);
            let written = last_ms.map_or_else(|| "-".to_owned(), human_time);
            table.row(vec![name, last_index.to_string(), written, size]);
        }
        format!(
            "backup {} of cluster {}, taken from node {} (postroad {}): {}\nbegun {}, ended {}\n{}",
            self.backup,
            self.cluster,
            self.node,
            self.version,
            bytes(self.bytes),
            human_time(self.begun_ms),
            human_time(self.ended_ms),
            table.render()
        )
    }
}

/// Shows the number of bytes written, on a terminal.
struct Progress {
    is_shown: bool,
    last: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { is_shown, last: None }
    }

    fn show(&mut self, size: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= SHOWN_EVERY);
        if self.is_shown && is_due {
            self.last = Some(Instant::now());
            // A failure to show the line must not stop the backup.
            let _ = write!(io::stderr(), "\r{} written\x1b[K", bytes(size));
        }
    }

    fn clear(&self) {
        if self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
