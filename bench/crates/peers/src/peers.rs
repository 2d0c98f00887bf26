//! A folder of peers, and the operations on them.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tier::Tier;

use crate::errors::{FolderError, InstallError, OpenError, StartError, StopError};
use crate::install::{self, Installed};
use crate::launch::{self, Launch};
use crate::lifecycle::{can_hold, end, ensure_ports_free, wait_until_ready};
use crate::plan::{Plan, Site, folder, write};
use crate::running::BROKER;
use crate::{Peer, Process, Progress, Running, catalog, disk, power};

const STATE: &str = "running.json";

/// The folder of installed peers, with a folder for each:
///
/// ```text
/// kafka/software/     the programs, with a marker
/// kafka/data/of-N/    data, by number of nodes
/// kafka/config/ log/  configuration files and logs
/// kafka/running.json  the started processes
/// ```
///
/// All but the software may be in [another folder](Self::with_data_dir).
#[derive(Debug)]
pub struct Peers {
    dir: PathBuf,
    data_dir: PathBuf,
    postroad: Option<PathBuf>,
    postroad_arguments: Vec<String>,
}

/// State of one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    pub peer: &'static Peer,
    pub installed: Option<Installed>,
    pub running: Option<Running>,
}

impl Peers {
    /// Opens the folder, creating it if needed.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let dir = usable(dir)?;
        Ok(Self { data_dir: dir.clone(), dir, postroad: None, postroad_arguments: Vec::new() })
    }

    /// Keeps data, configuration, logs and the state of running servers in this folder, for example
    /// on another disk. It is created if needed.
    pub fn with_data_dir(mut self, data_dir: &Path) -> Result<Self, OpenError> {
        self.data_dir = usable(data_dir)?;
        Ok(self)
    }

    /// Uses this binary as Postroad, instead of a build of this repository.
    pub fn with_postroad(mut self, binary: PathBuf) -> Self {
        self.postroad = Some(binary);
        self
    }

    /// Adds arguments of `postroad serve`.
    pub fn with_postroad_arguments(mut self, arguments: Vec<String>) -> Self {
        self.postroad_arguments = arguments;
        self
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Folder of an installed peer's or tool's programs.
    pub(crate) fn software(&self, name: &str) -> PathBuf {
        self.dir.join(name).join("software")
    }

    /// Locks the folder for changes, since two processes would start the same server twice. Held
    /// until it is dropped, or its process ends.
    pub fn lock(&self) -> Result<File, OpenError> {
        let path = self.data_dir.join("lock");
        let file = File::create(&path).map_err(FolderError::new("create", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: self.data_dir.clone() }),
            Err(TryLockError::Error(why)) => Err(FolderError::new("lock", &path)(why).into()),
        }
    }

    /// Installs a peer, unless it is installed.
    pub fn install(&self, name: &str, progress: &dyn Progress) -> Result<Installed, InstallError> {
        let system = catalog::find(name)?;
        let peer = system.peer();
        let place = folder(self.dir.join(peer.name))?;
        if let Some(marker) = self.installed(peer) {
            // A build of this repository may be outdated.
            let may_be_old = peer.needs.is_empty() && self.live(peer).is_none();
            if !may_be_old {
                return Ok(marker);
            }
        }
        if self.live(peer).is_some() {
            return Err(InstallError::Running { peer: peer.name });
        }
        install::install(system, &place, self.postroad.clone(), progress)
    }

    /// Starts a peer, which must be installed and not run, and waits until it serves. Existing data
    /// is kept.
    pub fn start(
        &self,
        name: &str,
        tier: Tier,
        nodes: u32,
        progress: &dyn Progress,
    ) -> Result<Running, StartError> {
        let system = catalog::find(name)?;
        let peer = system.peer();
        can_hold(peer, tier, nodes)?;
        let installed = self.installed(peer).ok_or(StartError::NotInstalled { peer: peer.name })?;
        if let Some(running) = self.live(peer) {
            return Err(StartError::Running {
                peer: peer.name,
                tier: running.tier,
                nodes: running.nodes,
            });
        }
        let site = self.site(peer, tier, nodes);
        folder(site.home.clone())?;
        let begun = Instant::now();
        progress.say(peer.name, &format!("starting {nodes} node(s) at {tier}"));
        let plan = system.plan(&site)?;
        for launch in plan.helpers.iter().chain(&plan.nodes) {
            ensure_ports_free(peer, launch)?;
        }
        let mut running = Running {
            name: peer.name.to_owned(),
            version: installed.version,
            tier,
            nodes,
            endpoints: plan.endpoints.clone(),
            user: plan.user.clone(),
            password: plan.password.clone(),
            processes: Vec::new(),
            settings: plan.settings.clone(),
            data_dir: site.data_root(),
            log: site.log(BROKER, 1),
        };
        if let Err(failure) = self.bring_up(&site, plan, &mut running) {
            // All started processes are ended; the error that counts is that of the start.
            let _ = end(peer, &running.processes.iter().collect::<Vec<_>>(), false);
            self.forget(peer)?;
            return Err(failure);
        }
        let seconds = begun.elapsed().as_secs_f64();
        progress.say(peer.name, &format!("serves after {seconds:.1} s"));
        Ok(running)
    }

    /// Running peers that were started from this folder.
    pub fn running(&self) -> Vec<Running> {
        catalog().into_iter().filter_map(|peer| self.live(peer)).collect()
    }

    /// State of every peer.
    pub fn states(&self) -> Vec<State> {
        let state =
            |peer| State { peer, installed: self.installed(peer), running: self.live(peer) };
        catalog().into_iter().map(state).collect()
    }

    /// Stops a peer gracefully: all of its nodes, then its helpers.
    pub fn stop(&self, name: &str) -> Result<(), StopError> {
        let peer = catalog::find(name)?.peer();
        let running = self.live(peer).ok_or(StopError::NotRunning { peer: peer.name })?;
        let (nodes, helpers): (Vec<&Process>, Vec<&Process>) =
            running.processes.iter().partition(|process| process.role == BROKER);
        end(peer, &nodes, true)?;
        end(peer, &helpers, true)?;
        Ok(self.forget(peer)?)
    }

    /// Stops a peer, if it runs, and removes its data.
    pub fn clear(&self, name: &str) -> Result<(), StopError> {
        match self.stop(name) {
            Ok(()) | Err(StopError::NotRunning { .. }) => self.wipe(name),
            Err(failure) => Err(failure),
        }
    }

    /// Kills all running processes of a peer.
    pub(crate) fn end_all(&self, name: &str) -> Result<(), StopError> {
        let peer = catalog::find(name)?.peer();
        let Some(running) = self.live(peer) else { return Ok(()) };
        end(peer, &running.processes.iter().collect::<Vec<_>>(), false)?;
        Ok(self.forget(peer)?)
    }

    /// Removes all data, configuration and logs of a peer that does not run. Its software is kept.
    pub fn wipe(&self, name: &str) -> Result<(), StopError> {
        let peer = catalog::find(name)?.peer();
        if self.live(peer).is_some() {
            return Err(StopError::Runs { peer: peer.name });
        }
        let data = self.data_of(peer);
        disk::unmount(&data)?;
        let image = power::image_of(&data);
        if image.exists() {
            fs::remove_file(&image).map_err(FolderError::new("remove", &image))?;
        }
        for inside in ["data", "config", "log"] {
            install::remove(&self.home(peer).join(inside))?;
        }
        Ok(self.forget(peer)?)
    }

    fn bring_up(&self, site: &Site, plan: Plan, running: &mut Running) -> Result<(), StartError> {
        for helper in &plan.helpers {
            self.spawn(site, helper, running)?;
            if let Some(process) = running.processes.last_mut() {
                process.identity = wait_until_ready(site.peer, helper, &process.identity, 1)?;
            }
        }
        let first = running.processes.len();
        for launch in &plan.nodes {
            self.spawn(site, launch, running)?;
        }
        for (index, launch) in plan.nodes.iter().enumerate() {
            let process = &mut running.processes[first + index];
            process.identity = wait_until_ready(site.peer, launch, &process.identity, site.nodes)?;
        }
        if let Some(check) = plan.check {
            launch::run(check, "the check of the cluster", &site.log("check", 1))?;
        }
        Ok(self.record(site.peer, running)?)
    }

    /// Recorded before anything else can fail.
    fn spawn(&self, site: &Site, launch: &Launch, running: &mut Running) -> Result<(), StartError> {
        running.processes.push(Process {
            node: launch.node,
            role: launch.role.to_owned(),
            identity: launch.spawn()?,
            log: launch.log.clone(),
            ending: launch.ending.as_raw(),
        });
        Ok(self.record(site.peer, running)?)
    }

    /// Folder of a peer's data, configuration, logs and state.
    fn home(&self, peer: &Peer) -> PathBuf {
        self.data_dir.join(peer.name)
    }

    /// Data folder of a peer, for any number of nodes.
    pub(crate) fn data_of(&self, peer: &Peer) -> PathBuf {
        self.home(peer).join("data")
    }

    pub(crate) fn site(&self, peer: &'static Peer, tier: Tier, nodes: u32) -> Site {
        let arguments = self.postroad_arguments.clone();
        let (software, home) = (self.software(peer.name), self.home(peer));
        Site { peer, software, home, tier, nodes, arguments }
    }

    fn installed(&self, peer: &Peer) -> Option<Installed> {
        install::installed(&self.software(peer.name), peer)
    }

    /// The last start, whether it still runs or not.
    pub(crate) fn recorded(&self, peer: &Peer) -> Option<Running> {
        let text = fs::read(self.home(peer).join(STATE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The last start, if any of its processes still runs.
    pub(crate) fn live(&self, peer: &Peer) -> Option<Running> {
        self.recorded(peer)
            .filter(|running| running.processes.iter().any(|process| process.identity.runs()))
    }

    pub(crate) fn record(&self, peer: &Peer, running: &Running) -> Result<(), FolderError> {
        // Text and numbers: this cannot fail.
        let text = serde_json::to_vec_pretty(running).unwrap_or_default();
        let (path, new) = (self.home(peer).join(STATE), self.home(peer).join("running.json.new"));
        write(&new, text)?;
        fs::rename(&new, &path).map_err(FolderError::new("write", &path))
    }

    fn forget(&self, peer: &Peer) -> Result<(), FolderError> {
        let path = self.home(peer).join(STATE);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                Err(FolderError::new("remove", &path)(why))
            }
            _ => Ok(()),
        }
    }
}

