//! A terminal that prints each command with its output. Servers run in the background.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::failure::{Context, Failure, Outcome};

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// Timeout of a command, which is then killed and fails.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SHOWN_LINES: usize = 60;
const SCRIPT: &str = ".typed.sh";
pub(super) const SERVE: &str = "postroad serve";
/// The data directory of a server whose command names none.
pub(super) const DEFAULT_DATA: &str = "postroad-data";

/// A command that was typed: its standard output and standard error, and its end.
pub(super) struct TypedCommand {
    pub(super) printed: String,
    pub(super) status: ExitStatus,
}

impl TypedCommand {
    pub(super) fn succeeded(&self, command: &str) -> Outcome {
        if self.status.success() {
            return Ok(());
        }
        let printed = self.printed.trim();
        Err(Failure::new(format!("`{command}` ended with {}: {printed}", self.status)))
    }
}

struct BackgroundCommand {
    child: Child,
    log: PathBuf,
}

pub(super) struct Shell {
    folder: PathBuf,
    path: String,
    /// `export` commands so far.
    exported: Vec<String>,
    /// Started programs, by the name of their data directory or by the whole command.
    running: BTreeMap<String, BackgroundCommand>,
    /// Logs of servers that have not printed `ready`.
    starting: Vec<PathBuf>,
}

impl Shell {
    pub(super) fn new(binary: &Path, folder: &Path) -> Outcome<Shell> {
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).context(|| format!("cannot make {}", bin.display()))?;
        let binary = fs::canonicalize(binary).context(|| format!("no {}", binary.display()))?;
        std::os::unix::fs::symlink(binary, bin.join("postroad"))
            .context(|| "cannot link the binary".to_owned())?;
        only_own_processes(&bin)?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let (folder, exported) = (folder.to_owned(), Vec::new());
        let (running, starting) = (BTreeMap::new(), Vec::new());
        Ok(Shell { folder, path, exported, running, starting })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops all servers and removes the folder. The journals of one cluster take some GiB.
    pub(super) fn clears(self) -> Outcome {
        let folder = self.folder.clone();
        drop(self);
        fs::remove_dir_all(&folder).context(|| format!("cannot remove {}", folder.display()))
    }

    /// Types a command, which has to succeed. Servers keep running; the next other command waits until they are
    /// ready.
    pub(super) fn types(&mut self, command: &str) -> Outcome {
        if command.starts_with("export ") {
            println!("$ {command}");
            self.exported.push(command.to_owned());
            return Ok(());
        }
        if command.starts_with(SERVE) {
            return self.serves(command).map(drop);
        }
        self.enters(command, "")?.succeeded(command)
    }

    /// Starts a server without waiting for it. Returns its name in this shell.
    pub(super) fn serves(&mut self, command: &str) -> Outcome<String> {
        let name = data_of(command).unwrap_or_else(|| DEFAULT_DATA.to_owned());
        let log = self.begins(command, &name)?;
        self.starting.push(log);
        Ok(name)
    }

    /// All that a server has printed.
    pub(super) fn printed_by(&self, name: &str) -> Outcome<String> {
        let started = self.running.get(name).ok_or_else(|| not_started(name))?;
        fs::read_to_string(&started.log)
            .context(|| format!("cannot read {}", started.log.display()))
    }

    /// Stops all servers; each has to end with code 0.
    pub(super) fn stops_all(&mut self) -> Outcome {
        let names: Vec<_> = self.running.keys().cloned().collect();
        names.iter().try_for_each(|name| self.stops(name))
    }

    /// Types a command with this standard input, and returns its output and status.
    pub(super) fn enters(&mut self, command: &str, input: &str) -> Outcome<TypedCommand> {
        self.all_ready()?;
        println!("$ {command}");
        let entered = self.runs(command, input, true)?;
        shows(&entered.printed);
        Ok(entered)
    }

    /// Whether a command succeeds; its output is not shown.
    pub(super) fn succeeds(&self, command: &str) -> Outcome<bool> {
        Ok(self.runs(command, "", true)?.status.success())
    }

    /// Waits until all started servers are ready.
    pub(super) fn all_ready(&mut self) -> Outcome {
        for log in std::mem::take(&mut self.starting) {
            self.says(&log, "ready", READY_WITHIN)?;
        }
        Ok(())
    }

