//! The machine that a run is made on, as far as its figures depend on it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use results::{Host, SyncDelay};

/// What it is. `data`: the folder in which the brokers keep their data, on the disk to be probed.
pub fn describe(data: &Path) -> Host {
    Host {
        disk: mount_of(data).unwrap_or_default(),
        sync_4k: sync_delay(data, 4 << 10).ok(),
        sync_128k: sync_delay(data, 128 << 10).ok(),
        ..machine()
    }
}

/// The same without a disk, for a machine that keeps no broker's data.
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

/// Into blocks that are allocated and have been written, so that a sync carries data only.
fn sync_delay(folder: &Path, bytes: usize) -> io::Result<SyncDelay> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("sync-probe-{}", std::process::id()));
    let probed = probe(&path, bytes);
    let removed = fs::remove_file(&path);
    let delay = probed?;
    removed.map(|()| delay)
}

fn probe(path: &Path, bytes: usize) -> io::Result<SyncDelay> {
    let file = File::create(path)?;
    let chunk = vec![0x5A; bytes];
    for at in (0..PROBE_FILE_BYTES).step_by(bytes) {
        file.write_all_at(&chunk, at)?;
    }
    file.sync_all()?;
    let (mut times, mut at, begun) = (Vec::new(), 0, Instant::now());
    while begun.elapsed() < PROBE_TIME || times.len() < 10 {
        let one = Instant::now();
        file.write_all_at(&chunk, at)?;
        file.sync_data()?;
        times.push(one.elapsed().as_micros() as u64);
        at = (at + bytes as u64) % PROBE_FILE_BYTES;
    }
    times.sort_unstable();
    let share = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    Ok(SyncDelay { p50: share(50), p99: share(99) })
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
