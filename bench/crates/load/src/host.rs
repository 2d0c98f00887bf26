//! The machine of a run, as far as its figures depend on it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ::host::probe;
use results::{Host, SyncDelay};

/// Describes this machine. `data`: the folder of the brokers' data, on the disk to be probed.
pub fn describe(data: &Path) -> Host {
    Host {
        disk: mount_of(data).unwrap_or_default(),
        sync_4k: sync_delay(data, 4 << 10),
        sync_128k: sync_delay(data, 128 << 10),
        ..machine()
    }
}

/// Describes this machine without a disk, for one that keeps no broker's data.
pub fn machine() -> Host {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        found
            .map(|rest| rest.trim_start_matches([':', ' ', '\t', '=']).trim_matches('"').to_owned())
    };
    let kilobytes = line("/proc/meminfo", "MemTotal").and_then(|text| {
        text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok())
    });
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Host {
        cpu: line("/proc/cpuinfo", "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kilobytes.unwrap_or(0) * 1024,
        kernel: read("/proc/sys/kernel/osrelease"),
        system: line("/etc/os-release", "PRETTY_NAME").unwrap_or_default(),
        ..Host::default()
    }
}

/// File system and device of the mount that the folder is in.
fn mount_of(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
        folder.starts_with(place).then(|| (place.len(), format!("{kind} on {device}")))
    });
    fields.max().map(|(_, mount)| mount)
}

const PROBE_TIME: Duration = Duration::from_millis(500);
const PROBE_FILE_BYTES: u64 = 16 << 20;

fn sync_delay(folder: &Path, bytes: usize) -> Option<SyncDelay> {
    fs::create_dir_all(folder).ok()?;
    let probed = probe::disk(folder, PROBE_FILE_BYTES, &[bytes], PROBE_TIME).ok()?;
    let synced = probed.first()?;
    Some(SyncDelay { p50: synced.p50_us.round() as u64, p99: synced.p99_us.round() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let host = describe(&std::env::temp_dir());
        assert!(host.cores > 0 && host.memory_bytes > 0 && !host.kernel.is_empty());
        assert!(host.sync_4k.is_some_and(|delay| delay.p99 >= delay.p50));
        assert!(!host.disk.is_empty());
    }
}
