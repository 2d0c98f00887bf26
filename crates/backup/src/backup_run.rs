//! Pulls a backup from a node, piece by piece, and writes it.
//!
//! The directory has a file `incomplete` from the start, and a manifest at the end. An interrupted backup has no
//! manifest, and the next attempt restarts it.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::ShardId;
use operations::backup::{
    BackupBegun, BackupEnded, BackupEnds, BackupPiece, Blob, LogPiece, SectionSize,
    ShardBackupBegun, Step,
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use world::disk::{read_whole, replace};
use world::{Disk, Instant, World};

use crate::cut::{self, NoCut};
use crate::files::{FileWriter, Frames};
use crate::manifest::{
    FORMAT, FileEntry, INCOMPLETE, INCOMPLETE_DRAFT, MANIFEST, Manifest, SECTIONS, ShardEntry,
    is_backup_file, log_file, section_file, segment_file,
};
use crate::replay::{Replay, ReplayError, Replayed};
use crate::stored_backup::decode_entries;

/// Interval at which the logs of copied shards are fetched, so that the node can drop them.
const LOG_EVERY: Duration = Duration::from_millis(100);
/// Pieces of one log fetched before the next shard's log.
const LOG_PIECES_MAX: usize = 64;
/// Delay before the ends of all shards are requested again.
const ENDS_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long a copied backup waits until no partition moves.
const ENDS_RETRIED_FOR: Duration = Duration::from_secs(60 * 60);

/// The source node.
pub trait Source: Sync {
    type Error: std::error::Error + Send + Sync + 'static;

    fn ask<A: DeserializeOwned + Send>(
        &self,
        step: Step,
    ) -> impl Future<Output = Result<A, Self::Error>> + Send;

    /// Whether a retry of the step may succeed.
    fn is_passing(error: &Self::Error) -> bool;

    /// Waits before a retry.
    fn pause(&self, pause: Duration) -> impl Future<Output = ()> + Send;
}

/// Reason why no backup was taken.
#[derive(Debug, Error)]
pub enum TakeError<E: std::error::Error + 'static> {
    #[error("{dir} has a backup already: name another directory")]
    HasBackup { dir: String },
    #[error(
        "{dir} is not empty (it has {found:?}): name an empty directory, or one that is not there yet"
    )]
    NotEmpty { dir: String, found: String },
    #[error("another process writes to {dir}")]
    InUse { dir: String },
    #[error(
        "cannot write {}: {source}; the backup is not complete, type the command again once that is put right",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read what was written to {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Asked(E),
    #[error("shard {shard} of what the node sent cannot be used: {what}")]
    Wrong { shard: u32, what: String },
    #[error("shard {shard} of what the node sent cannot be used: {source}")]
    Replay { shard: u32, source: ReplayError },
    #[error(transparent)]
    NoCut(#[from] NoCut),
}

/// Progress of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupProgress {
    pub bytes: u64,
}

/// Takes a backup of a node and writes it to the directory. Returns once it is durable.
pub async fn take<S: Source>(
    source: &S,
    world: &World,
    dir: &Path,
    mut progress: impl FnMut(BackupProgress) + Send,
) -> Result<Manifest, TakeError<S::Error>> {
    let disk = &*world.disk;
    let _claimed = begin_directory::<S::Error>(disk, dir)?;
    let begun: BackupBegun = source.ask(Step::Begin {}).await.map_err(TakeError::Asked)?;
    let backup = begun.backup;
    if !begun.shards.iter().copied().eq(0..begun.shards.len() as u32) || begun.shards.is_empty() {
        let what = "they are not numbered from the catalog on".to_owned();
        return Err(TakeError::Wrong { shard: 0, what });
    }
    let mut taking = BackupRun {
        source,
        disk,
        dir,
        backup,
        shards: Vec::new(),
        looked: Instant::now(),
        bytes: 0,
    };
    let copied = taking.copy(&begun.shards, &mut progress).await;
    // The node can release what it kept. If this request fails, the node releases it after a timeout.
    let _ended: Result<BackupEnded, _> = source.ask(Step::End { backup }).await;
    let (from, to) = copied?;
    let manifest = taking.finish(&begun, &from, &to, world.clock.now_ms())?;
    let written = write_manifest(disk, dir, &manifest);
    let failed = |source| TakeError::Write { path: dir.join(MANIFEST), source };
    written.map(|()| manifest).map_err(failed)
}

