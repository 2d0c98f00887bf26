//! What processes use: CPU, memory and written bytes, as Linux counts them.

use std::fs;

use results::{Process, Usage};

/// A process to watch; a name may stand for several of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watched {
    pub name: String,
    pub pids: Vec<u32>,
}

impl Watched {
    /// This process.
    pub fn suite() -> Self {
        Self { name: "suite".into(), pids: vec![std::process::id()] }
    }
}

/// Looks at processes, time after time.
#[derive(Debug)]
pub(crate) struct Usages {
    watched: Vec<(Watched, Process)>,
}

impl Usages {
    pub(crate) fn of(watched: Vec<Watched>) -> Self {
        let with_process = |watched: Watched| {
            let process = Process { name: watched.name.clone(), usage: Vec::new() };
            (watched, process)
        };
        Self { watched: watched.into_iter().map(with_process).collect() }
    }

    pub(crate) fn look(&mut self, at: f64) {
        for (watched, process) in &mut self.watched {
            let mut usage = Usage { at, ..Usage::default() };
            for pid in &watched.pids {
                // One that has ended counts no more; its figures stay in what was noted before.
                let Some(one) = of_process(*pid) else { continue };
                usage.cpu += one.cpu;
                usage.resident_bytes += one.resident_bytes;
                usage.written_bytes += one.written_bytes;
            }
            process.usage.push(usage);
        }
    }

    pub(crate) fn end(self) -> Vec<Process> {
        self.watched.into_iter().map(|(_, process)| process).collect()
    }
}

fn of_process(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, so count from behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let pages = ticks(21)?;
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Some(Usage {
        at: 0.0,
        cpu: (ticks(11)? + ticks(12)?) as f64 / per_second,
        resident_bytes: pages * rustix::param::page_size() as u64,
        written_bytes: written.and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let mut usages = Usages::of(vec![Watched::suite()]);
        usages.look(0.0);
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
        usages.look(1.0);
        let suite = usages.end().remove(0);
        assert!(suite.resident_bytes_max() > 1 << 20);
        assert!(suite.cpu_seconds() >= 0.0 && suite.usage.len() == 2);
    }

    #[test]
    fn a_process_that_is_gone_uses_nothing() {
        let mut usages = Usages::of(vec![Watched { name: "gone".into(), pids: vec![u32::MAX] }]);
        usages.look(0.0);
        assert_eq!(usages.end()[0].usage[0].resident_bytes, 0);
    }
}
