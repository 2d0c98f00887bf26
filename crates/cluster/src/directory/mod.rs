//! The node and cluster that a data directory belongs to: its file `node`.
//!
//! A node sends this identity to its peers, and they bind it to it. So everything it sends is on disk first. It
//! counts its boots there, which detects a disk that was set back. `content` has the bytes.

mod content;

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use content::{Content, Record, Records};
use content::{Unreadable, VERSION};
use tasks::Task;
use thiserror::Error;
use tokio::sync::Mutex;
use world::World;
use world::disk::{read_whole, replace};

/// The file of a data directory that belongs to a node of a cluster.
pub const MEMBER_FILE: &str = "node";
const FILE: &str = MEMBER_FILE;

/// Why the file `node` of a data directory cannot be read or written.
#[derive(Debug, Error)]
pub enum DirectoryError {
    #[error(
        "{} says which node this data directory is of, and is damaged: {reason}; restore it as it was at the \
         last start, or have a new node with an empty data directory take this one's place",
        path.display()
    )]
    Damaged { path: PathBuf, reason: &'static str },
    #[error(
        "{} is of version {version}, and this program knows version {VERSION}: start the program that wrote it, \
         or a later one",
        path.display()
    )]
    LaterVersion { path: PathBuf, version: u32 },
    #[error(
        "the data directory {} is of a node that ran alone, as its `{found}` shows, and cannot become one of \
         several nodes: start it without peers and seeds, or give an empty data directory. To form a cluster of its \
         data, start it alone, take a backup (`postroad backup DIR`), and restore that to a new directory \
         (`postroad restore --data NEW --from DIR --peer HOST:PORT`), which other nodes join with `--join`",
        dir.display()
    )]
    RanAlone { dir: PathBuf, found: String },
    #[error("another process uses the data directory {}: stop it, or give another one", dir.display())]
    InUse { dir: PathBuf },
    #[error("{doing}: {source}; look whether the disk is well, and start the node again")]
    Io { doing: String, source: io::Error },
}

/// A directory with this process's lock, held until this is dropped.
pub(crate) struct LockedDirectory {
    world: World,
    dir: PathBuf,
    lock: Lock,
}

/// Another process can lock the directory once the last of these is dropped.
type Lock = Arc<dyn Send + Sync>;

/// A directory that records the node it belongs to.
pub(crate) struct Directory {
    world: World,
    dir: PathBuf,
    /// As it is on disk.
    content: Arc<Mutex<Content>>,
    lock: Lock,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Locks a directory, which is created if absent, and reads the node it belongs to: `None` if it belongs to none
/// yet.
pub(crate) async fn claim(
    world: &World,
    dir: &Path,
) -> Result<(LockedDirectory, Option<Content>), DirectoryError> {
    let (of_work, of_dir) = (world.clone(), dir.to_owned());
    blocking(world, move || claim_now(of_work, of_dir)).await
}

fn claim_now(
    world: World,
    dir: PathBuf,
) -> Result<(LockedDirectory, Option<Content>), DirectoryError> {
    let disk = &*world.disk;
    disk.create_dir(&dir).map_err(failed("making", &dir))?;
    let lock = disk.lock(&dir).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => DirectoryError::InUse { dir: dir.clone() },
        _ => failed("claiming", &dir)(source),
    })?;
    let names = disk.list(&dir).map_err(failed("reading", &dir))?;
    let content = if names.iter().any(|name| name == FILE) {
        Some(read(&world, &dir.join(FILE))?)
    } else if let Some(found) = names.into_iter().find(|name| is_broker_file(name)) {
        return Err(DirectoryError::RanAlone { dir, found });
    } else {
        None
    };
    Ok((LockedDirectory { world, dir, lock: lock.into() }, content))
}

/// Whether the name is one that only a broker creates. Other files may belong to a file system or an operator.
fn is_broker_file(name: &str) -> bool {
    name == "cluster" || name == "layout" || name.starts_with("shard-")
}

fn read(world: &World, path: &Path) -> Result<Content, DirectoryError> {
    let bytes = read_whole(&*world.disk, path).map_err(failed("reading", path))?;
    Content::decode(&bytes).map_err(|unreadable| {
        let path = path.to_owned();
        match unreadable {
            Unreadable::Damaged(reason) => DirectoryError::Damaged { path, reason },
            Unreadable::LaterVersion(version) => DirectoryError::LaterVersion { path, version },
        }
    })
}

impl LockedDirectory {
    /// Writes the content of the directory from now on.
    pub(crate) async fn write(self, content: Content) -> Result<Directory, DirectoryError> {
        let Self { world, dir, lock } = self;
        let (of_work, of_dir, written) = (world.clone(), dir.clone(), content.clone());
        blocking(&world, move || write_now(&of_work, &of_dir, &written)).await?;
        Ok(Directory { world, dir, content: Arc::new(Mutex::new(content)), lock })
    }
}

impl Directory {
    /// Changes the content of the directory, durably when this returns. The write completes even if the future is
    /// dropped.
    pub(crate) async fn change(
        &self,
        change: impl FnOnce(&mut Content),
    ) -> Result<(), DirectoryError> {
        // The lock is held until the write is over, even if the caller is gone.
        let mut content = Arc::clone(&self.content).lock_owned().await;
        let mut changed = content.clone();
        change(&mut changed);
        if changed == *content {
            return Ok(());
        }
        let (world, dir, lock) = (self.world.clone(), self.dir.clone(), Arc::clone(&self.lock));
        blocking(&self.world, move || {
            let written = write_now(&world, &dir, &changed);
            drop(lock);
            written.map(|()| *content = changed)
        })
        .await
    }

    /// Keeps the directory locked until the returned guard is dropped; [`Directory::settled`] waits for that.
    pub(crate) async fn hold(&self) -> impl Send + Sync + use<> {
        let content = Arc::clone(&self.content).lock_owned().await;
        (content, Arc::clone(&self.lock))
    }

    /// Waits until no write is in progress.
    pub(crate) async fn settled(&self) {
        drop(self.content.lock().await);
    }
}

fn write_now(world: &World, dir: &Path, content: &Content) -> Result<(), DirectoryError> {
    let bytes = content.encode();
    let replaced = replace(&*world.disk, dir, FILE, &mut [IoSlice::new(&bytes)]);
    replaced.map_err(failed("writing", &dir.join(FILE)))
}

pub(crate) async fn blocking<T: Send + 'static>(
    world: &World,
    work: impl FnOnce() -> Result<T, DirectoryError> + Send + 'static,
) -> Result<T, DirectoryError> {
    let done = world.workers.blocking(Task::NodeDirectory, work).await;
    done.unwrap_or_else(|ended| {
        let doing = "work on the data directory has ended".to_owned();
        Err(DirectoryError::Io { doing, source: io::Error::other(ended) })
    })
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let doing = format!("{doing} {}", path.display());
    move |source| DirectoryError::Io { doing, source }
}
