//! Installation from Debian packages without root: fetched by `apt-get` with its own lists, and
//! unpacked into a folder with all their dependencies, including the C library. Their programs are
//! then patched to start through the loader of that folder. So they run on any distribution with
//! `apt-get`, independently of installed packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Installer, elf, files};
use crate::errors::{FolderError, InstallError};
use crate::launch::hermetic;
use crate::plan::{folder, write};

/// Debian release of the packages.
const RELEASE: &str = "trixie";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Environment variable with the mirror, if this machine's own lists have none.
const MIRROR: &str = "POSTROAD_BENCH_DEBIAN_MIRROR";

#[cfg(target_arch = "x86_64")]
mod machine {
    pub(super) const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
    pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
}
#[cfg(not(target_arch = "x86_64"))]
mod machine {
    pub(super) const LOADER: &str = "usr/lib/ld-linux-aarch64.so.1";
    pub(super) const LIBRARIES: &str = "usr/lib/aarch64-linux-gnu";
}
use machine::{LIBRARIES, LOADER};

impl Installer<'_> {
    /// Unpacks a package with its dependencies. Returns its upstream version.
    pub(crate) fn debian(&self, package: &str) -> Result<String, InstallError> {
        let apt = Apt::prepare(self)?;
        self.say("reading Debian's lists");
        self.run(apt.command(&["update", "-q"]), "apt-get update")?;
        self.say("fetching packages (Debian)");
        self.run(
            apt.command(&[
                "install",
                "-q",
                "-y",
                "--no-install-recommends",
                "--download-only",
                package,
                "patchelf",
            ]),
            "apt-get install --download-only",
        )?;
        self.say("unpacking");
        let mut version = None;
        for archive in apt.archives()? {
            let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(found) = version_in(name, package) {
                version = Some(found);
            }
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("--extract").arg(&archive).arg(&self.staging);
            self.run(unpack, "dpkg-deb")?;
        }
        super::remove(&apt.folder)?;
        self.use_own_loader()?;
        version.ok_or(InstallError::Incomplete {
            peer: self.package.name,
            path: self.staging.join(package),
        })
    }

    /// Makes every program use the loader and the libraries of its final place.
    fn use_own_loader(&self) -> Result<(), InstallError> {
        let loader = self.expect(LOADER)?;
        let libraries = self.expect(LIBRARIES)?;
        let patchelf = self.expect("usr/bin/patchelf")?;
        let mut found = Vec::new();
        files(&self.staging.join("usr"), &mut found);
        found.retain(|file| *file != patchelf && elf::is_program(file));
        let mut patch = hermetic(&loader, &self.staging);
        patch.arg("--library-path").arg(&libraries).arg(&patchelf);
        patch.arg("--set-interpreter").arg(self.place.join(LOADER));
        // Only the older form (RPATH) also applies to the dependencies of libraries.
        patch.arg("--force-rpath").arg("--set-rpath").arg(self.place.join(LIBRARIES)).args(found);
        self.run(patch, "patchelf")
    }
}

/// `apt-get` with its own lists, configuration and downloads.
struct Apt {
    folder: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    fn prepare(installer: &Installer<'_>) -> Result<Self, InstallError> {
        let root = folder(installer.staging.join("apt"))?;
        for inside in ["state/lists/partial", "cache/archives/partial"] {
            folder(root.join(inside))?;
        }
        let mirror = mirror().ok_or(InstallError::Missing {
            peer: installer.package.name,
            what: "a Debian mirror".to_owned(),
            remedy: "name one: POSTROAD_BENCH_DEBIAN_MIRROR=http://.../debian",
        })?;
        if !Path::new(KEYS).exists() {
            return Err(InstallError::Missing {
                peer: installer.package.name,
                what: "Debian's keys".to_owned(),
                remedy: "install them (apt-get install debian-archive-keyring)",
            });
        }
        let path = root.display();
        // This machine's lists and installed packages are ignored, so that all dependencies are
        // fetched; its proxies apply. Its hooks after an update are disabled.
        let configuration = format!(
            r#"Dir::State "{path}/state";
Dir::State::status "{path}/status";
Dir::Cache "{path}/cache";
Dir::Etc::sourcelist "{path}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
Debug::NoLocking "true";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
"#
        );
        write(&root.join("apt.conf"), configuration)?;
        write(&root.join("status"), "")?;
        write(
            &root.join("sources.list"),
            format!("deb [signed-by={KEYS}] {mirror} {RELEASE} main\n"),
        )?;
        Ok(Self { configuration: root.join("apt.conf"), folder: root })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-c").arg(&self.configuration).args(arguments);
        command.env("LANG", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// The fetched packages.
    fn archives(&self) -> Result<Vec<PathBuf>, FolderError> {
        let folder = self.folder.join("cache/archives");
        let entries = fs::read_dir(&folder).map_err(FolderError::new("read", &folder))?;
        let paths = entries.flatten().map(|entry| entry.path());
        Ok(paths.filter(|path| path.extension().is_some_and(|kind| kind == "deb")).collect())
    }
}

/// The mirror set by the user, or that of this machine.
fn mirror() -> Option<String> {
    if let Ok(named) = std::env::var(MIRROR) {
        return Some(named);
    }
    let mut ask = Command::new("apt-get");
    ask.args(["indextargets", "--format", "$(REPO_URI)"]).stdin(Stdio::null());
    let output = ask.output().ok()?;
    mirror_among(&String::from_utf8_lossy(&output.stdout))
}

/// Debian's main archive has this name on every mirror.
fn mirror_among(repositories: &str) -> Option<String> {
    let found = repositories.lines().find(|line| line.trim_end_matches('/').ends_with("/debian"));
    found.map(str::to_owned)
}

/// Extracts `4.0.5` from `rabbitmq-server_4.0.5-6+deb13u2_all.deb`; an epoch is left out.
fn version_in(archive: &str, package: &str) -> Option<String> {
    let rest = archive.strip_prefix(package)?.strip_prefix('_')?;
    let (version, _) = rest.split_once('_')?;
    let version = version.rsplit_once("%3a").map_or(version, |(_, version)| version);
    let upstream = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    Some(upstream.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_version_is_extracted_from_a_package_name() {
        let read = |archive| version_in(archive, "redis-server");
        assert_eq!(read("redis-server_5%3a8.0.2-3+deb13u1_amd64.deb").as_deref(), Some("8.0.2"));
        assert_eq!(read("redis-server_8.0.2-3_amd64.deb").as_deref(), Some("8.0.2"));
        assert_eq!(read("redis-server-doc_8.0.2-3_amd64.deb"), None);
    }

    #[test]
    fn the_main_archive_is_chosen_among_a_machines_repositories() {
        let repositories = "http://mirror/debian-security/\nhttp://mirror/debian/\nhttp://x/y/\n";
        assert_eq!(mirror_among(repositories).as_deref(), Some("http://mirror/debian/"));
        assert_eq!(mirror_among("http://mirror/ubuntu/\n"), None);
    }
}
