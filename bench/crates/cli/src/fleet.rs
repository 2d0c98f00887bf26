//! Brokers that the suite brings up, and the faults that a test can inject into them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use driver::{Target, Tier};
use load::Watched;
use peers::{DiskError, Peers, Running, StartError, StopError};
use workloads::Faults;

use crate::arguments::Place;
use crate::failure::CliError;

/// Broker and protocol of each system.
const SERVED_BY: [(&str, &str, &str); 20] = [
    ("postroad-kafka", "postroad", "kafka"),
    ("postroad-share", "postroad", "kafka"),
    ("postroad-kmq", "postroad", "kafka"),
    ("postroad-amqp", "postroad", "amqp"),
    ("kafka", "kafka", "kafka"),
    ("kafka-share", "kafka", "kafka"),
    ("kmq", "kafka", "kafka"),
    ("rabbitmq-classic", "rabbitmq", "amqp"),
    ("rabbitmq-quorum", "rabbitmq", "amqp"),
    ("rabbitmq-stream", "rabbitmq", "amqp"),
    ("nats-jetstream", "nats", "nats"),
    ("nats-core", "nats", "nats"),
    ("redis", "redis", "redis"),
    ("postgres", "postgres", "postgres"),
    ("artemis", "artemis", "amqp"),
    ("activemq", "activemq", "amqp"),
    ("mqtt", "mosquitto", "mqtt"),
    ("pulsar", "pulsar", "pulsar"),
    ("rocketmq", "rocketmq", "broker"),
    ("sqs", "elasticmq", "sqs"),
];

/// Management ports that drivers can query beside the tested port: the driver's setting, the
/// protocol of the port, and whether any node is queried or only the first.
const ASKED_AT: [(&str, &str, &str, Whom); 4] = [
    ("nats-jetstream", "monitor", "http", Whom::First),
    ("pulsar", "admin", "http", Whom::First),
    ("rabbitmq-quorum", "asked-at", "management", Whom::Any),
    ("postroad-amqp", "asked-at", "kafka", Whom::Any),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whom {
    First,
    Any,
}

/// A system to be tested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) system: String,
    /// Endpoint of a running system; `None`: it is brought up.
    pub(crate) endpoint: Option<String>,
}

impl Asked {
    pub(crate) fn parse(text: &str) -> Result<Self, CliError> {
        let (system, endpoint) = match text.split_once('=') {
            Some((system, endpoint)) => (system, Some(endpoint.to_owned())),
            None => (text, None),
        };
        let known = drivers::all().iter().any(|known| known.name == system);
        if !known {
            let names: Vec<&str> = drivers::all().iter().map(|known| known.name).collect();
            let names = names.join(", ");
            return Err(CliError::user(format!(
                "no system is named {system:?}; there are {names}"
            )));
        }
        Ok(Self { system: system.to_owned(), endpoint })
    }

    /// Broker to be brought up for it, and the protocol of the system.
    pub(crate) fn served_by(&self) -> Option<(&'static str, &'static str)> {
        if self.endpoint.is_some() {
            return None;
        }
        let found = SERVED_BY.into_iter().find(|(system, _, _)| *system == self.system);
        found.map(|(_, peer, protocol)| (peer, protocol))
    }
}

/// A system that can be tested now. Its broker, if started here, ends with it.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) target: Target,
    pub(crate) tier: Tier,
    /// Version of the installed package; the protocol may report less.
    pub(crate) version: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) faults: Option<Arc<dyn Faults>>,
    started: Option<Arc<Started>>,
}

#[derive(Debug)]
struct Started {
    peers: Peers,
    name: &'static str,
    tier: Tier,
    nodes: u32,
}

impl Started {
    /// Stops the broker, and removes its data and its own disk.
    fn clear(&self) -> Result<(), StopError> {
        self.peers.clear(self.name)
    }

    fn start(&self) -> Result<Running, StartError> {
        self.peers.start(self.name, self.tier, self.nodes, &Telling)
    }

    /// Restarts it without data on the disk that `mount` provides; restored if that fails.
    fn on_another_disk(
        &self,
        mount: impl FnOnce(&Self) -> Result<(), DiskError>,
    ) -> Result<(), String> {
        // Checked before anything is stopped, since it may not be permitted.
        Peers::can_mount().map_err(said)?;
        self.clear().map_err(said)?;
        let mounted = mount(self).map_err(said);
        let started = mounted.and_then(|()| self.start().map(drop).map_err(said));
        if started.is_err() {
            self.clear().map_err(said)?;
            self.start().map_err(said)?;
        }
        started
    }
}

