//! Resource usage of processes, each with all its descendants: CPU, memory and written bytes, as
//! Linux counts them.
//!
//! A separate thread samples it once a second. Memory is sampled less often: to count shared pages
//! once, the kernel walks all page tables.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::process::{self, Children, Stat};
use results::{Process, Usage};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const MEMORY_EVERY: Duration = Duration::from_secs(5);
/// Sampling of memory takes at most one part in this many of the time.
const MEMORY_SHARE: u32 = 50;

/// Processes to watch, under one name.
#[derive(Clone)]
pub struct Watched {
    pub name: String,
    /// Evaluated at every sample: a killed process restarts with another id.
    pids: Arc<dyn Fn() -> Vec<u32> + Send + Sync>,
    /// Whether descendants are included.
    trees: bool,
}

impl Watched {
    /// These processes and all their descendants.
    pub fn new(name: &str, pids: impl Fn() -> Vec<u32> + Send + Sync + 'static) -> Self {
        Self { name: name.to_owned(), pids: Arc::new(pids), trees: true }
    }

    /// This process, without the servers that it may have started.
    pub fn suite() -> Self {
        Self::own("suite")
    }

    /// This process, when it is an agent.
    pub(crate) fn agent() -> Self {
        Self::own("agent")
    }

    fn own(name: &str) -> Self {
        let own = std::process::id();
        Self { trees: false, ..Self::new(name, move || vec![own]) }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Samples processes until it is ended.
#[derive(Debug)]
pub(crate) struct Usages {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Vec<Process>>,
}

impl Usages {
    /// The first sample is taken now, and times count from `start`.
    pub(crate) fn start(watched: Vec<Watched>, start: Instant) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let mut looker = Looker::of(watched);
            loop {
                let began = Instant::now();
                looker.look(start.elapsed().as_secs_f64());
                let wait = LOOK_EVERY.saturating_sub(began.elapsed());
                // A dropped `Usages` ends the thread as well.
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    looker.look(start.elapsed().as_secs_f64());
                    return looker.watched.into_iter().map(|one| one.process).collect();
                }
            }
        };
        let thread = std::thread::Builder::new().name("usage".into()).spawn(run)?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and returns its samples. Waits for a sample in progress.
    pub(crate) fn end(self) -> Vec<Process> {
        // The thread cannot have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Looker {
    watched: Vec<One>,
    memory_due: Instant,
}

#[derive(Debug)]
struct One {
    watched: Watched,
    process: Process,
    /// Last usage of each requested process with its tree, by process id and start time.
    seen: HashMap<(u32, u64), (f64, u64)>,
    /// Total of all processes ever seen.
    cpu: f64,
    written_bytes: u64,
    resident_bytes: u64,
}

impl Looker {
    fn of(watched: Vec<Watched>) -> Self {
        let one = |watched: Watched| One {
            process: Process { name: watched.name.clone(), usage: Vec::new() },
            watched,
            seen: HashMap::new(),
            cpu: 0.0,
            written_bytes: 0,
            resident_bytes: 0,
        };
        Self { watched: watched.into_iter().map(one).collect(), memory_due: Instant::now() }
    }

    fn look(&mut self, at: f64) {
        let trees = self.watched.iter().any(|one| one.watched.trees);
        let children = trees.then(Children::now);
        let began = Instant::now();
        let memory = began >= self.memory_due;
        for one in &mut self.watched {
            one.look(at, children.as_ref(), memory);
        }
        if memory {
            let cost = began.elapsed() * MEMORY_SHARE;
            self.memory_due = Instant::now() + MEMORY_EVERY.max(cost);
        }
    }
}

impl One {
    fn look(&mut self, at: f64, children: Option<&Children>, memory: bool) {
        let mut members = HashSet::new();
        for root in (self.watched.pids)() {
            let Ok(began) = Stat::read(root).map(|stat| stat.started_ticks) else { continue };
            let tree = match children {
                Some(children) if self.watched.trees => children.tree(root),
                _ => vec![root],
            };
            let (cpu, written) = self.used(&tree);
            let before = self.seen.insert((root, began), (cpu, written)).unwrap_or_default();
            // Usage of a process that ended meanwhile may be missing for a moment.
            self.cpu += (cpu - before.0).max(0.0);
            self.written_bytes += written.saturating_sub(before.1);
            members.extend(tree);
        }
        if memory || members.is_empty() {
            self.resident_bytes =
                members.iter().flat_map(|pid| process::proportional_bytes(*pid)).sum();
        }
        self.process.usage.push(Usage {
            at,
            cpu: self.cpu,
            resident_bytes: self.resident_bytes,
            written_bytes: self.written_bytes,
        });
    }

