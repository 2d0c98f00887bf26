//! A peer's own disk, mounted at its data folder, which only root can do. A disk with a size limit
//! is a file system in memory, for tests of servers on a full disk. A disk that can lose power
//! (`power.rs`) is a file system in a file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Peers;
use crate::catalog;
use crate::errors::{DiskError, FolderError};
use crate::plan::folder;

/// Source name of the file system among the mounts.
const SOURCE: &str = "postroad-bench";

impl Peers {
    /// Mounts a disk of `bytes` bytes for the data of a peer, which must have none and not run.
    /// [`wipe`](Self::wipe) removes the disk, and the data with it.
    pub fn confine(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        let place = self.place_of_a_disk(name)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=0755"), SOURCE]).arg(&place);
        done(mount).map_err(|why| DiskError::Mount { path: place, why })
    }

    /// Checks that this user may mount a disk.
    pub fn can_mount() -> Result<(), DiskError> {
        match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(DiskError::NotRoot),
        }
    }

    /// Data folder of a peer, which must not run.
    pub(crate) fn place_of_a_disk(&self, name: &str) -> Result<PathBuf, DiskError> {
        let peer = catalog::find(name)?.peer();
        Self::can_mount()?;
        if self.running().iter().any(|running| running.name == name) {
            return Err(DiskError::Runs { peer: peer.name });
        }
        Ok(folder(self.data_of(peer))?)
    }

    /// Enlarges the disk, whether the peer runs or not.
    pub fn enlarge(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        let place = self.data_of(catalog::find(name)?.peer());
        if !is_mounted(&place) {
            let why = io::Error::other("it is no disk of its own");
            return Err(DiskError::Mount { path: place, why });
        }
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={bytes}")]).arg(&place);
        done(mount).map_err(|why| DiskError::Mount { path: place, why })
    }
}

/// Unmounts the disk, if there is one.
pub(crate) fn unmount(place: &Path) -> Result<(), FolderError> {
    if !is_mounted(place) {
        return Ok(());
    }
    let mut unmount = Command::new("umount");
    unmount.arg(place);
    done(unmount).map_err(FolderError::new("unmount", place))
}

/// A mounted folder is on another device than its parent.
pub(crate) fn is_mounted(place: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|about| about.dev()).ok();
    match (device(place), place.parent().and_then(device)) {
        (Some(own), Some(above)) => own != above,
        _ => false,
    }
}

pub(crate) fn done(mut command: Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().next().unwrap_or("it says nothing").to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A container may forbid mounts even to root; such tests are skipped.
    pub(crate) fn may_mount() -> bool {
        let place = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", SOURCE]).arg(place.path());
        rustix::process::geteuid().is_root() && done(mount).is_ok() && unmount(place.path()).is_ok()
    }

    #[test]
    fn full_disk_accepts_writes_again_after_enlarging() {
        if !may_mount() {
            println!("skipped: nothing can be mounted here");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let peers = Peers::open(folder.path()).expect("it is made");
        peers.confine("redis", 1 << 20).expect("it is mounted");
        let file = folder.path().join("redis/data/file");
        let full = fs::write(&file, vec![7; 2 << 20]).expect_err("it does not fit");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        peers.enlarge("redis", 4 << 20).expect("it can grow");
        fs::write(&file, vec![7; 2 << 20]).expect("it fits now");
        peers.wipe("redis").expect("it is taken away");
        assert!(!folder.path().join("redis/data").exists());
        assert!(peers.enlarge("redis", 1 << 20).is_err(), "there is none any more");
    }
}
