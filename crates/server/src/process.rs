//! Resource usage of this process, for metrics and for `postroad top`.

use std::time::Duration;

use gateway_http::ProcessSeen;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Files of Linux. On other systems they are missing, and their values are omitted.
const MEMORY: &str = "/proc/self/statm";
const OPEN_FILES: &str = "/proc/self/fd";

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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_reports_every_value() {
        let seen = seen();
        assert!(seen.cpu_seconds > 0.0 && seen.resident_bytes > Some(1 << 20), "{seen:?}");
        assert!(seen.open_files > Some(2) && seen.open_files <= seen.open_files_max, "{seen:?}");
    }
}
