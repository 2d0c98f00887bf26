//! Epochs: detection of a data directory that was set back to an image of a running node.
//!
//! The boot counter rises with starts alone, so an image of a running node has the same boot as the directory. The
//! epoch rises while the node runs, at most once in [`EPOCH_EVERY`], whenever a log or a vote changed. It is
//! durable in the file `epochs` before any peer receives it. Peers keep the latest epoch of each node, in memory
//! and in their own file. They refuse another run of the node that presents no later one.
//!
//! * `content`: bytes of the file
//!
//! `epoch_keeper` raises and sends the epoch.

mod content;

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{ClusterLevel, Level};
use parking_lot::Mutex;
use world::World;
use world::disk::{DiskFile, read_whole, replace};

use content::SLOT_BYTES;
pub(crate) use content::{Content, PEERS_MAX, PeerEpoch, PeerEpochs};

use crate::directory::{DirectoryError, blocking};

/// How often the epoch may rise, and how often it is sent.
pub(crate) const EPOCH_EVERY: Duration = Duration::from_secs(1);

const FILE: &str = "epochs";

/// The file `epochs` of a data directory that this process has locked.
#[derive(Debug)]
pub(crate) struct EpochFile {
    world: World,
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: the file does not exist yet.
    file: Option<Arc<dyn DiskFile>>,
    /// Number of the last write.
    write: u64,
}

impl EpochFile {
    /// Reads the file, which may not exist. Blocks.
    pub(crate) fn open(world: &World, dir: &Path) -> Result<(Self, Content), DirectoryError> {
        let path = dir.join(FILE);
        let io = |doing: &str| {
            let doing = format!("{doing} {}", path.display());
            move |source| DirectoryError::Io { doing, source }
        };
        let names = world.disk.list(dir).map_err(io("listing the directory of"))?;
        let (mut file, mut content) = (None, Content::default());
        if names.iter().any(|name| name == FILE) {
            let bytes = read_whole(&*world.disk, &path).map_err(io("reading"))?;
            let newest = bytes.chunks(SLOT_BYTES).filter_map(Content::decode);
            let newest = newest.max_by_key(|content| content.write);
            content = newest.ok_or_else(|| DirectoryError::Damaged {
                path: path.clone(),
                reason: "neither of its two copies can be read",
            })?;
            file = Some(world.disk.open(&path, false).map_err(io("opening"))?);
        }
        let state = Mutex::new(State { file, write: content.write });
        Ok((Self { world: world.clone(), dir: dir.to_owned(), state }, content))
    }

    /// Makes the content durable. Blocks.
    pub(crate) fn write(&self, content: &Content) -> io::Result<()> {
        let mut state = self.state.lock();
        let write = state.write + 1;
        let bytes = Content { write, ..content.clone() }.encode();
        let slot = (write as usize % 2) * SLOT_BYTES;
        match &state.file {
            Some(file) => {
                file.write_at(&mut [IoSlice::new(&bytes)], slot as u64)?;
                file.sync()?;
            }
            None => {
                let mut whole = vec![0; 2 * SLOT_BYTES];
                whole[slot..slot + bytes.len()].copy_from_slice(&bytes);
                let disk = &*self.world.disk;
                replace(disk, &self.dir, FILE, &mut [IoSlice::new(&whole)])?;
                state.file = Some(disk.open(&self.dir.join(FILE), false)?);
            }
        }
        state.write = write;
        Ok(())
    }
}

/// Reads the epochs of a directory and raises its own for this run, where the level has them. On disk when it returns.
pub(crate) async fn begin(
    world: &World,
    data_dir: &Path,
    level: &ClusterLevel,
) -> Result<(EpochFile, Content), DirectoryError> {
    let (of_work, dir) = (world.clone(), data_dir.to_owned());
    let has_epochs = level.now() >= Level::EPOCHS;
    let begin = move || {
        let (file, mut content) = EpochFile::open(&of_work, &dir)?;
        if has_epochs || content.own > 0 {
            content.own += 1;
            file.write(&content).map_err(|source| DirectoryError::Io {
                doing: format!("writing the epoch in {}", dir.display()),
                source,
            })?;
        }
        Ok((file, content))
    };
    blocking(world, begin).await
}

#[cfg(test)]
mod tests {
    use world::{Disk, SimulatedDisk};

    use super::*;

    fn opened(disk: &SimulatedDisk) -> (EpochFile, Content) {
        let world = World::on(Arc::new(disk.clone()));
        EpochFile::open(&world, Path::new("/data")).expect("readable")
    }

    #[test]
    fn power_loss_at_any_write_leaves_an_epoch_that_was_durable_before() {
        for seed in 0..50 {
            let disk = SimulatedDisk::new();
            disk.create_dir(Path::new("/data")).expect("created");
            let (file, found) = opened(&disk);
            assert_eq!(found, Content::default());
            for own in 1..=1 + seed % 4 {
                file.write(&Content { own, ..Content::default() }).expect("written");
            }
            let durable = 1 + seed % 4;
            // A write whose sync does not return.
            disk.hang_syncs(true);
            let writing = {
                let file = Arc::new(file);
                let content = Content { own: 9, ..Content::default() };
                std::thread::spawn(move || file.write(&content))
            };
            std::thread::sleep(Duration::from_millis(5));
            let lost = disk.power_loss(seed);
            disk.hang_syncs(false);
            let _ = writing.join().expect("ends");
            let (_, found) = opened(&lost);
            assert!(found.own == durable || found.own == 9, "{} of {durable}", found.own);
        }
    }

    #[test]
    fn damage_of_one_copy_leaves_the_other_and_damage_of_both_is_refused() {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/data")).expect("created");
        let (file, _) = opened(&disk);
        for own in 1..=2 {
            file.write(&Content { own, ..Content::default() }).expect("written");
        }
        drop(file);
        let path = Path::new("/data/epochs");
        // The second write went to the first slot.
        disk.flip_bit(path, 20, 1);
        assert_eq!(opened(&disk).1.own, 1);
        disk.flip_bit(path, SLOT_BYTES as u64 + 20, 1);
        let world = World::on(Arc::new(disk));
        let error = EpochFile::open(&world, Path::new("/data")).expect_err("damaged");
        assert!(error.to_string().contains("epochs"), "{error}");
    }
}