/// Creates and claims the directory. Leftovers of an interrupted backup are deleted.
fn begin_directory<E: std::error::Error + 'static>(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<Box<dyn Send + Sync>, TakeError<E>> {
    let failed = |source| -> TakeError<E> { TakeError::Write { path: dir.to_owned(), source } };
    disk.create_dir(dir).map_err(failed)?;
    let shown = || dir.display().to_string();
    let look = || -> Result<Vec<String>, TakeError<E>> {
        let names = disk.list(dir).map_err(failed)?;
        let names = names.into_iter().filter(|it| it != "LOCK" && it != "lost+found");
        let names: Vec<String> = names.collect();
        let has = |name: &str| names.iter().any(|it| it == name);
        if has(MANIFEST) {
            return Err(TakeError::HasBackup { dir: shown() });
        }
        let is_other = |name: &&String| {
            *name != INCOMPLETE_DRAFT && (!has(INCOMPLETE) || !is_backup_file(name))
        };
        let other = names.iter().find(is_other);
        match other {
            Some(found) => Err(TakeError::NotEmpty { dir: shown(), found: found.clone() }),
            None => Ok(names),
        }
    };
    // Before anything is written to a directory that may serve another purpose.
    look()?;
    let claimed = disk.lock(dir).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => TakeError::InUse { dir: shown() },
        _ => failed(error),
    })?;
    for name in look()?.iter().filter(|name| *name != INCOMPLETE) {
        disk.remove(&dir.join(name)).map_err(failed)?;
    }
    let words = "This backup is being taken, or was interrupted: it cannot be restored.\n";
    let begun = replace(disk, dir, INCOMPLETE, &mut [IoSlice::new(words.as_bytes())]);
    begun.map_err(failed)?;
    Ok(claimed)
}

fn write_manifest(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    // Makes the names of all other files durable.
    disk.sync_dir(dir)?;
    replace(disk, dir, MANIFEST, &mut [IoSlice::new(&manifest.encode())])?;
    disk.remove(&dir.join(INCOMPLETE))?;
    disk.sync_dir(dir)
}

struct BackupRun<'a, S> {
    source: &'a S,
    disk: &'a dyn Disk,
    dir: &'a Path,
    backup: u64,
    shards: Vec<Shard>,
    /// Time of the last fetch of the logs.
    looked: Instant,
    bytes: u64,
}

struct Shard {
    shard: u32,
    begun: ShardBackupBegun,
    files: Vec<FileEntry>,
    log: FileWriter,
    /// Index of the next entry.
    next: u64,
}

