//! The kernel's accounting of a process (`proc(5)`): CPU time, memory, written bytes, open files.

use std::collections::HashMap;
use std::fs;
use std::io;

use thiserror::Error;

/// A file of `/proc` cannot be read: the process has ended, or belongs to another user.
#[derive(Debug, Error)]
#[error("cannot read {path}: {why}")]
pub struct Unreadable {
    path: String,
    why: io::Error,
}

fn read(path: String) -> Result<(String, String), Unreadable> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(why) => Err(Unreadable { path, why }),
    }
}

fn lacks(path: String, what: &str) -> Unreadable {
    let why = io::Error::new(io::ErrorKind::InvalidData, format!("it has no {what}"));
    Unreadable { path, why }
}

/// The used fields of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    pub parent: u32,
    /// All of its threads have ended; only its entry in the process table is left.
    pub ended: bool,
    /// Start time since boot. Together with the process id it is unique.
    pub started_ticks: u64,
    ticks: u64,
    /// CPU ticks of children that have ended and were waited for.
    ended_children_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    pub fn read(pid: u32) -> Result<Stat, Unreadable> {
        let (path, text) = read(format!("/proc/{pid}/stat"))?;
        Stat::parse(&text).ok_or_else(|| lacks(path, "fields as expected"))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name (field 2) may contain spaces and parentheses; the rest after the last `)` is
        // regular.
        let (_, after_name) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        // Fields are numbered as in the manual.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        // The first thread may have ended before the others, which still hold ports and files.
        let threads = field(20)?;
        Some(Stat {
            parent: field(4)? as u32,
            ended: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
            started_ticks: field(22)?,
            ticks: field(14)? + field(15)?,
            ended_children_ticks: field(16)? + field(17)?,
            resident_pages: field(24)?,
        })
    }

    /// CPU seconds of all of its threads, without its children.
    pub fn cpu_seconds(&self) -> f64 {
        seconds(self.ticks)
    }

    /// CPU seconds including those of ended children.
    pub fn cpu_seconds_with_ended_children(&self) -> f64 {
        seconds(self.ticks + self.ended_children_ticks)
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// CPU seconds of all threads of a process, without its children.
pub fn cpu_seconds(pid: u32) -> Result<f64, Unreadable> {
    Ok(Stat::read(pid)?.cpu_seconds())
}

/// CPU seconds of a process and all its descendants, including ended ones.
pub fn tree_cpu_seconds(pid: u32) -> Result<f64, Unreadable> {
    each_of(pid, |process| Ok(Stat::read(process)?.cpu_seconds_with_ended_children()))
}

/// The children of every process at one moment.
#[derive(Clone, Debug)]
pub struct Children {
    by_parent: HashMap<u32, Vec<u32>>,
}

impl Children {
    pub fn now() -> Children {
        let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number else { continue };
            // A process that has ended meanwhile is left out.
            if let Ok(stat) = Stat::read(pid) {
                by_parent.entry(stat.parent).or_default().push(pid);
            }
        }
        Children { by_parent }
    }

    /// A process and all its descendants; itself first.
    pub fn tree(&self, root: u32) -> Vec<u32> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next) {
            tree.extend(self.by_parent.get(parent).into_iter().flatten());
            next += 1;
        }
        tree
    }
}

/// A process and all its descendants; itself first.
pub fn tree(pid: u32) -> Vec<u32> {
    Children::now().tree(pid)
}

/// Sums over a tree. Only the root must exist: a descendant may end meanwhile.
fn each_of<T: std::ops::AddAssign>(
    pid: u32,
    figure: impl Fn(u32) -> Result<T, Unreadable>,
) -> Result<T, Unreadable> {
    let mut sum = figure(pid)?;
    for process in tree(pid).into_iter().skip(1) {
        if let Ok(figure) = figure(process) {
            sum += figure;
        }
    }
    Ok(sum)
}

/// Kind of memory figure.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// Currently resident memory.
    Resident,
    /// Peak of resident memory.
    Peak,
}