/// The full path of a folder, which is created if needed.
fn usable(path: &Path) -> Result<PathBuf, OpenError> {
    let path = folder(path.to_path_buf())?;
    let path = path.canonicalize().map_err(FolderError::new("find", &path))?;
    match path.to_string_lossy().contains(char::is_whitespace) {
        true => Err(OpenError::Space { path }),
        false => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;
    use crate::Identity;

    #[test]
    fn data_folder_may_differ_from_the_software_folder() {
        let (dir, data) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        let peers = Peers::open(dir.path()).and_then(|peers| peers.with_data_dir(data.path()));
        let peers = peers.expect("they are made");
        let redis = catalog::find("redis").expect("there is one").peer();
        let site = peers.site(redis, Tier::T3, 1);
        assert!(site.software.starts_with(peers.dir()), "{site:?}");
        assert!(site.data_root().starts_with(peers.data_dir()), "{site:?}");
        assert!(matches!(peers.console("redis"), Err(StartError::NoNode { .. })));
    }
    use crate::Silent;

    #[test]
    fn unsupported_tier_is_rejected_with_the_supported_ones() {
        let kafka = catalog::find("kafka").expect("there is one").peer();
        let refused = can_hold(kafka, Tier::T4, 1).expect_err("one node is no majority");
        assert_eq!(
            refused.to_string(),
            "kafka cannot hold T4 (synced to the disks of a majority) on 1 node(s); it can: \
             T1, T3 on 1 node; T2, T4 on 3 nodes"
        );
        assert!(can_hold(kafka, Tier::T4, 3).is_ok());
        let redis = catalog::find("redis").expect("there is one").peer();
        let refused = can_hold(redis, Tier::T3, 3).expect_err("it has no cluster here");
        assert_eq!(refused.to_string(), "redis runs here on 1 node(s), not on 3");
    }

    #[test]
    fn start_fails_without_an_installation() {
        let dir = tempfile::tempdir().expect("a folder");
        let peers = Peers::open(dir.path()).expect("it is made");
        let refused = peers.start("nats", Tier::T3, 1, &Silent).expect_err("it is not installed");
        assert!(refused.to_string().contains("peers install nats"), "{refused}");
    }

    #[test]
    fn folder_with_a_space_is_rejected() {
        let dir = tempfile::tempdir().expect("a folder");
        let refused = Peers::open(&dir.path().join("my peers")).expect_err("it has a space");
        assert!(refused.to_string().contains("--peers-dir"), "{refused}");
    }

    #[test]
    fn folder_lock_is_exclusive() {
        let dir = tempfile::tempdir().expect("a folder");
        let peers = Peers::open(dir.path()).expect("it is made");
        let held = peers.lock().expect("nobody has it");
        assert!(matches!(peers.lock(), Err(OpenError::InUse { .. })));
        drop(held);
        peers.lock().expect("it was given back");
    }

    /// The recorded process is not the one that was started: its id is in use again.
    #[test]
    fn process_not_started_here_is_never_stopped() {
        let dir = tempfile::tempdir().expect("a folder");
        let peers = Peers::open(dir.path()).expect("it is made");
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().expect("it runs");
        let identity = Identity::of(stranger.id()).expect("it runs");
        let mut earlier = serde_json::to_value(&identity).expect("it is text and numbers");
        earlier["started_ticks"] = 1.into();
        let process = Process {
            node: 1,
            role: BROKER.to_owned(),
            identity: serde_json::from_value(earlier).expect("it is one"),
            log: dir.path().join("log"),
            ending: Signal::TERM.as_raw(),
        };
        let redis = catalog::find("redis").expect("there is one").peer();
        folder(peers.home(redis)).expect("it is made");
        let running = Running {
            name: "redis".to_owned(),
            version: "8".to_owned(),
            tier: Tier::T3,
            nodes: 1,
            endpoints: Vec::new(),
            user: None,
            password: None,
            processes: vec![process.clone()],
            settings: Default::default(),
            data_dir: dir.path().to_path_buf(),
            log: dir.path().join("log"),
        };
        peers.record(redis, &running).expect("it is written");
        assert!(matches!(peers.stop("redis"), Err(StopError::NotRunning { .. })));
        assert!(matches!(peers.kill("redis", 1), Err(StopError::NotRunning { .. })));
        end(redis, &[&process], false).expect("there is nothing to end");
        assert!(identity.runs());
        stranger.kill().and_then(|()| stranger.wait()).expect("it can be killed");
    }
}
