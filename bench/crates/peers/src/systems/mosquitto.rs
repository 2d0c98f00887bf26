use tier::Tier;

use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Eclipse Mosquitto, a broker of MQTT.
pub(super) struct Mosquitto;

static PEER: Peer = Peer {
    name: "mosquitto",
    title: "Eclipse Mosquitto",
    version: "2.0.21",
    source: Source::Debian,
    needs: &[Need::Apt],
    tiers: &[Tier::T0],
    cluster_tiers: &[],
    ports: &[("mqtt", 24_500)],
    note: "nothing is on disk when it acknowledges: its state is saved now and then, if at all",
};

impl System for Mosquitto {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let version = installer.debian("mosquitto")?;
        installer.expect("usr/sbin/mosquitto")?;
        Ok(Some(version))
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let port = site.port("mqtt", 1);
        let path = site.config(1)?.join("mosquitto.conf");
        let config = Config::default()
            .place("listener", format!("{port} 127.0.0.1"))
            .place("user", "root")
            .set("allow_anonymous", "true")
            // It drops messages above the limit, and the default is 1,000.
            .set("max_queued_messages", 0);
        write(&path, config.render(" "))?;
        let program = site.software.join("usr/sbin/mosquitto");
        let launch = Launch::new(site, 1, program, Ready::Mqtt(port));
        let endpoint = Endpoint::new(1, "mqtt", site.address("mqtt", 1));
        let nodes = vec![launch.ports(&[port]).argument("-c").argument(path)];
        Ok(Plan::of(nodes, vec![endpoint]).with_settings(config.settings()))
    }
}
