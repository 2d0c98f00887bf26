use tier::Tier;

use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, folder, read, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Apache Pulsar standalone: broker, bookie and metadata in one process.
pub(super) struct Pulsar;

static PEER: Peer = Peer {
    name: "pulsar",
    title: "Apache Pulsar",
    version: "4.0.8",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T1, Tier::T3],
    cluster_tiers: &[],
    ports: &[("pulsar", 24_800), ("http", 24_801)],
    note: "standalone.conf does not sync its journal; T3 sets journalSyncData=true",
};

const DISTRIBUTION: &str = "apache-pulsar-4.0.8";
/// The distribution's own options, with less memory.
const MEMORY: &str = "-Xms1g -Xmx1g -XX:MaxDirectMemorySize=1g";

impl System for Pulsar {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let coordinates = ("org.apache.pulsar", "pulsar-server-distribution", PEER.version);
        installer.tar(coordinates)?;
        installer.expect(&format!("{DISTRIBUTION}/bin/pulsar"))?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let home = site.software.join(DISTRIBUTION);
        let (data, config_folder) = (site.data(1)?, site.config(1)?);
        let config = config(site);
        // Later lines override those of the distribution.
        let text = read(&home.join("conf/standalone.conf"))?;
        let path = config_folder.join("standalone.conf");
        write(&path, format!("{text}\n{}", config.render("=")))?;
        let (port, http) = (site.port("pulsar", 1), site.port("http", 1));
        let ready = Ready::Http(http, "/admin/v2/brokers/health");
        let launch = Launch::new(site, 1, home.join("bin/pulsar"), ready)
            .ports(&[port, http])
            .environment("PULSAR_STANDALONE_CONF", path)
            .environment("PULSAR_MEM", MEMORY)
            .environment("PULSAR_LOG_DIR", folder(site.home.join("log"))?)
            // Otherwise its garbage collection log would be written beside the programs.
            .environment("PULSAR_GC_LOG", " ")
            .environment("PULSAR_LOG_ROOT_LEVEL", "warn")
            .environment("PULSAR_LOG_LEVEL", "warn")
            .arguments(["standalone", "-nfw", "-nss", "--bookkeeper-dir"])
            .argument(data.join("bookkeeper"))
            .argument("--metadata-dir")
            .argument(data.join("metadata"));
        let endpoints = vec![
            Endpoint::new(1, "pulsar", format!("pulsar://{}", site.address("pulsar", 1))),
            Endpoint::new(1, "http", format!("http://{}", site.address("http", 1))),
        ];
        let mut settings = config.settings();
        settings.insert("jvm".to_owned(), MEMORY.to_owned());
        settings
            .insert("arguments".to_owned(), "--no-functions-worker --no-stream-storage".to_owned());
        Ok(Plan::of(vec![launch], endpoints).with_settings(settings))
    }
}

fn config(site: &Site) -> Config {
    Config::default()
        .place("bindAddress", "127.0.0.1")
        .place("advertisedAddress", "127.0.0.1")
        // For the bookie, which uses a free port.
        .place("allowLoopback", "true")
        .place("listeningInterface", "lo")
        .place("brokerServicePort", site.port("pulsar", 1))
        .place("webServicePort", site.port("http", 1))
        .set_if(site.tier.is_synced(), "journalSyncData", "true")
}
