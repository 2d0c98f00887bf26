//! What this machine can do at best, measured in the same run as the brokers: a write and an
//! `fdatasync` on this disk, and a hop over loopback. A broker's figure means little without them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::{Context, Outcome};

/// Written over and over; larger than what a disk's small cache could hold of one size.
const FILE_BYTES: u64 = 256 << 20;
const WRITE_BYTES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 8 << 20];
const HOP_BYTES: usize = 1024;

/// Write and fdatasync, one after the other, of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Synced {
    pub(crate) write_bytes: usize,
    pub(crate) writes: usize,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) megabytes_per_second: f64,
}

/// The machine's own figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) disk: Vec<Synced>,
    /// Half of a 1 KB ping-pong between two threads.
    pub(crate) loopback_hop_us: f64,
}

/// Probes the disk that `folder` lies on and loopback; each size of write is tried for so long.
pub(crate) fn machine(folder: &Path, each: Duration) -> Outcome<Machine> {
    let disk = disk(folder, each).context(|| "cannot probe the disk")?;
    let loopback_hop_us = loopback_hop_us(each).context(|| "cannot probe loopback")?;
    Ok(Machine { disk, loopback_hop_us })
}

/// As the journal does: into blocks that are allocated and have been written before, so that a
/// sync carries data and no metadata.
fn disk(folder: &Path, each: Duration) -> io::Result<Vec<Synced>> {
    let path = folder.join("probe");
    let file = File::create(&path)?;
    let chunk = vec![0x5A; 8 << 20];
    for position in (0..FILE_BYTES).step_by(chunk.len()) {
        file.write_all_at(&chunk, position)?;
    }
    file.sync_all()?;
    let probed: io::Result<Vec<Synced>> =
        WRITE_BYTES.iter().map(|&bytes| synced(&file, &chunk[..bytes], each)).collect();
    fs::remove_file(&path)?;
    probed
}

fn synced(file: &File, chunk: &[u8], each: Duration) -> io::Result<Synced> {
    let mut times = Vec::new();
    let mut position = 0;
    let begun = Instant::now();
    while begun.elapsed() < each || times.len() < 10 {
        let write = Instant::now();
        file.write_all_at(chunk, position)?;
        file.sync_data()?;
        times.push(write.elapsed());
        position = (position + chunk.len() as u64) % FILE_BYTES;
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
    while begun.elapsed() < each || times.len() < 10 {
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
pub(crate) fn quantile_us(sorted: &[Duration], quantile: f64) -> f64 {
    let index = ((sorted.len() as f64 * quantile).ceil() as usize).max(1) - 1;
    sorted[index.min(sorted.len() - 1)].as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(quantile_us(&times, 0.5).round(), 50.0);
        assert_eq!(quantile_us(&times, 0.99).round(), 99.0);
        assert_eq!(quantile_us(&times[..1], 0.99).round(), 1.0);
    }
}