/// Resident memory of a process in bytes.
pub fn memory_bytes(pid: u32, memory: Memory) -> Result<u64, Unreadable> {
    let label = match memory {
        Memory::Resident => "VmRSS:",
        Memory::Peak => "VmHWM:",
    };
    let (path, status) = read(format!("/proc/{pid}/status"))?;
    kilobytes(&status, label).map(|count| count * 1024).ok_or_else(|| lacks(path, label))
}

/// Memory of a process and all its descendants. The peak is the sum of the peaks.
pub fn tree_memory_bytes(pid: u32, memory: Memory) -> Result<u64, Unreadable> {
    each_of(pid, |process| memory_bytes(process, memory))
}

/// Resident memory that counts a shared page proportionally for each process. If the kernel denies
/// this figure to the user, each process counts all of its pages.
pub fn proportional_bytes(pid: u32) -> Result<u64, Unreadable> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    match kilobytes(&rollup, "Pss:") {
        Some(count) => Ok(count * 1024),
        None => Ok(Stat::read(pid)?.resident_pages * rustix::param::page_size() as u64),
    }
}

/// Number in the line `LABEL   123 kB`.
fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Bytes that a process has caused to be written to disks.
pub fn written_bytes(pid: u32) -> Result<u64, Unreadable> {
    const LABEL: &str = "write_bytes: ";
    let (path, io) = read(format!("/proc/{pid}/io"))?;
    let count = io.lines().find_map(|line| line.strip_prefix(LABEL)?.parse().ok());
    count.ok_or_else(|| lacks(path, LABEL))
}

/// Number of open file descriptors of a process.
pub fn open_files(pid: u32) -> Result<usize, Unreadable> {
    let path = format!("/proc/{pid}/fd");
    match fs::read_dir(&path) {
        Ok(entries) => Ok(entries.count()),
        Err(why) => Err(Unreadable { path, why }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn this_process_has_used_memory_and_files() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        let resident = memory_bytes(pid, Memory::Resident).unwrap();
        assert!(resident > 0 && resident <= memory_bytes(pid, Memory::Peak).unwrap());
        assert!(proportional_bytes(pid).unwrap() > 0);
        assert!(open_files(pid).unwrap() >= 3);
    }

    #[test]
    fn ended_process_is_named_in_the_error() {
        let failure = memory_bytes(u32::MAX, Memory::Resident).unwrap_err().to_string();
        assert!(failure.starts_with("cannot read /proc/4294967295/status: "), "{failure}");
    }

    /// A shell with three descendants, the innermost of which has been started.
    fn shell() -> Child {
        let script = "sleep 60 & sh -c 'sleep 60 & echo; wait' & wait";
        let mut command = Command::new("sh");
        let mut shell = command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 1];
        shell.stdout.take().unwrap().read_exact(&mut line).unwrap();
        shell
    }

    #[test]
    fn tree_contains_a_process_with_all_descendants() {
        let mut shell = shell();
        let members = tree(shell.id());
        let sum = tree_memory_bytes(shell.id(), Memory::Resident).unwrap();
        let own = memory_bytes(shell.id(), Memory::Resident).unwrap();
        // Parents first: a shell ends when its last child is killed, and could not be killed then.
        for &member in &members {
            // A shell may already have ended with its child.
            let _ = kill_process(Pid::from_raw(member as i32).unwrap(), Signal::KILL);
        }
        shell.wait().unwrap();
        assert_eq!((members.len(), members[0]), (4, shell.id()));
        assert!(sum > own);
    }

    #[test]
    fn process_name_may_contain_spaces_and_parentheses() {
        let rest = "S 7 1 1 0 -1 4194304 1 0 0 0 3 4 5 6 20 0 1 0 4242 1 9";
        let stat = Stat::parse(&format!("9 (a) b (c) {rest}")).expect("regular");
        assert_eq!((stat.parent, stat.started_ticks, stat.ended), (7, 4242, false));
        assert_eq!((stat.ticks, stat.ended_children_ticks, stat.resident_pages), (7, 11, 9));
    }

    #[test]
    fn process_has_ended_once_all_its_threads_have() {
        let ended = |threads| {
            let text = format!("9 (a) Z 7 1 1 0 -1 4 1 0 0 0 3 4 0 0 20 0 {threads} 0 4242 1 1");
            Stat::parse(&text).expect("regular").ended
        };
        assert!(ended(1));
        assert!(!ended(4));
    }
}
