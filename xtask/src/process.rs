//! What the kernel says about a process (`proc(5)`): CPU time, memory, open files. Read from
//! `/proc` so that Postroad and its peers are measured alike, from outside, with no agent.

use std::fs;

use crate::failure::{Context, Failure, Outcome};

/// CPU seconds that all threads of a process have used, its children excluded.
pub(crate) fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).context(|| format!("cannot read {path}"))?;
    // The name (field 2) may hold spaces and parentheses; what follows its last `)` is regular.
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    match (ticks(14), ticks(15)) {
        (Some(user), Some(system)) => {
            Ok((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
        }
        _ => Err(Failure::new(format!("{path} has no utime and stime"))),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// What is resident now.
    Resident,
    /// The most that ever was resident.
    Peak,
}

/// Resident memory of a process in bytes.
pub(crate) fn memory_bytes(pid: u32, memory: Memory) -> Outcome<u64> {
    let label = match memory {
        Memory::Resident => "VmRSS:",
        Memory::Peak => "VmHWM:",
    };
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).context(|| format!("cannot read {path}"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| Failure::new(format!("{path} has no {label}")))
}

/// How many file descriptors a process has open.
pub(crate) fn open_files(pid: u32) -> Outcome<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&path).context(|| format!("cannot read {path}"))?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_memory_and_files() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        let resident = memory_bytes(pid, Memory::Resident).unwrap();
        assert!(resident > 0 && resident <= memory_bytes(pid, Memory::Peak).unwrap());
        assert!(open_files(pid).unwrap() >= 3);
    }
}
