//! `postroad journal`: inspects a journal on disk, without a broker.
//!
//! Nothing is locked, changed or trusted. It reads as recovery does, but continues behind damage. A stream gets its
//! topic's name if the snapshot or an entry has it; otherwise it is shown as a number (`t7/0`).
//!
//! * [`shard`]: a shard's journal, read from end to end
//! * [`report`]: its segments, snapshots and vote
//! * [`lines`]: its frames and entries, one a line
//! * [`names`]: topic names by number
//! * [`damage`]: distinguishes damage from frames that a running broker is writing

mod damage;
mod lines;
mod names;
mod report;
mod shard;

use std::io;
use std::path::{Path, PathBuf};

use base::HashMap;
use clap::{Args, Subcommand};

use crate::command_error::CommandError;
use crate::output::OutputOption;

use damage::Damage;
use report::shard_text;
use shard::Shard;

#[derive(Args, Debug)]
pub struct JournalArguments {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Subcommand, Debug)]
enum JournalCommand {
    /// Read a journal from end to end and say what is in it and whether it is sound
    ///
    /// Ends with code 2 when something is damaged. A torn end is no damage: a crash leaves it, and
    /// the next start cuts it. A broker may be running; the segment that it writes may then be shown
    /// as torn or being written, which is no damage either.
    Inspect(Inspect),
}

#[derive(Args, Debug)]
struct Inspect {
    /// Data directory of a broker, or one shard of it
    dir: PathBuf,
    /// List the frames, each of them one group commit
    #[arg(long, conflicts_with = "entries")]
    frames: bool,
    /// List the entries of the log and what they say
    #[arg(long)]
    entries: bool,
    /// Only this segment
    #[arg(long, value_name = "N")]
    segment: Option<u32>,
    #[command(flatten)]
    output: OutputOption,
}

#[derive(Debug, thiserror::Error)]
enum InspectError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} holds no journal; name the directory that 'postroad serve --data' names", .0.display())]
    NoJournal(PathBuf),
    #[error("{} damaged, the first {first}; a broker refuses to start on it", places(*count))]
    Damaged { count: usize, first: String },
}

fn places(count: usize) -> String {
    match count {
        1 => "1 place is".into(),
        count => format!("{count} places are"),
    }
}

pub fn run(arguments: &JournalArguments) -> Result<(), CommandError> {
    let JournalCommand::Inspect(inspect) = &arguments.command;
    let mut damage = Damage::default();
    let mut shards = Vec::new();
    let mut topics = HashMap::default();
    for dir in shard_dirs(&inspect.dir)? {
        let mut shard = Shard::open(&dir, topics)?;
        if inspect.frames || inspect.entries {
            shard.list(inspect, &mut damage)?;
        } else {
            shards.push(shard.report(inspect, &mut damage)?);
        }
        topics = shard.into_topics();
    }
    if !inspect.frames && !inspect.entries {
        inspect
            .output
            .output
            .show(&shards, |shards| shards.iter().map(shard_text).collect::<Vec<_>>().join("\n"))?;
    }
    match damage.places.first() {
        None => Ok(()),
        Some(first) => {
            let (count, first) = (damage.places.len(), first.text());
            Err(CommandError::server(InspectError::Damaged { count, first }))
        }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> CommandError {
    let path = path.to_owned();
    move |source| CommandError::user(InspectError::Unreadable { path, source })
}

/// A data directory has one for each shard; the directory of one shard stands for itself.
fn shard_dirs(dir: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let mut shards = Vec::new();
    let mut is_a_shard = false;
    for found in std::fs::read_dir(dir).map_err(unreadable(dir))? {
        let found = found.map_err(unreadable(dir))?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix("shard-").and_then(|number| number.parse::<u32>().ok());
        if let Some(number) = number.filter(|_| found.path().is_dir()) {
            shards.push((number, found.path()));
        }
        is_a_shard |= name.ends_with(".seg");
    }
    shards.sort();
    match (shards.is_empty(), is_a_shard) {
        // The catalog's shard comes first: it has the names of topics.
        (false, _) => Ok(shards.into_iter().map(|(_, dir)| dir).collect()),
        (true, true) => Ok(vec![dir.to_owned()]),
        (true, false) => Err(CommandError::user(InspectError::NoJournal(dir.to_owned()))),
    }
}