impl<S: Source> BackupRun<'_, S> {
    async fn ask<A: DeserializeOwned + Send>(&self, step: Step) -> Result<A, TakeError<S::Error>> {
        self.source.ask(step).await.map_err(TakeError::Asked)
    }

    /// Copies all shards. Returns the starts and the ends of all windows.
    async fn copy(
        &mut self,
        shards: &[u32],
        progress: &mut (impl FnMut(BackupProgress) + Send),
    ) -> Result<(Vec<u64>, Vec<u64>), TakeError<S::Error>> {
        for &shard in shards {
            self.copy_shard(shard, progress).await?;
        }
        let (from, to) = self.ends(progress).await?;
        if from.len() != shards.len() || to.len() != shards.len() {
            let what = "it says nothing of its end".to_owned();
            return Err(TakeError::Wrong { shard: 0, what });
        }
        for (place, &end) in to.iter().enumerate() {
            while self.shards[place].next <= end {
                let before = self.shards[place].next;
                self.fetch_log(place).await?;
                let Shard { shard, next, .. } = self.shards[place];
                if next == before {
                    let what = format!("its log goes to {next} and was to go to {end}");
                    return Err(TakeError::Wrong { shard, what });
                }
                progress(BackupProgress { bytes: self.bytes });
            }
        }
        Ok((from, to))
    }

    /// Requests the ends of all shards twice, with no partition moving in between. A rebalance may last long: meanwhile
    /// the logs are fetched, so that the node can drop them.
    async fn ends(
        &mut self,
        progress: &mut (impl FnMut(BackupProgress) + Send),
    ) -> Result<(Vec<u64>, Vec<u64>), TakeError<S::Error>> {
        let begun = Instant::now();
        loop {
            match self.ends_twice().await {
                Err(TakeError::Asked(error))
                    if S::is_passing(&error) && begun.elapsed() < ENDS_RETRIED_FOR =>
                {
                    self.source.pause(ENDS_AGAIN_AFTER).await;
                    self.follow().await?;
                    progress(BackupProgress { bytes: self.bytes });
                }
                ends => return ends,
            }
        }
    }

    async fn ends_twice(&self) -> Result<(Vec<u64>, Vec<u64>), TakeError<S::Error>> {
        let backup = self.backup;
        let BackupEnds { ends: from } = self.ask(Step::Ends { backup }).await?;
        let BackupEnds { ends: to } = self.ask(Step::Ends { backup }).await?;
        Ok((from, to))
    }

    async fn copy_shard(
        &mut self,
        shard: u32,
        progress: &mut (impl FnMut(BackupProgress) + Send),
    ) -> Result<(), TakeError<S::Error>> {
        let backup = self.backup;
        let begun: ShardBackupBegun = self.ask(Step::Shard { backup, shard }).await?;
        if begun.sections.len() != SECTIONS.len() {
            return Err(TakeError::Wrong { shard, what: "it has other sections".to_owned() });
        }
        let log = self.create(log_file(shard))?;
        let (next, sections, segments) =
            (begun.snapshot.index + 1, begun.sections.clone(), begun.segments);
        self.shards.push(Shard { shard, begun, files: Vec::new(), log, next });
        for (place, size) in sections.into_iter().enumerate() {
            let file = self.copy_section(shard, place, size, progress).await?;
            self.is_copied(file);
        }
        for segment in 0..segments {
            let mut file = self.create(segment_file(shard, segment))?;
            let mut row = 0;
            loop {
                let piece: BackupPiece =
                    self.ask(Step::Segment { backup, shard, segment, row }).await?;
                let BackupPiece { bytes: Blob(bytes), next } = piece;
                file.write_frame(&bytes).map_err(|source| self.unwritten(&file, source))?;
                self.bytes += bytes.len() as u64;
                progress(BackupProgress { bytes: self.bytes });
                self.follow().await?;
                match next {
                    Some(next) if next > row => row = next,
                    Some(_) => {
                        let what = "a segment comes to no end".to_owned();
                        return Err(TakeError::Wrong { shard, what });
                    }
                    None => break,
                }
            }
            let file = self.finish_file(file)?;
            self.is_copied(file);
        }
        Ok(())
    }

    async fn copy_section(
        &mut self,
        shard: u32,
        place: usize,
        size: SectionSize,
        progress: &mut (impl FnMut(BackupProgress) + Send),
    ) -> Result<FileEntry, TakeError<S::Error>> {
        let mut file = self.create(section_file(shard, SECTIONS[place]))?;
        let (backup, section) = (self.backup, place as u8);
        while file.bytes() < size.bytes {
            let from = file.bytes();
            let piece: BackupPiece =
                self.ask(Step::Section { backup, shard, section, from }).await?;
            let BackupPiece { bytes: Blob(bytes), .. } = piece;
            if bytes.is_empty() || bytes.len() as u64 > size.bytes - from {
                let what = format!("another part of {} than was asked for", file.name());
                return Err(TakeError::Wrong { shard, what });
            }
            file.write(&bytes).map_err(|source| self.unwritten(&file, source))?;
            self.bytes += bytes.len() as u64;
            progress(BackupProgress { bytes: self.bytes });
            self.follow().await?;
        }
        if file.checksum() != size.crc {
            let what = format!("{} came with another checksum", file.name());
            return Err(TakeError::Wrong { shard, what });
        }
        self.finish_file(file)
    }

    fn create(&self, name: String) -> Result<FileWriter, TakeError<S::Error>> {
        let path = self.dir.join(&name);
        let created = FileWriter::create(self.disk, self.dir, name);
        created.map_err(|source| TakeError::Write { path, source })
    }

    fn unwritten(&self, file: &FileWriter, source: io::Error) -> TakeError<S::Error> {
        TakeError::Write { path: self.dir.join(file.name()), source }
    }

    fn finish_file(&self, file: FileWriter) -> Result<FileEntry, TakeError<S::Error>> {
        let path = self.dir.join(file.name());
        file.finish().map_err(|source| TakeError::Write { path, source })
    }

    /// Adds a file to the shard that was begun last.
    fn is_copied(&mut self, file: FileEntry) {
        if let Some(shard) = self.shards.last_mut() {
            shard.files.push(file);
        }
    }

    /// Fetches new log entries of all shards, unless that was done recently.
    async fn follow(&mut self) -> Result<(), TakeError<S::Error>> {
        if self.looked.elapsed() < LOG_EVERY {
            return Ok(());
        }
        for place in 0..self.shards.len() {
            for _ in 0..LOG_PIECES_MAX {
                if !self.fetch_log(place).await? {
                    break;
                }
            }
        }
        self.looked = Instant::now();
        Ok(())
    }

    /// Returns whether there is more.
    async fn fetch_log(&mut self, place: usize) -> Result<bool, TakeError<S::Error>> {
        let Shard { shard, next: from, .. } = self.shards[place];
        let piece: LogPiece = self.ask(Step::Log { backup: self.backup, shard, from }).await?;
        let LogPiece { entries: Blob(entries), next, more } = piece;
        if next < from || (next > from) == entries.is_empty() {
            let what = "another part of its log than was asked for".to_owned();
            return Err(TakeError::Wrong { shard, what });
        }
        if !entries.is_empty() {
            let of_shard = &mut self.shards[place];
            of_shard.next = next;
            let written = of_shard.log.write_frame(&entries);
            written.map_err(|source| self.unwritten(&self.shards[place].log, source))?;
            self.bytes += entries.len() as u64;
        }
        Ok(more && next > from)
    }

    /// Chooses the cut from the written files, which are thereby read back once.
    fn finish(
        self,
        begun: &BackupBegun,
        from: &[u64],
        to: &[u64],
        ended_ms: i64,
    ) -> Result<Manifest, TakeError<S::Error>> {
        let Self { disk, dir, shards, .. } = self;
        let (mut windows, mut times) = (BTreeMap::new(), Vec::new());
        let mut entries = Vec::new();
        for (place, of_shard) in shards.into_iter().enumerate() {
            let Shard { shard, begun, mut files, log, .. } = of_shard;
            let path = dir.join(log.name());
            let failed = |source| TakeError::<S::Error>::Write { path, source };
            files.push(log.finish().map_err(failed)?);
            let snapshot = begun.snapshot;
            let (from, to) = (from[place], to[place]);
            let replayed = replayed::<S::Error>(disk, dir, shard, snapshot.index, from, to)?;
            windows.insert(ShardId(shard), replayed.window);
            times.push(replayed.times);
            let segments = begun.segments;
            let (last_index, last_ms) = (snapshot.index, 0);
            entries.push(ShardEntry { shard, snapshot, last_index, last_ms, segments, files });
        }
        let cut = cut::choose(&windows)?;
        for (entry, times) in entries.iter_mut().zip(&times) {
            entry.last_index = cut[&ShardId(entry.shard)];
            let before = times.partition_point(|(index, _)| *index <= entry.last_index);
            entry.last_ms = before.checked_sub(1).map_or(0, |last| times[last].1);
        }
        Ok(Manifest {
            format: FORMAT,
            version: begun.version.clone(),
            cluster: begun.cluster.clone(),
            node: begun.node,
            begun_ms: begun.now_ms,
            ended_ms,
            shards: entries,
            checksum: 0,
        }
        .sealed())
    }
}

/// The shard's knowledge of others at the end of its log, with times.
fn replayed<E: std::error::Error + 'static>(
    disk: &dyn Disk,
    dir: &Path,
    shard: u32,
    snapshot: u64,
    from: u64,
    to: u64,
) -> Result<Replayed, TakeError<E>> {
    let senseless = |source| -> TakeError<E> { TakeError::Replay { shard, source } };
    let path = dir.join(section_file(shard, SECTIONS[1]));
    let machine = read_whole(disk, &path);
    let machine = machine.map_err(|source| TakeError::<E>::Read { path, source })?;
    let mut replay = Replay::new(&machine, snapshot, from, to).map_err(senseless)?;
    drop(machine);
    let path = dir.join(log_file(shard));
    let unreadable = |source| TakeError::<E>::Read { path: path.clone(), source };
    for frame in Frames::open(disk, dir, &log_file(shard)).map_err(unreadable)? {
        let entries = decode_entries(frame.map_err(unreadable)?);
        for entry in entries.map_err(|what| TakeError::<E>::Wrong { shard, what })? {
            if !replay.apply(&entry).map_err(senseless)? {
                return replay.finish().map_err(senseless);
            }
        }
    }
    replay.finish().map_err(senseless)
}
