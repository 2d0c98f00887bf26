use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::Signal;
use tier::Tier;

use crate::config::Config;
use crate::errors::{FolderError, InstallError, StartError};
use crate::install::Installer;
use crate::launch::{Launch, hermetic, run};
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// PostgreSQL, as a queue with SKIP LOCKED.
pub(super) struct Postgres;

static PEER: Peer = Peer {
    name: "postgres",
    title: "PostgreSQL",
    version: "17",
    source: Source::Debian,
    needs: &[Need::Apt],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[],
    ports: &[("postgres", 24_700)],
    note: "synced by default. T1 is fsync=off (written before the commit returns); T0 is \
           synchronous_commit=off (written after it)",
};

const PROGRAMS: &str = "usr/lib/postgresql/17/bin";

/// The server refuses to run as root; this user exists on every machine.
const NOBODY: u32 = 65_534;

impl System for Postgres {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let version = installer.debian("postgresql-17")?;
        installer.expect(&format!("{PROGRAMS}/postgres"))?;
        Ok(Some(version))
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let port = site.port("postgres", 1);
        let data = site.data(1)?;
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        let programs = site.software.join(PROGRAMS);
        if let Some(user) = user {
            chown(&data, Some(user), Some(user)).map_err(FolderError::new("give away", &data))?;
            can_enter(&data)?;
        }
        if !data.join("PG_VERSION").exists() {
            let mut initdb = hermetic(&programs.join("initdb"), &data);
            initdb.args(["--username=postgres", "--auth=trust", "--no-instructions"]);
            initdb.args(["--encoding=UTF8", "--locale=C", "--pgdata"]).arg(&data);
            if let Some(user) = user {
                use std::os::unix::process::CommandExt;
                initdb.uid(user).gid(user);
            }
            initdb.current_dir(&data);
            run(initdb, "initdb", &site.log("initdb", 1))?;
        }
        let config = config(site);
        let path = data.join("postgresql.conf");
        write(&path, config.render(" = "))?;
        let launch = Launch::new(site, 1, programs.join("postgres"), Ready::Postgres(port))
            .ports(&[port])
            .argument("-D")
            .argument(&data)
            .folder(&data)
            .user(user)
            // "Fast" mode: it does not wait for its clients to disconnect.
            .ending(Signal::INT);
        let endpoint = Endpoint::new(1, "postgres", site.address("postgres", 1));
        let plan = Plan::of(vec![launch], vec![endpoint]).with_settings(config.settings());
        Ok(Plan { user: Some("postgres".to_owned()), ..plan })
    }
}

fn config(site: &Site) -> Config {
    Config::default()
        .place("listen_addresses", "'127.0.0.1'")
        .place("port", site.port("postgres", 1))
        .place("unix_socket_directories", "''")
        .set("max_connections", 400)
        .set("shared_buffers", "1GB")
        .set("max_wal_size", "4GB")
        .set_if(site.tier == Tier::T1, "fsync", "off")
        .set_if(site.tier == Tier::T0, "synchronous_commit", "off")
}

/// Checks that other users can enter all parent folders.
fn can_enter(data: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS_ENTER: u32 = 0o001;
    for above in data.ancestors().skip(1) {
        let about = above.metadata().map_err(FolderError::new("look at", above))?;
        if about.permissions().mode() & OTHERS_ENTER == 0 {
            return Err(StartError::Unreachable {
                peer: PEER.name,
                user: "nobody",
                path: above.to_path_buf(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_tier_keeps_the_default_sync() {
        let text = |tier| {
            let peer = &PEER;
            config(&Site::somewhere(peer, tier, 1)).render(" = ")
        };
        assert!(!text(Tier::T3).contains("fsync") && !text(Tier::T3).contains("synchronous"));
        assert!(text(Tier::T1).contains("fsync = off\n"));
        assert!(text(Tier::T0).contains("synchronous_commit = off\n"));
    }
}
