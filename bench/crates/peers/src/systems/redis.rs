use tier::Tier;

use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

pub(super) struct Redis;

static PEER: Peer = Peer {
    name: "redis",
    title: "Redis",
    version: "8.0.2",
    source: Source::Debian,
    needs: &[Need::Apt],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[],
    ports: &[("redis", 24_400)],
    note: "T1 is appendfsync no, not everysec: the latter holds writes back while it syncs. Replicas \
           are not waited for, so there is no tier of a majority",
};

impl System for Redis {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let version = installer.debian("redis-server")?;
        installer.expect("usr/bin/redis-server")?;
        Ok(Some(version))
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let port = site.port("redis", 1);
        let data = site.data(1)?;
        let path = site.config(1)?.join("redis.conf");
        let config = config(site).place("dir", format!("\"{}\"", data.display()));
        write(&path, config.render(" "))?;
        let program = site.software.join("usr/bin/redis-server");
        let launch = Launch::new(site, 1, program, Ready::Redis(port));
        let endpoint = Endpoint::new(1, "redis", site.address("redis", 1));
        let nodes = vec![launch.ports(&[port]).argument(path)];
        Ok(Plan::of(nodes, vec![endpoint]).with_settings(config.settings()))
    }
}

fn config(site: &Site) -> Config {
    let appended = site.tier > Tier::T0;
    let sync = if site.tier.is_synced() { "always" } else { "no" };
    Config::default()
        .place("port", site.port("redis", 1))
        .place("bind", "127.0.0.1")
        .set("save", "\"\"")
        .set_if(appended, "appendonly", "yes")
        .set_if(appended, "appendfsync", sync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_has_its_append_only_file() {
        let text = |tier| {
            let peer = &PEER;
            config(&Site::somewhere(peer, tier, 1)).render(" ")
        };
        assert!(!text(Tier::T0).contains("appendonly"));
        assert!(text(Tier::T1).contains("appendonly yes\nappendfsync no\n"));
        assert!(text(Tier::T3).contains("appendonly yes\nappendfsync always\n"));
    }
}
