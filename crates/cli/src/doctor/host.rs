//! The machine: its kernel and limits, and the disk with the data.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use world::Instant;

/// Kernel settings that support needs.
const KERNEL: [&str; 10] = [
    "/proc/sys/fs/file-max",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/swappiness",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];
/// Limits of the control group of this process.
const CGROUP: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"];
const PROBE: &str = ".doctor-probe";
/// Number of synced writes whose time is measured.
const PROBES: usize = 32;
const PROBE_BYTES: usize = 4 << 10;
/// Maximum depth of the search within the data directory.
const DEPTH_MAX: usize = 3;

#[derive(Serialize, Default)]
pub(super) struct Kernel {
    pub(super) version: Option<String>,
    pub(super) cores: Option<usize>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_available_bytes: Option<u64>,
    pub(super) swap_bytes: Option<u64>,
    /// Limit of this command, which equals that of a shell of the same user.
    pub(super) open_files_max: Option<u64>,
    pub(super) settings: BTreeMap<&'static str, String>,
}

#[derive(Serialize, Default)]
pub(super) struct Disk {
    pub(super) data: PathBuf,
    /// Reason why it could not be inspected.
    pub(super) unreadable: Option<String>,
    pub(super) size_bytes: u64,
    pub(super) free_bytes: u64,
    /// Device, type and options of the mount.
    pub(super) device: Option<String>,
    pub(super) file_system: Option<String>,
    pub(super) options: Option<String>,
    /// Permissions of others on the directory, as bits.
    pub(super) mode: u32,
    pub(super) files: u64,
    pub(super) files_bytes: u64,
    /// Durations of syncs of 4 KiB, sorted; none if the directory is not writable.
    pub(super) sync_micros: Vec<u64>,
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next().unwrap_or_default().trim().to_owned())
}

pub(super) fn kernel() -> Kernel {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    let settings = KERNEL.iter().chain(&CGROUP);
    Kernel {
        version: first_line("/proc/version"),
        cores: std::thread::available_parallelism().ok().map(usize::from),
        memory_bytes: kilobytes("MemTotal:"),
        memory_available_bytes: kilobytes("MemAvailable:"),
        swap_bytes: kilobytes("SwapTotal:"),
        open_files_max: getrlimit(Resource::Nofile).current,
        settings: settings.filter_map(|path| Some((*path, first_line(path)?))).collect(),
    }
}

pub(super) fn disk(data: &Path) -> Disk {
    let mut disk = Disk { data: data.to_owned(), ..Disk::default() };
    let looked = (|| {
        let place = fs::canonicalize(data)?;
        let space = statvfs(&place)?;
        disk.size_bytes = space.f_blocks.saturating_mul(space.f_frsize);
        disk.free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        disk.mode = fs::metadata(&place)?.mode() & 0o777;
        if let Some([device, file_system, options]) = mount(&place) {
            disk.device = Some(device);
            disk.file_system = Some(file_system);
            disk.options = Some(options);
        }
        (disk.files, disk.files_bytes) = count(&place, DEPTH_MAX);
        disk.sync_micros = syncs(&place).unwrap_or_default();
        Ok::<_, std::io::Error>(())
    })();
    disk.unreadable = looked.err().map(|error| error.to_string());
    disk
}

/// The mount of a path: device, type, options.
fn mount(place: &Path) -> Option<[String; 3]> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, at) = (words.next()?, words.next()?);
        let (file_system, options) = (words.next()?, words.next()?);
        let holds = place.starts_with(at);
        holds.then(|| (at.len(), [device, file_system, options].map(str::to_owned)))
    });
    // The last one of the longest mount points, since it covers the earlier ones.
    found.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

fn count(folder: &Path, depth: usize) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && depth > 0 {
            let (more, more_bytes) = count(&entry.path(), depth - 1);
            (files, bytes) = (files + more, bytes + more_bytes);
        } else if metadata.is_file() {
            (files, bytes) = (files + 1, bytes + metadata.len());
        }
    }
    (files, bytes)
}

/// Measures how long some writes take to become durable.
fn syncs(folder: &Path) -> std::io::Result<Vec<u64>> {
    let path = folder.join(PROBE);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    let written = (0..PROBES).map(|_| {
        let begun = Instant::now();
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_data()?;
        Ok(micros(begun.elapsed()))
    });
    let written: std::io::Result<Vec<u64>> = written.collect();
    fs::remove_file(&path)?;
    let mut written = written?;
    written.sort_unstable();
    Ok(written)
}

fn micros(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}
