//! Identity of a process. Its id is not enough, since ids are reused.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use host::process::{self, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

/// A unique process: its id, its start in clock ticks since boot, the boot, and its program when it
/// was ready. (The command line is less reliable, since servers rewrite it.)
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    started_ticks: u64,
    boot: String,
    program: Option<PathBuf>,
}

impl Identity {
    /// The current process with this id.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid).ok()?;
        Some(Self { pid, started_ticks: stat.started_ticks, boot: boot()?, program: None })
    }

    /// Adds the current program: by now a script has become its server.
    pub(crate) fn with_program(mut self) -> Self {
        self.program = program(self.pid);
        self
    }

    /// Whether this very process still runs.
    pub fn runs(&self) -> bool {
        let Ok(stat) = Stat::read(self.pid) else { return false };
        // An unreadable link does not contradict.
        let same_program = match (&self.program, program(self.pid)) {
            (Some(then), Some(now)) => without_deleted(then) == without_deleted(&now),
            _ => true,
        };
        !stat.ended
            && stat.started_ticks == self.started_ticks
            && boot().as_deref() == Some(&self.boot)
            && same_program
    }

    /// Sends a signal to this process only; returns false if it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return false };
        // The handle is opened before the check, so that the process cannot change in between.
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => self.runs() && rustix::process::pidfd_send_signal(handle, signal).is_ok(),
            Err(rustix::io::Errno::NOSYS) => {
                self.runs() && rustix::process::kill_process(pid, signal).is_ok()
            }
            Err(_) => false,
        }
    }

    /// Waits until it has ended; returns false after the time limit.
    pub(crate) fn ended_within(&self, within: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(pid) = Pid::from_raw(self.pid as i32) {
                // A child stays in the process table until it is waited for.
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

    /// This process and all its descendants, itself first; empty if it has ended, even if its id is
    /// in use again.
    pub fn tree(&self) -> Vec<Self> {
        let mut tree = vec![self.clone()];
        let members = process::tree(self.pid);
        tree.extend(members.into_iter().skip(1).filter_map(Self::of));
        // It was running all the time, so those were its own children.
        if !self.runs() {
            tree.clear();
        }
        tree
    }
}

/// Resident memory of a process and all its descendants. Shared pages are counted proportionally.
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

/// The kernel marks a program whose file has been replaced.
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
    fn identity_holds_until_the_process_ends() {
        let mut child = sleeper();
        let identity = Identity::of(child.id()).expect("it runs").with_program();
        assert!(identity.runs());
        assert!(identity.signal(Signal::KILL));
        assert!(identity.ended_within(Duration::from_secs(5)));
        assert!(!identity.signal(Signal::KILL), "nobody is there any more");
        // It has already been waited for.
        let _ = child.wait();
    }

    #[test]
    fn process_with_a_reused_id_is_not_signalled() {
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
    fn tree_contains_all_descendants() {
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
