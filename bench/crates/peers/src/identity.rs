//! Which process is meant. A number is not enough: numbers are used again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::process::{self, Stat};
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
        let stat = Stat::read(pid).ok()?;
        Some(Self { pid, started_ticks: stat.started_ticks, boot: boot()?, program: None })
    }

    /// The same with the program that it runs now: a script has become its server by then.
    pub(crate) fn with_program(mut self) -> Self {
        self.program = program(self.pid);
        self
    }

    /// Does this very process still run?
    pub fn runs(&self) -> bool {
        let Ok(stat) = Stat::read(self.pid) else { return false };
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
        let mut tree = vec![self.clone()];
        let members = process::tree(self.pid);
        tree.extend(members.into_iter().skip(1).filter_map(Self::of));
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
    let members = identity.tree().into_iter();
    members.flat_map(|member| process::proportional_bytes(member.pid)).sum()
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
}
