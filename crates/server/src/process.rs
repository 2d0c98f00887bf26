//! Resource usage of this process, for metrics and for `postroad top`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use gateway_http::ProcessSeen;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files of Linux. On other systems they are missing, and their values are omitted.
const MEMORY: &str = "/proc/self/statm";
const OPEN_FILES: &str = "/proc/self/fd";
const LOCKS: &str = "/proc/locks";

/// Without the open files, which may be many to count.
pub(crate) fn at_a_glance() -> overview::Process {
    overview::Process { cpu_seconds: cpu_seconds(), resident_bytes: resident_bytes() }
}

fn cpu_seconds() -> f64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32).as_secs_f64()
}

pub(crate) fn seen() -> ProcessSeen {
    ProcessSeen {
        cpu_seconds: cpu_seconds(),
        resident_bytes: resident_bytes(),
        open_files: std::fs::read_dir(OPEN_FILES).ok().map(|files| files.count() as u64),
        open_files_max: getrlimit(Resource::Nofile).current,
    }
}

/// The second number is that of resident pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string(MEMORY).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A process that has locked a journal's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockHolder {
    /// `None`: the system does not report it.
    pub(crate) pid: Option<u32>,
}

/// The process that has locked a journal's directory. The check neither locks nor creates a file.
pub(crate) fn holder_of_lock(dir: &Path) -> Option<LockHolder> {
    let file = std::fs::metadata(dir.join("LOCK")).ok()?;
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

#[cfg(all(test, target_os = "linux"))]
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

    #[test]
    fn linux_reports_every_value() {
        let seen = seen();
        assert!(seen.cpu_seconds > 0.0 && seen.resident_bytes > Some(1 << 20), "{seen:?}");
        assert!(seen.open_files > Some(2) && seen.open_files <= seen.open_files_max, "{seen:?}");
    }
}
