//! Where a turn takes place: a server started fresh on an empty folder, measured from outside, and
//! stopped. All servers go through the same function, so that none is treated better.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::failure::{Context, Outcome};
use crate::process::{self, Memory};
use crate::server::{Postroad, Server, free_port};

/// What every turn needs.
#[derive(Debug)]
pub(super) struct Stage {
    /// The server's binary; empty if Postroad takes no part.
    pub(super) postroad: PathBuf,
    /// Below it everything that a turn writes.
    pub(super) folder: PathBuf,
    /// Further arguments of `postroad serve`.
    pub(super) arguments: Vec<String>,
    /// Does everything run? The figures need not mean anything.
    pub(super) quick: bool,
}

/// Resident memory before any load, at its peak, and two seconds after the load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Footprint {
    pub(super) idle_mb: f64,
    pub(super) peak_mb: f64,
    pub(super) after_mb: f64,
}

/// What the server used while it was measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Used {
    pub(super) cpu_seconds: f64,
    pub(super) cpu_seconds_per_million: f64,
}

impl Used {
    /// For so many records.
    pub(super) fn of(cpu_seconds: f64, records: f64) -> Used {
        Used { cpu_seconds, cpu_seconds_per_million: cpu_seconds * 1e6 / records }
    }
}

const STARTS_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_secs(2);

impl Stage {
    /// Runs one turn from an empty folder to a stopped server.
    pub(super) fn turn<F>(
        &self,
        start: impl FnOnce(&Path) -> Outcome<Server>,
        load: impl FnOnce(&Server) -> Outcome<F>,
    ) -> Outcome<(F, Footprint)> {
        let folder = self.empty_folder()?;
        let server = start(&folder)?;
        std::thread::sleep(REST);
        let idle_mb = resident_mb(&server)?;
        let figures = load(&server)?;
        std::thread::sleep(REST);
        let peak_mb = megabytes(&server, Memory::Peak)?;
        let after_mb = resident_mb(&server)?;
        server.stop(STOPS_WITHIN)?;
        self.empty_folder()?;
        Ok((figures, Footprint { idle_mb, peak_mb, after_mb }))
    }

    fn empty_folder(&self) -> Outcome<PathBuf> {
        let folder = self.folder.join("turn");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Starts Postroad, its data in `folder`, with these arguments and those of the user.
    pub(super) fn start_postroad(&self, folder: &Path, arguments: &[String]) -> Outcome<Server> {
        let postroad = Postroad {
            binary: self.postroad.clone(),
            data: folder.join("data"),
            log: folder.join("server.log"),
            port: free_port()?,
            arguments: [arguments, &self.arguments].concat(),
        };
        Ok(postroad.start(STARTS_WITHIN)?.0)
    }
}

/// The CPU that a server used over a stretch, its child processes included.
#[derive(Debug)]
pub(super) struct CpuClock {
    pid: u32,
    seconds_before: f64,
}

impl CpuClock {
    pub(super) fn start(pid: u32) -> Outcome<CpuClock> {
        Ok(CpuClock { pid, seconds_before: process::tree_cpu_seconds(pid)? })
    }

    pub(super) fn seconds(&self) -> Outcome<f64> {
        Ok(process::tree_cpu_seconds(self.pid)? - self.seconds_before)
    }

    pub(super) fn stop(self, records: f64) -> Outcome<Used> {
        Ok(Used::of(self.seconds()?, records))
    }
}

/// What was written to the disk below a folder over a stretch, by whomever: the file system's own
/// writes are part of what a message costs. Only the server should write there meanwhile.
#[derive(Debug)]
pub(super) struct DiskClock {
    stat: PathBuf,
    bytes_before: u64,
}

impl DiskClock {
    /// `None` where the folder is on no block device, or the kernel keeps no account of it.
    pub(super) fn start(folder: &Path) -> Option<DiskClock> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let bytes_before = written_bytes(&stat)?;
        Some(DiskClock { stat, bytes_before })
    }

    pub(super) fn bytes(self) -> Option<f64> {
        Some((written_bytes(&self.stat)? - self.bytes_before) as f64)
    }
}

/// The seventh number is sectors of 512 bytes, whatever the disk's are (Linux,
/// `Documentation/block/stat.rst`).
fn written_bytes(stat: &Path) -> Option<u64> {
    let text = fs::read_to_string(stat).ok()?;
    text.split_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
}

/// What a server has in memory now, its child processes included.
pub(super) fn resident_mb(server: &Server) -> Outcome<f64> {
    megabytes(server, Memory::Resident)
}

fn megabytes(server: &Server, memory: Memory) -> Outcome<f64> {
    Ok(process::tree_memory_bytes(server.pid(), memory)? as f64 / f64::from(1 << 20))
}
