use tier::Tier;

use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// NATS with JetStream.
pub(super) struct Nats;

static PEER: Peer = Peer {
    name: "nats",
    title: "NATS JetStream",
    version: "2.15.2",
    source: Source::GoProxy,
    needs: &[Need::Go],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[Tier::T2, Tier::T4],
    ports: &[("nats", 24_300), ("http", 24_301), ("cluster", 24_302)],
    note: "by default JetStream syncs every two minutes; T3 and T4 set sync_interval: always. T0 is \
           the same server with streams in memory, or core NATS",
};

impl System for Nats {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.go("github.com/nats-io/nats-server/v2", PEER.version, "nats-server")?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let mut nodes = Vec::new();
        for node in site.numbers() {
            let path = site.config(node)?.join("nats.conf");
            let jetstream = storage(site).place("store_dir", quoted(site.data(node)?.display()));
            let text = format!(
                "{}jetstream {{\n{}}}\n{}",
                place(site, node).render(": "),
                jetstream.render(": "),
                cluster(site, node)
            );
            write(&path, text)?;
            let http = site.port("http", node);
            let mut ports = vec![site.port("nats", node), http];
            ports.extend(site.is_cluster().then(|| site.port("cluster", node)));
            let program = site.software.join("bin/nats-server");
            let launch = Launch::new(site, node, program, Ready::Http(http, "/healthz"));
            nodes.push(launch.ports(&ports).argument("-c").argument(path));
        }
        let endpoint = |node| {
            ["nats", "http"].map(|spoken| Endpoint::new(node, spoken, site.address(spoken, node)))
        };
        let endpoints = site.numbers().flat_map(endpoint).collect();
        let settings = storage(site).settings().into_iter();
        let named = settings.map(|(name, value)| (format!("jetstream.{name}"), value)).collect();
        Ok(Plan::of(nodes, endpoints).with_settings(named))
    }
}

fn place(site: &Site, node: u32) -> Config {
    Config::default()
        .place("server_name", format!("bench-{node}"))
        .place("host", "127.0.0.1")
        .place("port", site.port("nats", node))
        .place("http", quoted(site.address("http", node)))
}

fn storage(site: &Site) -> Config {
    Config::default().set_if(site.tier.is_synced(), "sync_interval", "always")
}

fn cluster(site: &Site, node: u32) -> String {
    if !site.is_cluster() {
        return String::new();
    }
    let route = |node| quoted(format!("nats://{}", site.address("cluster", node)));
    let routes: Vec<String> = site.numbers().map(route).collect();
    let config = Config::default()
        .place("name", "bench")
        .place("listen", quoted(site.address("cluster", node)))
        .place("routes", format!("[{}]", routes.join(", ")));
    format!("cluster {{\n{}}}\n", config.render(": "))
}

fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_synced_tiers_sync_always() {
        let site = |tier| Site::somewhere(&PEER, tier, 1);
        assert_eq!(storage(&site(Tier::T3)).render(": "), "sync_interval: always\n");
        assert_eq!(storage(&site(Tier::T1)).render(": "), "");
    }
}
