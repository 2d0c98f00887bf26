//! The process that has locked a directory, for error messages and for tools that read a running node's files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::real::LOCK;

/// A file of Linux. Other systems do not have it, and every directory appears unlocked there.
const LOCKS: &str = "/proc/locks";

/// A process that has locked a directory ([`Disk::lock`](super::Disk::lock)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHolder {
    /// `None`: the system does not report it.
    pub pid: Option<u32>,
}

/// The process that has locked a directory. The check neither locks nor creates a file.
pub fn lock_holder(dir: &Path) -> Option<LockHolder> {
    let file = std::fs::metadata(dir.join(LOCK)).ok()?;
    let text = std::fs::read_to_string(LOCKS).ok()?;
    text.lines().find_map(|line| holder(line, file.ino()))
}

/// Reads a line such as `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`. The device is not compared, because file
/// systems such as btrfs and overlayfs show another number there.
fn holder(line: &str, inode: u64) -> Option<LockHolder> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, pid, place, ..] = words[..] else { return None };
    let found: u64 = place.rsplit(':').next()?.parse().ok()?;
    // A process of another name space has no number here.
    let pid = pid.parse().ok().filter(|pid| *pid > 0);
    (found == inode).then_some(LockHolder { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_of_a_lock_is_found_by_the_file() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF";
        assert_eq!(holder(line, 1234), Some(LockHolder { pid: Some(4711) }));
        assert_eq!(holder(line, 12), None);
        assert_eq!(holder("3: POSIX  ADVISORY  WRITE 4711 08:01:1234 0 EOF", 1234), None);
        assert_eq!(
            holder("3: FLOCK ADVISORY WRITE -1 08:01:1234 0 EOF", 1234),
            Some(LockHolder { pid: None })
        );
        assert_eq!(holder("", 1234), None);
    }
}
