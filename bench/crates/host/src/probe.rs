//! Best case of this machine, measured in the same run as the brokers: a write and an `fdatasync`
//! on this disk, and a hop over loopback. A broker's figures are meaningless without them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

/// Larger than a small cache of a disk.
const FILE_BYTES: u64 = 256 << 20;
const WRITE_BYTES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 8 << 20];
const HOP_BYTES: usize = 1024;
/// Fewer samples give no meaningful quantile, however slow the disk is.
const TIMES_MIN: usize = 10;

#[derive(Debug, Error)]
#[error("cannot probe {what}: {why}")]
pub struct ProbeError {
    what: &'static str,
    why: io::Error,
}

impl ProbeError {
    fn of(what: &'static str) -> impl FnOnce(io::Error) -> ProbeError {
        move |why| ProbeError { what, why }
    }
}

/// Sequential writes of one size, each with an `fdatasync`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Synced {
    pub write_bytes: usize,
    pub writes: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    pub megabytes_per_second: f64,
}

/// The machine's own figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub disk: Vec<Synced>,
    /// Half of a 1 KB ping-pong between two threads.
    pub loopback_hop_us: f64,
}

/// Probes loopback and the disk of `folder`; each write size is tried for `each`.
pub fn machine(folder: &Path, each: Duration) -> Result<Machine, ProbeError> {
    let disk = disk(folder, FILE_BYTES, &WRITE_BYTES, each)?;
    let loopback_hop_us = loopback_hop_us(each).map_err(ProbeError::of("loopback"))?;
    Ok(Machine { disk, loopback_hop_us })
}

/// Writes each size repeatedly into a file of `file_bytes` in `folder`, for `each`.
///
/// Like a journal, it writes into blocks that are allocated and have been written before, so that a
/// sync carries data and no metadata.
pub fn disk(
    folder: &Path,
    file_bytes: u64,
    write_bytes: &[usize],
    each: Duration,
) -> Result<Vec<Synced>, ProbeError> {
    // Two processes may probe the same disk concurrently.
    let path = folder.join(format!("sync-probe-{}", std::process::id()));
    let probed = probe(&path, file_bytes, write_bytes, each);
    // After a failed probe the file is removed as well, and the first error is returned.
    let removed = fs::remove_file(&path);
    probed.and_then(|probed| removed.map(|()| probed)).map_err(ProbeError::of("the disk"))
}

fn probe(
    path: &Path,
    file_bytes: u64,
    write_bytes: &[usize],
    each: Duration,
) -> io::Result<Vec<Synced>> {
    let file = File::create(path)?;
    let largest = write_bytes.iter().copied().max().unwrap_or(0).max(1 << 20);
    let chunk = vec![0x5A; largest];
    for position in (0..file_bytes).step_by(chunk.len()) {
        file.write_all_at(&chunk, position)?;
    }
    file.sync_all()?;
    write_bytes.iter().map(|&bytes| synced(&file, file_bytes, &chunk[..bytes], each)).collect()
}

fn synced(file: &File, file_bytes: u64, chunk: &[u8], each: Duration) -> io::Result<Synced> {
    let mut times = Vec::new();
    let mut position = 0;
    let begun = Instant::now();
    while begun.elapsed() < each || times.len() < TIMES_MIN {
        let write = Instant::now();
        file.write_all_at(chunk, position)?;
        file.sync_data()?;
        times.push(write.elapsed());
        position = (position + chunk.len() as u64) % file_bytes;
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    Ok(Synced {
        write_bytes: chunk.len(),
        writes: times.len(),
        p50_us: quantile_us(&times, 0.5),
        p99_us: quantile_us(&times, 0.99),
        megabytes_per_second: (times.len() * chunk.len()) as f64 / 1e6 / seconds,
    })
}

fn loopback_hop_us(each: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut message = [0; HOP_BYTES];
        while far.read_exact(&mut message).and_then(|()| far.write_all(&message)).is_ok() {}
    });
    let mut times = Vec::new();
    let mut message = [0; HOP_BYTES];
    let begun = Instant::now();
    while begun.elapsed() < each || times.len() < TIMES_MIN {
        let ping = Instant::now();
        near.write_all(&message)?;
        near.read_exact(&mut message)?;
        times.push(ping.elapsed());
    }
    drop(near);
    echo.join().expect("the echo does not panic");
    times.sort_unstable();
    Ok(quantile_us(&times, 0.5) / 2.0)
}

/// The quantile of sorted times.
pub fn quantile_us(sorted: &[Duration], quantile: f64) -> f64 {
    let index = ((sorted.len() as f64 * quantile).ceil() as usize).max(1) - 1;
    sorted[index.min(sorted.len() - 1)].as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_use_the_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(quantile_us(&times, 0.5).round(), 50.0);
        assert_eq!(quantile_us(&times, 0.99).round(), 99.0);
        assert_eq!(quantile_us(&times[..1], 0.99).round(), 1.0);
    }

    #[test]
    fn probe_leaves_no_file_on_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let probed = disk(folder.path(), 1 << 20, &[4 << 10, 16 << 10], Duration::ZERO).unwrap();
        assert_eq!(probed.len(), 2);
        assert!(probed.iter().all(|size| size.writes >= TIMES_MIN && size.p99_us >= size.p50_us));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let failure = disk(&folder.path().join("none"), 1 << 20, &[4096], Duration::ZERO);
        assert!(failure.unwrap_err().to_string().starts_with("cannot probe the disk: "));
    }
}