    /// Starts a long-running command and waits for a text in its output. Returns the output until then.
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
        self.ends(command, within).map(drop)
    }

    /// Stops a server by SIGTERM, and waits for its end.
    pub(super) fn stops(&mut self, name: &str) -> Outcome {
        println!("# the node in {name} is stopped");
        self.signals(name, Signal::TERM)?;
        let status = self.ends(name, STOPS_WITHIN)?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("the node in {name} was stopped, and ended with {status}")))
    }

    /// Kills a server and removes its data directory.
    pub(super) fn loses(&mut self, name: &str) -> Outcome {
        println!("# the node in {name} is lost, and its disk with it");
        self.signals(name, Signal::KILL)?;
        self.ends(name, STOPS_WITHIN)?;
        fs::remove_dir_all(self.folder.join(name)).context(|| format!("cannot remove {name}"))
    }

    /// Waits until a server has ended.
    pub(super) fn ends(&mut self, name: &str, within: Duration) -> Outcome<ExitStatus> {
        let mut started = self.running.remove(name).ok_or_else(|| not_started(name))?;
        let begun = Instant::now();
        loop {
            if let Some(status) = started.child.try_wait()? {
                return Ok(status);
            }
            if begun.elapsed() > within {
                self.running.insert(name.to_owned(), started);
                return Err(Failure::new(format!("{name} does not end")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the cluster status meets a condition.
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
            let TypedCommand { printed: said, status } = self.runs(asked, "", false)?;
            if status.success() && serde_json::from_str(&said).is_ok_and(|status| wanted(&status)) {
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
        let mut child = self.command("bash");
        child.args(["-c", &format!("exec {command}")]).stdin(Stdio::null());
        child.stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = child.spawn().context(|| format!("cannot start {command}"))?;
        self.running.insert(name.to_owned(), BackgroundCommand { child, log: log.clone() });
        Ok(log)
    }

    /// Runs a command as a script, since `pgrep` would find a shell with the command in its arguments. `merged`:
    /// the output includes standard error.
    fn runs(&self, command: &str, input: &str, merged: bool) -> Outcome<TypedCommand> {
        let script = self.folder.join(SCRIPT);
        let exported = self.exported.join("\n");
        // A reader such as `head` may close the pipe early, which is no failure of the writer.
        let pipes = if command.contains("| head") { "" } else { "set -o pipefail\n" };
        let error = if merged { "exec 2>&1\n" } else { "" };
        fs::write(&script, format!("set -e\n{pipes}{error}{exported}\n{command}\n"))
            .context(|| format!("cannot write {}", script.display()))?;
        let mut shell = self.command("timeout");
        let seconds = ENDS_WITHIN.as_secs().to_string();
        shell.args(["--kill-after=10", &seconds, "bash"]).arg(&script);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().context(|| "cannot run timeout and bash".to_owned())?;
        // A command that reads no input may have ended already.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(TypedCommand { printed, status: output.status })
    }

    /// A command in the folder, without the settings of the caller's environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).env("PATH", &self.path);
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("POSTROAD_")) {
            command.env_remove(name);
        }
        command
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
            // The demonstration stops its nodes on SIGTERM; a server ends on it, too.
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

/// Prints the first lines of an output.
pub(super) fn shows(printed: &str) {
    let mut lines = printed.lines();
    for line in lines.by_ref().take(SHOWN_LINES) {
        println!("{line}");
    }
    match lines.count() {
        0 => {}
        more => println!("# and {more} more lines"),
    }
}

/// Restricts `pgrep` to the servers of this guide, since the pages kill the processes that it finds.
fn only_own_processes(bin: &Path) -> Outcome {
    let pgrep = bin.join("pgrep");
    let script = format!("#!/bin/sh\nexec /usr/bin/pgrep -P {} \"$@\"\n", std::process::id());
    fs::write(&pgrep, script).context(|| format!("cannot write {}", pgrep.display()))?;
    let executable = Permissions::from_mode(0o755);
    fs::set_permissions(&pgrep, executable).context(|| format!("cannot change {}", pgrep.display()))
}

fn not_started(name: &str) -> Failure {
    Failure::new(format!("{name} was not started"))
}

fn data_of(command: &str) -> Option<String> {
    let mut words = command.split_whitespace().skip_while(|word| *word != "--data");
    words.nth(1).map(str::to_owned)
}
