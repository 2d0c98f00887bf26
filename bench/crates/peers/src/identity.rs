//! Which process is meant. A number is not enough: numbers are used again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

/// One process for all time: its number, the clock tick since boot in which it began, the boot, and
/// the program that it ran when it was ready. (Its command line would say less: servers rewrite it.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    started_ticks: u64,
    boot: String,
    program: Option<PathBuf>,
}

impl Identity {
    /// The process with this number now.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        Some(Self { pid, started_ticks: stat.started_ticks, boot: boot()?, program: None })
    }

    /// The same with the program that it runs now: a script has become its server by then.
    pub(crate) fn with_program(mut self) -> Self {
        self.program = program(self.pid);
        self
    }

    /// Does this very process still run?
    pub fn runs(&self) -> bool {
        let Some(stat) = Stat::read(self.pid) else { return false };
        // A link that may not be read says nothing against it.
        let same_program = match (&self.program, program(self.pid)) {
            (Some(then), Some(now)) => without_deleted(then) == without_deleted(&now),
            _ => true,
        };
        !stat.ended
            && stat.started_ticks == self.started_ticks
            && boot().as_deref() == Some(&self.boot)
            && same_program
    }

    /// Sends a signal to this process and no other; false if it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return false };
        // The handle is taken first: what it names cannot change between the look and the signal.
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => self.runs() && rustix::process::pidfd_send_signal(handle, signal).is_ok(),
            Err(rustix::io::Errno::NOSYS) => {
                self.runs() && rustix::process::kill_process(pid, signal).is_ok()
            }
            Err(_) => false,
        }
    }

    /// Waits until it has ended; false if it has not by then.
    pub(crate) fn ended_within(&self, within: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(pid) = Pid::from_raw(self.pid as i32) {
                // A child of ours stays in the table until its end is taken note of.
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
            if !self.runs() {
                return true;
            }
            if begun.elapsed() > within {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// This process and all that descend from it, itself first; nothing if it has ended, whoever
    /// has its number now.
    pub fn tree(&self) -> Vec<Self> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number else { continue };
            if let Some(stat) = Stat::read(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        let mut tree = vec![self.clone()];
        let mut next = 0;
        while let Some(parent) = tree.get(next).map(|member| member.pid) {
            let found = children.get(&parent).into_iter().flatten();
            tree.extend(found.filter_map(|&child| Self::of(child)));
            next += 1;
        }
        // It ran all the while, so those were its children and no one else's.
        if !self.runs() {
            tree.clear();
        }
        tree
    }
}

/// Resident memory of a process and all that descend from it. Pages that they share are counted
/// once, to each its part.
pub fn resident_bytes(identity: &Identity) -> u64 {
    let of = |member: Identity| {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", member.pid)).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim()
            .strip_suffix(" kB")?
            .trim()
            .parse::<u64>()
            .ok()
            .map(|kilobytes| kilobytes * 1024)
    };
    identity.tree().into_iter().filter_map(of).sum()
}

/// The parts of `/proc/PID/stat` that matter here (`proc_pid_stat(5)`).
struct Stat {
    ended: bool,
    parent: u32,
    started_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name (field 2) may hold spaces and parentheses; what follows its last `)` is regular
        // and begins with field 3.
        let (_, after_name) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        // The first thread may have ended before the others; they hold ports and files still.
        let threads: u64 = fields.get(17)?.parse().ok()?;
        Some(Self {
            ended: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
            parent: fields.get(1)?.parse().ok()?,
            started_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

fn program(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The kernel marks a program whose file was replaced meanwhile.
fn without_deleted(path: &Path) -> &str {
    let text = path.to_str().unwrap_or_default();
    text.strip_suffix(" (deleted)").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().expect("sleep can be run")
    }

    #[test]
    fn a_process_is_itself_until_it_ends() {
        let mut child = sleeper();
        let identity = Identity::of(child.id()).expect("it runs").with_program();
        assert!(identity.runs());
        assert!(identity.signal(Signal::KILL));
        assert!(identity.ended_within(Duration::from_secs(5)));
        assert!(!identity.signal(Signal::KILL), "nobody is there any more");
        // Its end was taken note of already.
        let _ = child.wait();
    }

    #[test]
    fn another_process_with_the_same_number_is_not_signalled() {
        let mut child = sleeper();
        let ours = Identity::of(child.id()).expect("it runs").with_program();
        let earlier = Identity { started_ticks: ours.started_ticks - 1, ..ours.clone() };
        let other_boot = Identity { boot: "another".into(), ..ours.clone() };
        let other_program = Identity { program: Some("/usr/bin/other".into()), ..ours.clone() };
        for stranger in [earlier, other_boot, other_program] {
            assert!(!stranger.runs() && stranger.tree().is_empty());
            assert!(!stranger.signal(Signal::KILL));
        }
        assert!(ours.runs());
        child.kill().and_then(|()| child.wait()).expect("it can be killed");
    }

    #[test]
    fn a_tree_holds_children_and_theirs() {
        let mut shell = Command::new("sh").args(["-c", "sh -c 'sleep 60; :'; :"]).spawn().unwrap();
        let identity = Identity::of(shell.id()).expect("it runs");
        let begun = Instant::now();
        while identity.tree().len() < 3 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let tree = identity.tree();
        assert_eq!((tree.len(), tree[0].pid), (3, shell.id()));
        assert!(resident_bytes(&identity) > 0);
        for member in tree {
            member.signal(Signal::KILL);
        }
        shell.wait().expect("it has ended");
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_confuse() {
        let rest = "S 7 1 1 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 1 0 4242 1 1";
        let stat = Stat::parse(&format!("9 (a) b (c) {rest}")).expect("regular");
        assert_eq!((stat.parent, stat.started_ticks, stat.ended), (7, 4242, false));
    }

    #[test]
    fn a_process_has_ended_when_all_its_threads_have() {
        let ended = |threads| {
            let text = format!("9 (a) Z 7 1 1 0 -1 4 1 0 0 0 3 4 0 0 20 0 {threads} 0 4242 1 1");
            Stat::parse(&text).expect("regular").ended
        };
        assert!(ended(1));
        assert!(!ended(4));
    }
}