impl Place {
    pub(crate) fn open(&self) -> Result<Peers, CliError> {
        let peers = Peers::open(&self.peers_dir).map_err(CliError::user)?;
        Ok(match &self.postroad {
            Some(binary) => peers.with_postroad(binary.clone()),
            None => peers,
        })
    }
}

/// Reports progress on stderr.
#[derive(Debug)]
pub(crate) struct Telling;

impl peers::Progress for Telling {
    fn say(&self, peer: &str, what: &str) {
        eprintln!("  {peer}: {what}");
    }
}

/// The highest tier up to the wanted one, or else the lowest.
pub(crate) fn tier_at_most(wanted: Tier, there: &[Tier]) -> Option<Tier> {
    let below = there.iter().copied().filter(|tier| *tier <= wanted).max();
    below.or_else(|| there.iter().copied().min())
}

/// Installs all brokers concurrently, since most of the time is spent on the network and nothing is
/// measured yet. A failed installation is retried, and its error reported, when its turn comes.
pub(crate) async fn install(asked: &[Asked], place: &Place) -> Result<(), CliError> {
    let served_by = asked.iter().filter_map(Asked::served_by);
    let names: BTreeSet<&'static str> = served_by.map(|(name, _)| name).collect();
    let peers = place.open()?;
    let installing = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            for name in names {
                let peers = &peers;
                scope.spawn(move || peers.install(name, &Telling));
            }
        });
    });
    installing.await.map_err(CliError::user)
}

/// Brings the system up (or uses the running one) at the tier, or at the nearest supported one.
pub(crate) async fn station(
    asked: &Asked,
    wanted: Tier,
    nodes: u32,
    place: &Place,
    client: Target,
) -> Result<Station, CliError> {
    let mut target = client;
    target.system.clone_from(&asked.system);
    let of_driver = drivers::connect(&target)?.about().tiers;
    let Some((name, protocol)) = asked.served_by() else {
        target.endpoints.extend(asked.endpoint.clone());
        let tier = tier_at_most(wanted, of_driver);
        let tier = tier.ok_or_else(|| CliError::user(format!("{} has no tier", asked.system)))?;
        let (version, settings, faults) = Default::default();
        return Ok(Station { target, tier, version, settings, faults, started: None });
    };
    let peer = peers::catalog().into_iter().find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| {
        let system = &asked.system;
        CliError::user(format!(
            "{system} cannot be brought up here: say where it runs, {system}=HOST:PORT"
        ))
    })?;
    let both: Vec<Tier> =
        peer.tiers_of(nodes).iter().copied().filter(|tier| of_driver.contains(tier)).collect();
    let tier = tier_at_most(wanted, &both).ok_or_else(|| {
        CliError::user(format!("{} has no form with {nodes} nodes here", peer.title))
    })?;
    let peers = place.open()?;
    let started = tokio::task::spawn_blocking(move || -> Result<_, CliError> {
        peers.install(name, &Telling).map_err(CliError::user)?;
        let started = Started { peers, name, tier, nodes };
        started.clear().map_err(CliError::user)?;
        let running = started.start().map_err(CliError::user)?;
        Ok((started, running))
    });
    let (started, running) = started.await.map_err(CliError::user)??;
    target.endpoints = running.addresses(protocol);
    if target.endpoints.is_empty() {
        let ended = tokio::task::spawn_blocking(move || started.clear());
        ended.await.map_err(CliError::user)?.map_err(CliError::user)?;
        let (system, title) = (&asked.system, peer.title);
        return Err(CliError::user(format!("{system}: {title} does not speak {protocol} here")));
    }
    // With several protocols, the user is meant for AMQP.
    if protocol != "kafka" {
        target.user = running.user.clone().or(target.user);
        target.password = running.password.clone().or(target.password);
    }
    let asks = ASKED_AT.iter().filter(|(system, ..)| *system == target.system);
    for (_, setting, spoken, whom) in asks {
        let addresses = running.addresses(spoken);
        let asked = match whom {
            Whom::First => addresses.first().cloned().unwrap_or_default(),
            Whom::Any => addresses.join(","),
        };
        if !asked.is_empty() {
            target.settings.entry((*setting).to_owned()).or_insert(asked);
        }
    }
    let started = Arc::new(started);
    Ok(Station {
        target,
        tier,
        version: Some(running.version.clone()),
        settings: running.settings.clone(),
        faults: Some(Arc::new(Reach(Arc::clone(&started)))),
        started: Some(started),
    })
}

