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

/// Postroad itself: a binary that the user names, or a release build of this repository.
pub(super) struct Postroad;

static PEER: Peer = Peer {
    name: "postroad",
    title: "Postroad",
    version: "0.1.0",
    source: Source::Own,
    needs: &[],
    tiers: &[Tier::T3],
    cluster_tiers: &[],
    ports: &[("kafka", 24_000), ("amqp", 24_001)],
    note: "every acknowledgement is after a sync; there is no switch",
};

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
        // A copy: what is built meanwhile is not what was measured.
        let copy = folder(installer.staging.join("bin"))?.join("postroad");
        fs::copy(&binary, &copy).map_err(FolderError::new("copy", &binary))?;
        version(&copy).map(Some)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let (kafka, amqp) = (site.port("kafka", 1), site.port("amqp", 1));
        let launch = Launch::new(site, 1, site.software.join(BINARY), Ready::Kafka(kafka))
            .ports(&[kafka, amqp])
            // As for Kafka: the first member of a group does not wait for others.
            .environment("POSTROAD_KAFKA_CONFIG", "group.initial.rebalance.delay.ms=0")
            // Not as an argument: the user's own `--log` would be a second one.
            .environment("POSTROAD_LOG", "warn")
            .arguments(["serve", "--data"])
            .argument(site.data(1)?)
            .argument("--kafka")
            .argument(site.address("kafka", 1))
            .argument("--amqp")
            .argument(site.address("amqp", 1))
            .arguments(&site.arguments);
        let endpoints = ["kafka", "amqp"]
            .map(|protocol| Endpoint::new(1, protocol, site.address(protocol, 1)))
            .to_vec();
        let arguments = (!site.arguments.is_empty())
            .then(|| ("arguments".to_owned(), site.arguments.join(" ")));
        Ok(Plan {
            settings: arguments.into_iter().collect(),
            user: Some("guest".to_owned()),
            password: Some("guest".to_owned()),
            ..Plan::of(vec![launch], endpoints)
        })
    }
}

/// The workspace that this one stands in.
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
    // This workspace's choice of a compiler is not that one's.
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
