//! Setting of a turn: a server that starts without data, is measured from outside, and stopped. All
//! servers go through the same function, so that none is favored.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::process::{self, Memory};
use peers::{Peers, Progress, Running, Tier};
use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// Common parts of all turns.
pub(crate) struct Stage {
    pub(crate) peers: Peers,
    pub(crate) progress: &'static dyn Progress,
    /// A smoke test, whose figures need not be meaningful.
    pub(crate) quick: bool,
}

/// The server of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    /// Its name in `peers`.
    pub(crate) broker: &'static str,
    pub(crate) tier: Tier,
    pub(crate) protocol: &'static str,
}

/// The running server of a turn.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    pub(crate) address: SocketAddr,
}

impl Server {
    fn of(running: Running, protocol: &'static str) -> Outcome<Server> {
        let address = running.addresses(protocol).first().and_then(|address| address.parse().ok());
        match address {
            Some(address) => Ok(Server { running, address }),
            None => Err(Failure::Silent { broker: running.name, protocol }),
        }
    }

    pub(crate) fn cpu_clock(&self) -> Outcome<CpuClock> {
        CpuClock::start(self.running.pids())
    }

    /// Resident memory now, including child processes and helpers.
    pub(crate) fn resident_mb(&self) -> Outcome<f64> {
        self.megabytes(Memory::Resident)
    }

    fn megabytes(&self, memory: Memory) -> Outcome<f64> {
        let mut bytes = 0;
        for pid in self.running.pids() {
            bytes += process::tree_memory_bytes(pid, memory)?;
        }
        Ok(bytes as f64 / f64::from(1 << 20))
    }
}

/// Resident memory before any load, at its peak, and two seconds after the load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Footprint {
    pub(crate) idle_mb: f64,
    pub(crate) peak_mb: f64,
    pub(crate) after_mb: f64,
}

/// Resources that the server used during the measurement.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Used {
    pub(crate) cpu_seconds: f64,
    pub(crate) cpu_seconds_per_million: f64,
}

impl Used {
    /// CPU usage for this many records.
    pub(crate) fn of(cpu_seconds: f64, records: f64) -> Used {
        Used { cpu_seconds, cpu_seconds_per_million: cpu_seconds * 1e6 / records }
    }
}

const REST: Duration = Duration::from_secs(2);

impl Stage {
    /// Contains everything that a turn writes.
    pub(crate) fn folder(&self) -> &Path {
        self.peers.data_dir()
    }

    /// Runs one turn from an empty folder to a stopped server.
    pub(crate) fn turn<F>(
        &self,
        cast: Cast,
        load: impl FnOnce(&Server) -> Outcome<F>,
    ) -> Outcome<(F, Footprint)> {
        // An interrupted turn may have left a server or data.
        self.peers.clear(cast.broker)?;
        let running = self.peers.start(cast.broker, cast.tier, 1, self.progress)?;
        let ended = Ended { peers: &self.peers, broker: cast.broker };
        let server = Server::of(running, cast.protocol)?;
        std::thread::sleep(REST);
        let idle_mb = server.resident_mb()?;
        let figures = load(&server)?;
        std::thread::sleep(REST);
        let peak_mb = server.megabytes(Memory::Peak)?;
        let after_mb = server.resident_mb()?;
        self.peers.stop(cast.broker)?;
        drop(ended);
        self.peers.clear(cast.broker)?;
        Ok((figures, Footprint { idle_mb, peak_mb, after_mb }))
    }
}

/// Stops the server when a turn fails. Its log is kept for inspection.
struct Ended<'a> {
    peers: &'a Peers,
    broker: &'static str,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        // After a success it is already stopped; otherwise the turn's error is reported.
        let _ = self.peers.stop(self.broker);
    }
}

/// CPU time of processes over an interval, including their child processes.
#[derive(Debug)]
pub(crate) struct CpuClock {
    pids: Vec<u32>,
    seconds_before: f64,
}

impl CpuClock {
    pub(crate) fn start(pids: Vec<u32>) -> Outcome<CpuClock> {
        Ok(CpuClock { seconds_before: cpu_seconds(&pids)?, pids })
    }

    pub(crate) fn seconds(&self) -> Outcome<f64> {
        Ok(cpu_seconds(&self.pids)? - self.seconds_before)
    }

    pub(crate) fn stop(self, records: f64) -> Outcome<Used> {
        Ok(Used::of(self.seconds()?, records))
    }
}

fn cpu_seconds(pids: &[u32]) -> Outcome<f64> {
    let mut seconds = 0.0;
    for &pid in pids {
        seconds += process::tree_cpu_seconds(pid)?;
    }
    Ok(seconds)
}

/// Bytes written to the disk of a folder over an interval, by any process: the file system's own
/// writes are part of a message's cost. Only the server should write there meanwhile.
#[derive(Debug)]
pub(crate) struct DiskClock {
    stat: PathBuf,
    bytes_before: u64,
}

impl DiskClock {
    /// Returns `None` if the folder is on no block device, or the kernel does not report its
    /// writes.
    pub(crate) fn start(folder: &Path) -> Option<DiskClock> {
        let device = fs::metadata(folder).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let bytes_before = written_bytes(&stat)?;
        Some(DiskClock { stat, bytes_before })
    }

    pub(crate) fn bytes(self) -> Option<f64> {
        Some((written_bytes(&self.stat)? - self.bytes_before) as f64)
    }
}

/// The seventh number is sectors of 512 bytes, whatever the disk's own size (Linux,
/// `Documentation/block/stat.rst`).
fn written_bytes(stat: &Path) -> Option<u64> {
    let text = fs::read_to_string(stat).ok()?;
    text.split_whitespace().nth(6)?.parse::<u64>().ok()?.checked_mul(512)
}