impl Station {
    /// Stops the broker that was started for it, and removes its data.
    pub(crate) async fn end(self) -> Result<(), CliError> {
        let Some(started) = self.started else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || started.clear());
        ended.await.map_err(CliError::user)?.map_err(CliError::user)
    }
}

/// Faults that a test can inject into nodes that were started here.
#[derive(Debug)]
struct Reach(Arc<Started>);

impl Reach {
    async fn blocking<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Started) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let started = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || what(&started)).await;
        done.map_err(|panic| panic.to_string())?
    }
}

#[async_trait]
impl Faults for Reach {
    fn nodes(&self) -> u32 {
        self.0.nodes
    }

    async fn kill(&self, node: u32) -> Result<Instant, String> {
        self.blocking(move |it| it.peers.kill(it.name, node).map_err(said)).await
    }

    async fn stop(&self, node: u32) -> Result<Instant, String> {
        let stop = move |it: &Started| it.peers.stop_node(it.name, node);
        self.blocking(move |it| stop(it).map_err(said)).await
    }

    async fn pause(&self, node: u32) -> Result<Instant, String> {
        self.blocking(move |it| it.peers.pause(it.name, node).map_err(said)).await
    }

    async fn resume(&self, node: u32) -> Result<(), String> {
        self.blocking(move |it| it.peers.resume(it.name, node).map_err(said)).await
    }

    async fn start(&self, node: u32) -> Result<(), String> {
        let start = move |it: &Started| it.peers.restart(it.name, node);
        self.blocking(move |it| start(it).map(drop).map_err(said)).await
    }

    async fn confine(&self, bytes: u64) -> Result<(), String> {
        let confine = move |it: &Started| it.peers.confine(it.name, bytes);
        self.blocking(move |it| it.on_another_disk(confine)).await
    }

    async fn put_on_own_disk(&self, bytes: u64) -> Result<(), String> {
        let put = move |it: &Started| it.peers.put_on_own_disk(it.name, bytes);
        self.blocking(move |it| it.on_another_disk(put)).await
    }

    async fn cut_power(&self) -> Result<(), String> {
        self.blocking(|it| it.peers.cut_power(it.name).map_err(said)).await
    }

    async fn start_all(&self) -> Result<(), String> {
        self.blocking(|it| it.start().map(drop).map_err(said)).await
    }

    async fn enlarge(&self, bytes: u64) -> Result<(), String> {
        let enlarge = move |it: &Started| -> Result<(), String> {
            it.peers.enlarge(it.name, bytes).map_err(said)?;
            for node in 1..=it.nodes {
                match it.peers.restart(it.name, node) {
                    Ok(_) | Err(StartError::NodeRuns { .. }) => {}
                    Err(failure) => return Err(failure.to_string()),
                }
            }
            Ok(())
        };
        self.blocking(enlarge).await
    }

    async fn release(&self) -> Result<(), String> {
        let release = |it: &Started| -> Result<(), String> {
            it.clear().map_err(said)?;
            it.start().map(drop).map_err(said)
        };
        self.blocking(release).await
    }

    fn watched(&self) -> Vec<Watched> {
        let started = Arc::clone(&self.0);
        let pids = move || {
            let running = started.peers.running();
            let found = running.iter().find(|running| running.name == started.name);
            found.map(Running::pids).unwrap_or_default()
        };
        vec![Watched::new("broker", pids)]
    }
}

fn said(failure: impl std::fmt::Display) -> String {
    failure.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_supported_tier_is_taken() {
        use Tier::{T0, T1, T3, T4};
        assert_eq!(tier_at_most(T3, &[T1, T3]), Some(T3));
        assert_eq!(tier_at_most(T3, &[T0, T1]), Some(T1));
        assert_eq!(tier_at_most(T1, &[T3]), Some(T3));
        assert_eq!(tier_at_most(T4, &[]), None);
    }

    #[test]
    fn running_system_is_not_brought_up() {
        let asked = Asked::parse("memory=here").expect("is known");
        assert_eq!((asked.served_by(), asked.endpoint.as_deref()), (None, Some("here")));
        let error = Asked::parse("kafkaa").expect_err("is misspelt").to_string();
        assert!(error.contains("kafkaa") && error.contains("memory"));
    }
}
