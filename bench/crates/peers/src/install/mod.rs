//! Atomic installation of software into the folder. It is assembled in a staging folder and moved
//! to its place when complete, with a marker that describes it.

mod debian;
mod elf;
mod go;
mod maven;
mod needs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::errors::{FolderError, InstallError};
use crate::launch::last_lines;
use crate::plan::{System, folder, write};
use crate::{Need, Peer, Progress};

pub(crate) use maven::Coordinates;
pub use needs::java;

const MARKER: &str = "installed.json";

/// Description of installed software.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Installed {
    /// Version as the package reports it.
    pub version: String,
    /// The requested version; a different one is reinstalled.
    pub pinned: String,
    /// Programs contain their own place: if moved, they are reinstalled.
    pub place: PathBuf,
    pub took_seconds: u64,
    pub bytes: u64,
}

/// A package to be installed: a server, or a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) needs: &'static [Need],
}

impl From<&Peer> for Package {
    fn from(peer: &Peer) -> Self {
        Self { name: peer.name, version: peer.version, needs: peer.needs }
    }
}

/// Assembles one package.
pub(crate) struct Installer<'a> {
    pub(crate) package: Package,
    /// Everything is written here first.
    pub(crate) staging: PathBuf,
    /// Final place.
    pub(crate) place: PathBuf,
    pub(crate) log: PathBuf,
    /// A Postroad binary set by the user.
    pub(crate) postroad: Option<PathBuf>,
    progress: &'a dyn Progress,
}

/// The installed software, if it is complete, of this version and in its place.
pub(crate) fn installed(place: &Path, package: impl Into<Package>) -> Option<Installed> {
    let text = fs::read(place.join(MARKER)).ok()?;
    let marker: Installed = serde_json::from_slice(&text).ok()?;
    (marker.pinned == package.into().version && marker.place == place).then_some(marker)
}

/// Installs a peer at `home/software`, replacing an existing one.
pub(crate) fn install(
    system: &dyn System,
    home: &Path,
    postroad: Option<PathBuf>,
    progress: &dyn Progress,
) -> Result<Installed, InstallError> {
    let package = Package::from(system.peer());
    put(package, home, postroad, progress, |installer| system.install(installer))
}

/// Installs a package at `home/software`. `fill` creates its files, and returns the version if it
/// is not known before.
pub(crate) fn put(
    package: Package,
    home: &Path,
    postroad: Option<PathBuf>,
    progress: &dyn Progress,
    fill: impl FnOnce(&Installer<'_>) -> Result<Option<String>, InstallError>,
) -> Result<Installed, InstallError> {
    needs::check(package)?;
    let begun = Instant::now();
    let (place, staging) = (home.join("software"), home.join("software.unfinished"));
    remove(&staging)?;
    folder(staging.clone())?;
    let log = home.join("install.log");
    write(&log, "")?;
    let (staged, at) = (staging.clone(), place.clone());
    let installer = Installer { package, staging: staged, place: at, log, postroad, progress };
    let found = fill(&installer)?;
    let marker = Installed {
        version: found.unwrap_or_else(|| package.version.to_owned()),
        pinned: package.version.to_owned(),
        place: place.clone(),
        took_seconds: begun.elapsed().as_secs(),
        bytes: size(&staging),
    };
    // A string and numbers: this cannot fail.
    let text = serde_json::to_vec_pretty(&marker).unwrap_or_default();
    write(&staging.join(MARKER), text)?;
    remove(&place)?;
    fs::rename(&staging, &place).map_err(FolderError::new("create", &place))?;
    let megabytes = marker.bytes >> 20;
    let version = &marker.version;
    progress.say(
        package.name,
        &format!("installed {version} in {} s, {megabytes} MB", marker.took_seconds),
    );
    Ok(marker)
}

impl Installer<'_> {
    pub(crate) fn say(&self, what: &str) {
        self.progress.say(self.package.name, what);
    }

    /// Runs a command to its end, with its output in the log.
    pub(crate) fn run(&self, mut command: Command, what: &str) -> Result<(), InstallError> {
        let log = fs::OpenOptions::new()
            .append(true)
            .open(&self.log)
            .map_err(FolderError::new("open", &self.log))?;
        let errors = log.try_clone().map_err(FolderError::new("open", &self.log))?;
        let status = command.stdin(Stdio::null()).stdout(log).stderr(errors).status();
        let status = status.map_err(|why| InstallError::NotRun { what: what.to_owned(), why })?;
        if status.success() {
            return Ok(());
        }
        Err(InstallError::Command {
            what: what.to_owned(),
            status: status.to_string(),
            log: self.log.clone(),
            details: last_lines(&self.log),
        })
    }

    /// All files with this name below the folder.
    pub(crate) fn named(&self, inside: &str, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        files(&self.staging.join(inside), &mut found);
        found.retain(|file| file.file_name().is_some_and(|of_file| of_file == name));
        found
    }

    /// Fails unless the installation contains this path.
    pub(crate) fn expect(&self, inside: &str) -> Result<PathBuf, InstallError> {
        let path = self.staging.join(inside);
        match path.exists() {
            true => Ok(path),
            false => Err(InstallError::Incomplete { peer: self.package.name, path }),
        }
    }
}

/// Removes a folder with its content, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), FolderError> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(FolderError::new("remove", path)(why))
        }
        _ => Ok(()),
    }
}

/// Size of all files below the path.
fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => size(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Collects all files below the path, except links.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Site};
    use crate::{Silent, Source, StartError};

    static PEER: Peer = Peer {
        name: "test",
        title: "Test",
        version: "1",
        source: Source::Own,
        needs: &[],
        tiers: &[],
        cluster_tiers: &[],
        ports: &[],
        note: "",
    };

    /// A test system that is installed by writing a file, or fails half-way.
    struct Written {
        fails: bool,
    }

    impl System for Written {
        fn peer(&self) -> &'static Peer {
            &PEER
        }

        fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
            write(&installer.staging.join("server"), "a server")?;
            if self.fails {
                installer.run(Command::new("false"), "a step")?;
            }
            Ok(None)
        }

        fn plan(&self, _: &Site) -> Result<Plan, StartError> {
            unreachable!("it is not started")
        }
    }

    #[test]
    fn failed_installation_leaves_nothing_installed() {
        let home = tempfile::tempdir().expect("a folder");
        let outcome = install(&Written { fails: true }, home.path(), None, &Silent);
        let failure = outcome.expect_err("a step fails");
        assert!(failure.to_string().starts_with("a step ended with exit status: 1"), "{failure}");
        assert_eq!(installed(&home.path().join("software"), &PEER), None);
        install(&Written { fails: false }, home.path(), None, &Silent).expect("it is tried again");
        let marker = installed(&home.path().join("software"), &PEER).expect("it is installed");
        assert_eq!((marker.version.as_str(), marker.bytes), ("1", 8));
    }

    #[test]
    fn installation_of_another_version_or_place_does_not_count() {
        let home = tempfile::tempdir().expect("a folder");
        install(&Written { fails: false }, home.path(), None, &Silent).expect("it is installed");
        let newer = Peer { version: "2", ..PEER };
        assert_eq!(installed(&home.path().join("software"), &newer), None);
        let moved = home.path().join("elsewhere");
        fs::rename(home.path().join("software"), &moved).expect("it can be moved");
        assert_eq!(installed(&moved, &PEER), None);
    }
}
