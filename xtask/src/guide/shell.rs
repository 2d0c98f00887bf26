//! A terminal of which each command is shown with what it says. Servers go on in the background.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::failure::{Context, Failure, Outcome};

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

struct Started {
    child: Child,
    log: PathBuf,
}

pub(super) struct Shell {
    folder: PathBuf,
    path: String,
    /// What earlier commands have exported.
    exported: Vec<String>,
    /// By the name of their data directory, or the whole command.
    running: BTreeMap<String, Started>,
    /// Servers that have not said that they are ready.
    starting: Vec<PathBuf>,
}

impl Shell {
    pub(super) fn new(binary: &Path, folder: &Path) -> Outcome<Shell> {
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).context(|| format!("cannot make {}", bin.display()))?;
        let binary = fs::canonicalize(binary).context(|| format!("no {}", binary.display()))?;
        std::os::unix::fs::symlink(binary, bin.join("postroad"))
            .context(|| "cannot link the binary".to_owned())?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let (folder, exported) = (folder.to_owned(), Vec::new());
        let (running, starting) = (BTreeMap::new(), Vec::new());
        Ok(Shell { folder, path, exported, running, starting })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Types a command. Servers are left running, and are ready before the next command that is none.
    pub(super) fn types(&mut self, command: &str) -> Outcome {
        if command.starts_with("export ") {
            println!("$ {command}");
            self.exported.push(command.to_owned());
            return Ok(());
        }
        if command.starts_with("postroad serve") {
            let name = data_of(command).ok_or_else(|| Failure::new("serve without --data"))?;
            let log = self.begins(command, &name)?;
            self.starting.push(log);
            return Ok(());
        }
        self.all_ready()?;
        println!("$ {command}");
        let (said, failed) = self.runs(command)?;
        print!("{said}");
        match failed {
            None => Ok(()),
            Some(how) => Err(Failure::new(format!("`{command}` {how}"))),
        }
    }

    /// Waits until all servers are ready that were started.
    pub(super) fn all_ready(&mut self) -> Outcome {
        for log in std::mem::take(&mut self.starting) {
            self.says(&log, "ready", READY_WITHIN)?;
        }
        Ok(())
    }

    /// Starts a command that goes on, and waits until it has said something; all that it said.
    pub(super) fn starts(
        &mut self,
        command: &str,
        until: &str,
        within: Duration,
    ) -> Outcome<String> {
        let log = self.begins(command, command)?;
        let said = self.says(&log, until, within)?;
        print!("{said}");
        Ok(said)
    }

    /// Ctrl-C.
    pub(super) fn interrupts(&mut self, command: &str, within: Duration) -> Outcome {
        println!("^C");
        self.signals(command, Signal::INT)?;
        self.ends(command, within)
    }

    /// SIGTERM to a server, and its end.
    pub(super) fn stops(&mut self, name: &str) -> Outcome {
        println!("# the node in {name} is stopped");
        self.signals(name, Signal::TERM)?;
        self.ends(name, STOPS_WITHIN)
    }

    /// A server dies, and its disk with it.
    pub(super) fn loses(&mut self, name: &str) -> Outcome {
        println!("# the node in {name} is lost, and its disk with it");
        self.signals(name, Signal::KILL)?;
        self.ends(name, STOPS_WITHIN)?;
        fs::remove_dir_all(self.folder.join(name)).context(|| format!("cannot remove {name}"))
    }

    /// Waits until a server has ended.
    pub(super) fn ends(&mut self, name: &str, within: Duration) -> Outcome {
        let mut started = self.running.remove(name).ok_or_else(|| not_started(name))?;
        let begun = Instant::now();
        while started.child.try_wait()?.is_none() {
            if begun.elapsed() > within {
                self.running.insert(name.to_owned(), started);
                return Err(Failure::new(format!("{name} does not end")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until what the cluster says of itself is as wanted.
    pub(super) fn wait(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Outcome {
        self.all_ready()?;
        println!("# until {what}");
        let begun = Instant::now();
        loop {
            let asked = "postroad cluster status --output json --bootstrap \
                         127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094";
            let (said, failed) = self.runs(asked)?;
            if failed.is_none() && serde_json::from_str(&said).is_ok_and(|status| wanted(&status)) {
                return Ok(());
            }
            if begun.elapsed() > within {
                return Err(Failure::new(format!("it is not so that {what}; status: {said}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn begins(&mut self, command: &str, name: &str) -> Outcome<PathBuf> {
        println!("$ {command} &");
        let log = self.folder.join(format!("{}.log", name.replace([' ', '/'], "-")));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.context(|| format!("cannot open {}", log.display()))?;
        let before = fs::read_to_string(&log).unwrap_or_default();
        if !before.is_empty() {
            fs::write(&log, "").context(|| format!("cannot empty {}", log.display()))?;
        }
        let mut child = Command::new("bash");
        child.args(["-c", &format!("exec {command}")]).current_dir(&self.folder);
        child.env("PATH", &self.path).stdin(Stdio::null());
        child.stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = child.spawn().context(|| format!("cannot start {command}"))?;
        self.running.insert(name.to_owned(), Started { child, log: log.clone() });
        Ok(log)
    }

    /// By the standard input of a shell, so that no process but those meant has the command in its arguments.
    fn runs(&self, command: &str) -> Outcome<(String, Option<String>)> {
        let mut shell = Command::new("bash");
        shell.args(["-s"]).current_dir(&self.folder).env("PATH", &self.path);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().context(|| "cannot run bash".to_owned())?;
        let typed = format!("set -e -o pipefail\n{}\n{command}\n", self.exported.join("\n"));
        child.stdin.take().expect("it is piped").write_all(typed.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = (!output.status.success()).then(|| {
            let complaint = String::from_utf8_lossy(&output.stderr);
            format!("ended with {}: {}", output.status, complaint.trim())
        });
        Ok((said, failed))
    }

    fn says(&mut self, log: &Path, what: &str, within: Duration) -> Outcome<String> {
        let begun = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap_or_default();
            if said.lines().any(|line| line.starts_with(what)) {
                return Ok(said);
            }
            let of_it = self.running.values_mut().find(|started| started.log == log);
            let has_ended = match of_it {
                Some(started) => started.child.try_wait()?.is_some(),
                None => true,
            };
            if has_ended || begun.elapsed() > within {
                return Err(Failure::new(format!("it has not said '{what}', but: {said}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn signals(&self, name: &str, signal: Signal) -> Outcome {
        let started = self.running.get(name).ok_or_else(|| not_started(name))?;
        let pid = Pid::from_child(&started.child);
        kill_process(pid, signal).context(|| format!("cannot send {signal:?} to {name}"))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for started in self.running.values_mut() {
            // The demonstration stops its nodes on this; a server ends on it, too.
            let _ = kill_process(Pid::from_child(&started.child), Signal::TERM);
        }
        let begun = Instant::now();
        for started in self.running.values_mut() {
            while matches!(started.child.try_wait(), Ok(None)) && begun.elapsed() < STOPS_WITHIN {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = started.child.kill();
            let _ = started.child.wait();
        }
    }
}

fn not_started(name: &str) -> Failure {
    Failure::new(format!("{name} was not started"))
}

fn data_of(command: &str) -> Option<String> {
    let mut words = command.split_whitespace().skip_while(|word| *word != "--data");
    words.nth(1).map(str::to_owned)
}