    /// CPU seconds and written bytes of processes since their start.
    fn used(&self, members: &[u32]) -> (f64, u64) {
        let mut used = (0.0, 0);
        for stat in members.iter().flat_map(|pid| Stat::read(*pid)) {
            used.0 += match self.watched.trees {
                true => stat.cpu_seconds_with_ended_children(),
                false => stat.cpu_seconds(),
            };
        }
        used.1 = members.iter().flat_map(|pid| process::written_bytes(*pid)).sum();
        used
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().expect("there is a shell")
    }

    fn end(mut child: Child) {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }

    #[test]
    fn suite_usage_excludes_child_processes() {
        let other = shell("while true; do :; done");
        let usages = Usages::start(vec![Watched::suite()], Instant::now()).expect("a thread");
        std::thread::sleep(Duration::from_millis(1_200));
        end(other);
        let suite = usages.end().remove(0);
        assert!(suite.resident_bytes_max() > 1 << 20);
        assert!(suite.usage.len() >= 3, "now and then, and at the end: {:?}", suite.usage);
        assert!(suite.cpu_seconds() < 1.0, "it slept: {:?}", suite.usage);
    }

    #[test]
    fn descendants_count_towards_their_process() {
        let parent = shell("sh -c 'while true; do :; done' & sh -c 'sleep 60' & wait");
        let pid = parent.id();
        let mut looker = Looker::of(vec![Watched::new("server", move || vec![pid])]);
        looker.look(0.0);
        std::thread::sleep(Duration::from_millis(700));
        looker.look(1.0);
        let members = process::tree(pid);
        for member in members.iter().skip(1) {
            let _ = Command::new("kill").arg("-9").arg(member.to_string()).status();
        }
        end(parent);
        assert!(members.len() >= 3, "{members:?}");
        let server = &looker.watched[0].process;
        assert!(server.cpu_seconds() > 0.05, "{:?}", server.usage);
        assert!(server.resident_bytes_max() > 100 << 10, "{:?}", server.usage);
    }

    #[test]
    fn usage_accumulates_over_restarts() {
        let busy = || shell("while true; do :; done");
        let now = Arc::new(std::sync::Mutex::new(Vec::new()));
        let asked = Arc::clone(&now);
        let pids = move || asked.lock().expect("nobody panicked").clone();
        let mut looker = Looker::of(vec![Watched::new("server", pids)]);
        for at in 0..2 {
            let child = busy();
            *now.lock().expect("nobody panicked") = vec![child.id()];
            std::thread::sleep(Duration::from_millis(400));
            looker.look(f64::from(at * 2));
            end(child);
            looker.look(f64::from(at * 2 + 1));
        }
        let usage = &looker.watched[0].process.usage;
        assert!(usage.is_sorted_by(|one, next| one.cpu <= next.cpu), "{usage:?}");
        assert!(usage[2].cpu > usage[0].cpu && usage[0].cpu > 0.0, "{usage:?}");
        assert_eq!(usage[3].resident_bytes, 0, "it is gone");
    }

    #[test]
    fn missing_process_uses_nothing() {
        let mut looker = Looker::of(vec![Watched::new("gone", || vec![u32::MAX])]);
        looker.look(0.0);
        assert_eq!(looker.watched[0].process.usage[0], Usage::default());
    }
}
