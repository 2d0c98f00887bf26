//! Power failure of all nodes of a peer and their disk at one instant.
//!
//! The data lies on its own file system (ext4 in a file, by a loop device). To cut the power, all
//! processes are suspended. Then the file system is shut down without any further writes, even of
//! its journal (`FS_IOC_SHUTDOWN`, which file systems provide for such tests). So nothing is
//! confirmed after the cut, and unwritten data is gone when the file system is mounted again. That
//! is all data that was not synced, except for the kernel's own writeback, which starts after half
//! a minute.
//!
//! The disk keeps everything written to it. Losses of a server that bypasses the page cache and
//! never flushes the disk's own cache cannot be detected.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::disk::{done, is_mounted, unmount};
use crate::errors::{DiskError, FolderError};
use crate::{Identity, Peers, catalog};

/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: not even the journal. There is no safe call for this in Rust, and
/// Perl is part of every system that the packages of peers come from.
const GO_DOWN: &str = r#"
use Fcntl;
sysopen(my $disk, $ARGV[0], O_RDONLY) or die "$!\n";
my $without_the_journal = pack("L", 2);
ioctl($disk, 0x8004587d, $without_the_journal) or die "$!\n";
"#;

impl Peers {
    /// Mounts a disk of at most `bytes` bytes whose power can be [cut](Self::cut_power) for the
    /// data of a peer, which must have none and not run. [`wipe`](Self::wipe) removes the disk, and
    /// the data with it.
    pub fn put_on_own_disk(&self, name: &str, bytes: u64) -> Result<(), DiskError> {
        let place = self.place_of_a_disk(name)?;
        let image = image_of(&place);
        let created = File::create(&image).and_then(|file| file.set_len(bytes));
        created.map_err(FolderError::new("create", &image))?;
        let mut format = Command::new("mkfs.ext4");
        format.args(["-q", "-F"]).arg(&image);
        done(format).map_err(|why| DiskError::Format { path: image, why })?;
        mount(&place)
    }

    /// Cuts the power of all nodes and of their disk, and restores the power of the disk, which
    /// then has only the data that it kept.
    pub fn cut_power(&self, name: &str) -> Result<(), DiskError> {
        let peer = catalog::find(name)?.peer();
        let place = self.data_of(peer);
        if !image_of(&place).exists() || !is_mounted(&place) {
            let why = std::io::Error::other("it is on no disk of its own");
            return Err(DiskError::Cut { path: place, why });
        }
        let running = self.running().into_iter().find(|running| running.name == name);
        let processes = running.map(|running| running.processes).unwrap_or_default();
        suspend_all(processes.iter().map(|process| &process.identity));
        let mut go_down = Command::new("perl");
        go_down.args(["-e", GO_DOWN]).arg(&place);
        let went_down = done(go_down);
        // No process may continue, whether the shutdown succeeded or not.
        self.end_all(name)?;
        went_down.map_err(|why| DiskError::Cut { path: place.clone(), why })?;
        unmount(&place)?;
        mount(&place)
    }
}

/// The disk's file, beside the folder that it is mounted on.
pub(crate) fn image_of(place: &Path) -> PathBuf {
    place.with_extension("disk")
}

fn mount(place: &Path) -> Result<(), DiskError> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "ext4", "-o", "loop"]).arg(image_of(place)).arg(place);
    done(mount).map_err(|why| DiskError::Mount { path: place.to_path_buf(), why })
}

/// Suspends processes and all their descendants: a suspended process starts no more children.
fn suspend_all<'a>(roots: impl Iterator<Item = &'a Identity> + Clone) {
    let mut stopped: Vec<Identity> = Vec::new();
    loop {
        let all = roots.clone().flat_map(Identity::tree);
        let new: Vec<Identity> = all.filter(|member| !stopped.contains(member)).collect();
        if new.is_empty() {
            return;
        }
        for member in &new {
            // It may have ended by itself meanwhile.
            member.signal(Signal::STOP);
        }
        stopped.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::process::{Child, Command};

    use super::*;
    use crate::disk::tests::may_mount;

    /// A file system in a file, for which a container needs more rights than for one in memory.
    fn on_own_disk(folder: &Path) -> Option<Peers> {
        let peers = Peers::open(folder).expect("it is made");
        if !may_mount() {
            println!("skipped: nothing can be mounted here");
            return None;
        }
        match peers.put_on_own_disk("redis", 64 << 20) {
            Ok(()) => Some(peers),
            Err(why) => {
                println!("skipped: {why}");
                peers.wipe("redis").expect("nothing is left");
                None
            }
        }
    }

    #[test]
    fn only_synced_data_survives_a_power_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(peers) = on_own_disk(folder.path()) else { return };
        let data = folder.path().join("redis/data");
        let write = |name: &str| {
            let mut file = File::create(data.join(name)).expect("it is made");
            file.write_all(&[7; 100_000]).expect("there is room");
            file
        };
        write("synced").sync_all().expect("it is synced");
        File::open(&data).and_then(|folder| folder.sync_all()).expect("its name is, too");
        let unsynced = write("unsynced");
        assert_eq!(fs::read(data.join("unsynced")).expect("it is there").len(), 100_000);
        drop(unsynced);
        peers.cut_power("redis").expect("it is cut");
        assert_eq!(fs::read(data.join("synced")).expect("it is there"), [7; 100_000]);
        let left = fs::read(data.join("unsynced")).map_or(0, |left| left.len());
        assert_eq!(left, 0, "nobody asked for it to be kept");
        peers.wipe("redis").expect("it is taken away");
        assert!(!image_of(&data).exists() && !data.exists());
    }

    #[test]
    fn power_is_not_cut_without_an_own_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let peers = Peers::open(folder.path()).expect("it is made");
        fs::create_dir_all(folder.path().join("redis/data")).expect("it is made");
        let refused = peers.cut_power("redis").expect_err("the machine's own disk is there");
        assert!(refused.to_string().contains("no disk of its own"), "{refused}");
    }

    #[test]
    fn suspended_processes_do_not_run() {
        let mut shell: Child = Command::new("sh")
            .args(["-c", "while true; do sleep 0.01; done"])
            .spawn()
            .expect("there is a shell");
        let identity = Identity::of(shell.id()).expect("it runs");
        suspend_all([&identity].into_iter());
        let state = || {
            let stat =
                fs::read_to_string(format!("/proc/{}/stat", identity.pid)).expect("it is there");
            stat.rsplit_once(") ").expect("regular").1.chars().next()
        };
        assert_eq!(state(), Some('T'));
        // A suspended process without a parent would stay for ever.
        for member in identity.tree() {
            member.signal(Signal::KILL);
        }
        shell.wait().expect("it was killed");
    }
}
