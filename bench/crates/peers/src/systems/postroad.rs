use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tier::Tier;

use crate::errors::{FolderError, InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, folder};
use crate::ready::Ready;
use crate::{Endpoint, Peer, Source};

/// Postroad itself: a binary set by the user, or a release build of this repository.
pub(super) struct Postroad;

static PEER: Peer = Peer {
    name: "postroad",
    title: "Postroad",
    version: "0.1.0",
    source: Source::Own,
    needs: &[],
    tiers: &[Tier::T3],
    cluster_tiers: &[Tier::T2, Tier::T4],
    ports: &[("kafka", 24_000), ("amqp", 24_001), ("peer", 24_002)],
    note: "every acknowledgement is after a sync, in a cluster by a majority; T2 is of topics with \
           durability=replicated",
};

/// Protocols of its clients.
const SPOKEN: [&str; 2] = ["kafka", "amqp"];

const BINARY: &str = "bin/postroad";

impl System for Postroad {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let binary = match &installer.postroad {
            Some(named) => named.clone(),
            None => build(installer)?,
        };
        // A copy, so that a later build does not change the measured binary.
        let copy = folder(installer.staging.join("bin"))?.join("postroad");
        fs::copy(&binary, &copy).map_err(FolderError::new("copy", &binary))?;
        version(&copy).map(Some)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let nodes: Result<Vec<Launch>, StartError> =
            site.numbers().map(|node| launch(site, node)).collect();
        let endpoint = |node, protocol| Endpoint::new(node, protocol, site.address(protocol, node));
        let endpoints =
            site.numbers().flat_map(|node| SPOKEN.map(|protocol| endpoint(node, protocol)));
        let arguments = (!site.arguments.is_empty())
            .then(|| ("arguments".to_owned(), site.arguments.join(" ")));
        Ok(Plan {
            settings: arguments.into_iter().collect(),
            user: Some("guest".to_owned()),
            password: Some("guest".to_owned()),
            ..Plan::of(nodes?, endpoints.collect())
        })
    }
}

fn launch(site: &Site, node: u32) -> Result<Launch, StartError> {
    let program = site.software.join(BINARY);
    let mut launch = Launch::new(site, node, program, Ready::Kafka(site.port("kafka", node)))
        // As for Kafka: the first member of a group does not wait for others.
        .environment("POSTROAD_KAFKA_CONFIG", "group.initial.rebalance.delay.ms=0")
        // Several instances may run concurrently.
        .environment("POSTROAD_HTTP", "off")
        // Not as an argument, because the user may pass `--log` as well.
        .environment("POSTROAD_LOG", "warn")
        .arguments(["serve", "--data"])
        .argument(site.data(node)?);
    for protocol in SPOKEN {
        launch = launch
            .ports(&[site.port(protocol, node)])
            .argument(format!("--{protocol}"))
            .argument(site.address(protocol, node));
    }
    if site.is_cluster() {
        let seeds: Vec<String> = site.numbers().map(|node| site.address("peer", node)).collect();
        launch = launch
            .ports(&[site.port("peer", node)])
            .argument("--peer")
            .argument(site.address("peer", node))
            .argument("--seeds")
            .argument(seeds.join(","));
    }
    Ok(launch.arguments(&site.arguments))
}

/// Root of the repository that contains this workspace.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn build(installer: &Installer<'_>) -> Result<PathBuf, InstallError> {
    let root = repository();
    if !root.join("Cargo.toml").exists() {
        return Err(InstallError::Missing {
            peer: PEER.name,
            what: "its sources or a binary".to_owned(),
            remedy: "name the binary with --postroad",
        });
    }
    installer.say("building it (cargo, some minutes the first time)");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--package", "postroad"]).current_dir(&root);
    // The toolchain of this workspace does not apply to that one.
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO_TARGET_DIR");
    installer.run(cargo, "cargo build")?;
    Ok(root.join("target/release/postroad"))
}

/// The last word of `postroad --version`.
fn version(binary: &Path) -> Result<String, InstallError> {
    let not_run =
        |why| InstallError::NotRun { what: format!("{} --version", binary.display()), why };
    let output =
        Command::new(binary).arg("--version").stdin(Stdio::null()).output().map_err(not_run)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().last().map(str::to_owned);
    version.ok_or_else(|| not_run(std::io::Error::other("it says no version")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(site: &Site, node: u32) -> String {
        let launch = launch(site, node).expect("its folder can be made");
        let all: Vec<_> = launch.arguments.iter().map(|it| it.to_string_lossy()).collect();
        all.join(" ")
    }

    #[test]
    fn cluster_nodes_share_seeds_and_a_single_node_has_none() {
        let home = tempfile::tempdir().expect("a folder");
        let site = |tier, nodes| {
            let home = home.path().to_path_buf();
            Site { home, ..Site::somewhere(&PEER, tier, nodes) }
        };
        let cluster = site(Tier::T4, 3);
        let seeds = "--seeds 127.0.0.1:24002,127.0.0.1:24012,127.0.0.1:24022";
        for (node, own) in [(1, "24002"), (2, "24012"), (3, "24022")] {
            let text = arguments(&cluster, node);
            assert!(text.contains(&format!("--peer 127.0.0.1:{own} {seeds}")), "{text}");
            assert!(text.contains("--amqp 127.0.0.1:240"), "{text}");
        }
        let text = arguments(&site(Tier::T3, 1), 1);
        assert!(text.contains("--amqp 127.0.0.1:24001") && !text.contains("--peer"), "{text}");
        let plan = Postroad.plan(&cluster).expect("its folders can be made");
        let of_kafka = |it: &&Endpoint| it.protocol == "kafka";
        let kafka: Vec<_> = plan.endpoints.iter().filter(of_kafka).map(|it| it.node).collect();
        assert_eq!((plan.nodes.len(), kafka), (3, vec![1, 2, 3]));
    }
}
