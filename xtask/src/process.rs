//! What the kernel says about a process (`proc(5)`): CPU time, memory, open files. Read from
//! `/proc` so that Postroad and its peers are measured alike, from outside, with no agent.

use std::fs;

use crate::failure::{Context, Failure, Outcome};

/// `/proc/PID/stat` (`proc_pid_stat(5)`), its fields by the numbers that the manual gives them.
#[derive(Debug)]
struct Stat {
    path: String,
    text: String,
}

impl Stat {
    fn read(pid: u32) -> Outcome<Stat> {
        let path = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&path).context(|| format!("cannot read {path}"))?;
        Ok(Stat { path, text })
    }

    fn field(&self, number: usize) -> Outcome<u64> {
        // The name (field 2) may hold spaces and parentheses; what follows its last `)` is regular.
        let after_name = self.text.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
        let field = after_name.split_whitespace().nth(number - 3);
        field
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Failure::new(format!("{} has no field {number}", self.path)))
    }

    /// The sum of some fields that are times.
    fn seconds(&self, fields: &[usize]) -> Outcome<f64> {
        let ticks: Outcome<u64> = fields.iter().map(|&field| self.field(field)).sum();
        Ok(ticks? as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

const PARENT: usize = 4;
const USER_AND_SYSTEM: [usize; 2] = [14, 15];
/// The same of the children that have ended and were waited for.
const WITH_ENDED_CHILDREN: [usize; 4] = [14, 15, 16, 17];

/// CPU seconds that all threads of a process have used, its children excluded.
pub(crate) fn cpu_seconds(pid: u32) -> Outcome<f64> {
    Stat::read(pid)?.seconds(&USER_AND_SYSTEM)
}

/// A process and all that descend from it; itself first.
pub(crate) fn tree(pid: u32) -> Outcome<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context(|| "cannot read /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has ended meanwhile is none of the tree any more.
        if let Ok(parent) = Stat::read(pid).and_then(|stat| stat.field(PARENT)) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        let children = parents.iter().filter(|&&(_, of)| of == u64::from(parent));
        tree.extend(children.map(|&(child, _)| child));
        next += 1;
    }
    Ok(tree)
}

/// CPU seconds of a process and all that descend from it, those included that have ended.
pub(crate) fn tree_cpu_seconds(pid: u32) -> Outcome<f64> {
    each_of(pid, |process| Stat::read(process)?.seconds(&WITH_ENDED_CHILDREN))
}

/// Memory of a process and all that descend from it, in bytes. The peak is the sum of the peaks.
pub(crate) fn tree_memory_bytes(pid: u32, memory: Memory) -> Outcome<u64> {
    each_of(pid, |process| memory_bytes(process, memory))
}

/// Sums over a tree. Only the process itself must be there: a helper may come and go meanwhile.
fn each_of<T: std::ops::AddAssign>(pid: u32, figure: impl Fn(u32) -> Outcome<T>) -> Outcome<T> {
    let mut sum = figure(pid)?;
    for process in tree(pid)?.into_iter().skip(1) {
        if let Ok(figure) = figure(process) {
            sum += figure;
        }
    }
    Ok(sum)
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
    use std::io::Read;

    use super::*;

    #[test]
    fn this_process_has_used_memory_and_files() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        let resident = memory_bytes(pid, Memory::Resident).unwrap();
        assert!(resident > 0 && resident <= memory_bytes(pid, Memory::Peak).unwrap());
        assert!(open_files(pid).unwrap() >= 3);
    }

    #[test]
    fn a_tree_is_a_process_with_its_children_and_theirs() {
        let script = "sleep 60 & sh -c 'sleep 60 & echo; wait' & wait";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        // The line says that the innermost has been started.
        let mut line = [0; 1];
        shell.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let members = tree(shell.id()).unwrap();
        let sum = tree_memory_bytes(shell.id(), Memory::Resident).unwrap();
        let own = memory_bytes(shell.id(), Memory::Resident).unwrap();
        // Parents first: a shell whose last child is killed ends, and could not be killed any more.
        for &member in &members {
            let pid = rustix::process::Pid::from_raw(member as i32).unwrap();
            // A shell ends by itself when the child that it waits for is killed.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.wait().unwrap();
        assert_eq!((members.len(), members[0]), (4, shell.id()));
        assert!(sum > own);
    }
}
