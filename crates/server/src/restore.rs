//! `postroad restore`: creates the data directory of a new cluster from a backup.

use std::path::PathBuf;

use ::journal::Options as JournalOptions;
use ::world::World;
use broker::BrokerOptions;
use clap::Args;
use cli::output::counted;
use cli::{BackupReport, CommandError, OutputOption};
use nodes::restore::{RestoreError, RestoreReport, restore, verify};
use serde::Serialize;
use uuid::Uuid;

use crate::settings::host_port;

/// Make the data directory of a new cluster out of a backup
///
/// The cluster has one node, which is started from the directory, and others join it with empty directories. It has a new
/// id, so that nodes of the cluster that the backup was taken from are refused.
#[derive(Args, Debug)]
pub(crate) struct RestoreArguments {
    /// Directory that is empty, is not there yet, or has a restore that was interrupted
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Directory that 'postroad backup' wrote
    #[arg(long, value_name = "BACKUP")]
    from: PathBuf,
    /// Where other nodes will reach this one, as 'postroad serve' is told by --peer or --advertise-peer
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    peer: String,
    /// Only look through the backup, and say what is in it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputOption,
}

#[derive(Serialize)]
struct Outcome {
    #[serde(flatten)]
    backup: BackupReport,
    /// Null: nothing was written.
    restored: Option<RestoreOutput>,
}

#[derive(Serialize)]
struct RestoreOutput {
    data: String,
    cluster: Uuid,
    peer: String,
    offsets_set_back: usize,
}

pub(crate) async fn run(arguments: RestoreArguments) -> Result<(), CommandError> {
    let RestoreArguments { data, from, peer, dry_run, output } = arguments;
    host_port("peer", &peer).map_err(CommandError::user)?;
    let world = World::real();
    let options = BrokerOptions { journal: JournalOptions::default(), ..BrokerOptions::default() };
    let done = match dry_run {
        true => verify(&world, &data, &from),
        false => restore(&world, &data, &from, &peer, options, |_| {}).await,
    };
    let RestoreReport { manifest, cluster, offsets_set_back } = done.map_err(refused)?;
    let backup = BackupReport::of(&manifest, &from);
    let shown = data.display().to_string();
    let restored = cluster.map(|cluster| {
        let (data, peer) = (shown.clone(), peer.clone());
        RestoreOutput { data, cluster, peer, offsets_set_back }
    });
    let outcome = Outcome { backup, restored };
    output.output.show(&outcome, |Outcome { backup, restored }| {
        let mut text = backup.describe();
        match restored {
            None => text.push_str(&format!(
                "every file is as it was written. Nothing was changed; to restore it, type\n  postroad restore --data {shown} --from {}\n",
                from.display()
            )),
            Some(new) => text.push_str(&after(new)),
        }
        text
    })?;
    Ok(())
}

fn after(new: &RestoreOutput) -> String {
    let RestoreOutput { data, cluster, peer, offsets_set_back } = new;
    let mut text = format!("{data} is of node 1, alone in the new cluster {cluster}\n");
    if *offsets_set_back > 0 {
        let offsets = counted(*offsets_set_back as u64, "offset");
        text.push_str(&format!(
            "{offsets} that groups had committed a moment after the last records of the backup: these groups go on with what comes\n"
        ));
    }
    text.push_str(&format!(
        "start it with\n  postroad serve --data {data} --peer {peer}\nand let others join, each with an empty directory:\n  postroad serve --data NEW --peer HOST:PORT --join {peer}\n"
    ));
    text
}

fn refused(error: RestoreError) -> CommandError {
    match error {
        RestoreError::Stored(_) | RestoreError::Vacant(_) => CommandError::user(error),
        error => CommandError::server(error),
    }
}
