//! Description of a process to be started: program, ports, and readiness check.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::errors::{FolderError, StartError};
use crate::identity::Identity;
use crate::plan::Site;
use crate::ready::Ready;

/// Number of log lines that an error shows.
const LAST_LINES: usize = 15;

#[derive(Debug)]
pub(crate) struct Launch {
    /// `broker` for a node, or the kind of a helper.
    pub(crate) role: &'static str,
    pub(crate) node: u32,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(String, OsString)>,
    pub(crate) folder: PathBuf,
    pub(crate) ports: Vec<u16>,
    pub(crate) ready: Ready,
    pub(crate) ready_within: Duration,
    /// Signal for a graceful stop.
    pub(crate) ending: Signal,
    /// A user other than root, for servers that refuse to run as root.
    pub(crate) user: Option<u32>,
    pub(crate) log: PathBuf,
}

impl Launch {
    pub(crate) fn new(site: &Site, node: u32, program: impl Into<PathBuf>, ready: Ready) -> Self {
        Self {
            role: "broker",
            node,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: site.home.clone(),
            ports: Vec::new(),
            ready,
            ready_within: Duration::from_secs(120),
            ending: Signal::TERM,
            user: None,
            log: site.log("broker", node),
        }
    }

    pub(crate) fn helper(mut self, site: &Site, role: &'static str) -> Self {
        self.role = role;
        self.log = site.log(role, self.node);
        self
    }

    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn arguments<I: Into<OsString>>(mut self, all: impl IntoIterator<Item = I>) -> Self {
        self.arguments.extend(all.into_iter().map(Into::into));
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    pub(crate) fn ports(mut self, ports: &[u16]) -> Self {
        self.ports.extend(ports);
        self
    }

    pub(crate) fn ending(mut self, signal: Signal) -> Self {
        self.ending = signal;
        self
    }

    pub(crate) fn user(mut self, user: Option<u32>) -> Self {
        self.user = user;
        self
    }

    /// Starts it, detached from this process and its terminal, so that it outlives both.
    pub(crate) fn spawn(&self) -> Result<Identity, StartError> {
        allow_many_files();
        let log = open_log(&self.log)?;
        let errors = log.try_clone().map_err(FolderError::new("open", &self.log))?;
        let mut command = hermetic(&self.program, &self.folder);
        command.args(&self.arguments).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(log).stderr(errors);
        command.process_group(0);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let not_run = |why| StartError::NotRun { what: self.program.display().to_string(), why };
        let child = command.spawn().map_err(not_run)?;
        // The child is not waited for, so it exists even if it has ended.
        Identity::of(child.id()).ok_or_else(|| not_run(std::io::Error::other("it is gone")))
    }
}

/// Raises this process's limit of open files, which its children inherit, to the maximum: a broker
/// has a file or more for every topic and connection.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // A raise up to the maximum is never denied.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// A command with a minimal environment, so that settings of other servers on this machine have no
/// effect.
pub(crate) fn hermetic(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("LANG", "C.UTF-8");
    for kept in ["PATH", "JAVA_HOME", "TMPDIR"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    command
}

fn open_log(path: &Path) -> Result<File, FolderError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(FolderError::new("create", parent))?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(FolderError::new("open", path))
}

/// The last non-empty lines of a file.
pub(crate) fn last_lines(path: &Path) -> Vec<String> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut last = VecDeque::new();
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !line.is_empty() {
            last.push_back(line);
        }
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    }
    last.into()
}

/// Runs a preparing command to its end.
pub(crate) fn run(mut command: Command, what: &str, log: &Path) -> Result<(), StartError> {
    let out = open_log(log)?;
    let errors = out.try_clone().map_err(FolderError::new("open", log))?;
    command.stdin(Stdio::null()).stdout(out).stderr(errors);
    let status =
        command.status().map_err(|why| StartError::NotRun { what: what.to_owned(), why })?;
    if status.success() {
        return Ok(());
    }
    Err(StartError::Command {
        what: what.to_owned(),
        status: status.to_string(),
        log: log.to_path_buf(),
        details: last_lines(log),
    })
}
