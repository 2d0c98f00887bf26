use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tier::Tier;

use crate::config::Config;
use crate::errors::{FolderError, InstallError, StartError};
use crate::install::Installer;
use crate::launch::{Launch, hermetic};
use crate::plan::{Plan, Site, System, read, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// RabbitMQ with its own Erlang; one server has classic queues, quorum queues and streams.
pub(super) struct RabbitMq;

static PEER: Peer = Peer {
    name: "rabbitmq",
    title: "RabbitMQ",
    version: "4.0.5",
    source: Source::Debian,
    needs: &[Need::Apt],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[Tier::T2, Tier::T4],
    ports: &[
        ("amqp", 24_200),
        ("stream", 24_201),
        ("distribution", 24_202),
        ("epmd", 24_203),
        ("tool", 24_204),
        ("management", 24_205),
    ],
    note: "there is no switch: a quorum queue syncs before it confirms (T3, T4), a classic queue \
           (T1) and a stream (T1, T2) do not; T0 is a classic queue with transient messages. A \
           cluster has the management plugin, to be asked which node leads what, and its collector \
           of statistics is off",
};

const ERLANG: &str = "usr/lib/erlang";
const SERVER: &str = "usr/lib/rabbitmq/bin/rabbitmq-server";
const TOOL: &str = "usr/lib/rabbitmq/bin/rabbitmqctl";
/// Shared secret of its nodes. Any word works, since they listen on loopback only.
const COOKIE: &str = "POSTROADBENCH";

impl System for RabbitMq {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        let version = installer.debian("rabbitmq-server")?;
        installer.expect(SERVER)?;
        // The package build fixes the paths in Erlang's own scripts.
        let here = installer.place.join(ERLANG);
        for erl in installer.named(ERLANG, "erl") {
            let script = read(&erl)?.replace(&format!("/{ERLANG}"), &here.display().to_string());
            write(&erl, script)?;
        }
        Ok(Some(version))
    }

    fn console(&self, site: &Site) -> Result<Option<Command>, StartError> {
        console(site).map(Some)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let mut nodes = Vec::new();
        for node in site.numbers() {
            let (config_folder, data) = (site.config(node)?, site.data(node)?);
            let config = config(site, node);
            write(&config_folder.join("rabbitmq.conf"), config.render(" = "))?;
            let enabled = format!("[{}].\n", plugins(site));
            write(&config_folder.join("enabled_plugins"), enabled)?;
            cookie(&config_folder)?;
            nodes.push(launch(site, node, &config_folder, &data)?);
        }
        let endpoint =
            |node, protocol: &&str| Endpoint::new(node, protocol, site.address(protocol, node));
        let endpoints = site
            .numbers()
            .flat_map(|node| spoken(site).iter().map(move |protocol| endpoint(node, protocol)))
            .collect();
        let mut settings = config(site, 1).settings();
        settings.insert("plugins".to_owned(), plugins(site).to_owned());
        Ok(Plan {
            helpers: vec![port_mapper(site)],
            check: if site.is_cluster() { Some(one_cluster(site)?) } else { None },
            user: Some("guest".to_owned()),
            password: Some("guest".to_owned()),
            ..Plan::of(nodes, endpoints).with_settings(settings)
        })
    }
}

/// Only the management plugin reports the leader of a queue.
fn plugins(site: &Site) -> &'static str {
    if site.is_cluster() { "rabbitmq_stream,rabbitmq_management" } else { "rabbitmq_stream" }
}

fn spoken(site: &Site) -> &'static [&'static str] {
    if site.is_cluster() { &["amqp", "stream", "management"] } else { &["amqp", "stream"] }
}

fn config(site: &Site, node: u32) -> Config {
    let config = Config::default()
        .place("listeners.tcp.1", site.address("amqp", node))
        .place("stream.listeners.tcp.1", site.address("stream", node))
        .place("stream.advertised_host", "127.0.0.1")
        .place("stream.advertised_port", site.port("stream", node))
        .set("vm_memory_high_watermark.absolute", "4GB")
        .set("disk_free_limit.absolute", "1GB");
    if !site.is_cluster() {
        return config;
    }
    let seeded = config
        .place("management.tcp.ip", "127.0.0.1")
        .place("management.tcp.port", site.port("management", node))
        .set("management_agent.disable_metrics_collector", true)
        .place("cluster_formation.peer_discovery_backend", "classic_config");
    site.numbers().fold(seeded, |config, other| {
        config.place(&format!("cluster_formation.classic_config.nodes.{other}"), name(other))
    })
}

fn name(node: u32) -> String {
    format!("bench{node}@localhost")
}

/// Starts a separate port mapper of Erlang. One started by the server would outlive it, and could
/// be shared with other nodes on this machine.
fn port_mapper(site: &Site) -> Launch {
    let port = site.port("epmd", 1);
    let program = site.software.join(ERLANG).join("bin/epmd");
    Launch::new(site, 1, program, Ready::Listens(port))
        .helper(site, "epmd")
        .ports(&[port])
        .argument("-port")
        .argument(port.to_string())
        .arguments(["-address", "127.0.0.1"])
}

fn launch(site: &Site, node: u32, config: &Path, data: &Path) -> Result<Launch, StartError> {
    let port = site.port("amqp", node);
    let distribution = site.port("distribution", node);
    let mut ports = vec![distribution];
    ports.extend(spoken(site).iter().map(|protocol| site.port(protocol, node)));
    let plugins = server_library(&site.software)?.join("plugins");
    Ok(Launch::new(site, node, site.software.join(SERVER), Ready::Amqp(port))
        .ports(&ports)
        .environment("PATH", path(site))
        .environment("HOME", config)
        .environment("RABBITMQ_NODENAME", name(node))
        .environment("RABBITMQ_CONFIG_FILE", config.join("rabbitmq"))
        // Prevents reading other files of this machine.
        .environment("RABBITMQ_CONF_ENV_FILE", config.join("rabbitmq-env.conf"))
        .environment("RABBITMQ_ADVANCED_CONFIG_FILE", config.join("advanced.config"))
        .environment("RABBITMQ_CONFIG_FILES", config.join("conf.d"))
        .environment("RABBITMQ_ENABLED_PLUGINS_FILE", config.join("enabled_plugins"))
        .environment("RABBITMQ_PLUGINS_DIR", plugins)
        .environment("RABBITMQ_MNESIA_BASE", data)
        .environment("RABBITMQ_LOG_BASE", data)
        .environment("RABBITMQ_LOGS", "-")
        .environment("RABBITMQ_DIST_PORT", distribution.to_string())
        .environment("ERL_EPMD_PORT", site.port("epmd", 1).to_string())
        .environment("ERL_EPMD_ADDRESS", "127.0.0.1")
        // The script then execs the virtual machine instead of waiting for it; there is still no
        // console.
        .environment("RABBITMQ_ALLOW_INPUT", "1")
        .environment(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-noinput -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        ))
}

/// `PATH` with Erlang's programs first.
fn path(site: &Site) -> String {
    let erlang = site.software.join(ERLANG).join("bin");
    format!("{}:{}", erlang.display(), std::env::var("PATH").unwrap_or_default())
}

/// `rabbitmqctl`, set up for the first node.
fn console(site: &Site) -> Result<Command, StartError> {
    let home = site.config(1)?;
    let port = site.port("tool", 1).to_string();
    let mut console = hermetic(&site.software.join(TOOL), &home);
    console.env("PATH", path(site)).env("RABBITMQ_NODENAME", name(1));
    console.env("RABBITMQ_CONF_ENV_FILE", home.join("rabbitmq-env.conf"));
    console.env("ERL_EPMD_PORT", site.port("epmd", 1).to_string());
    console.env("RABBITMQ_CTL_DIST_PORT_MIN", &port).env("RABBITMQ_CTL_DIST_PORT_MAX", &port);
    Ok(console)
}

/// Concurrently started nodes find each other. Otherwise each would serve alone, and its quorum
/// queues would have one member.
fn one_cluster(site: &Site) -> Result<Command, StartError> {
    let mut check = console(site)?;
    check.args(["await_online_nodes", &site.nodes.to_string(), "--timeout", "60"]);
    Ok(check)
}

/// The only library folder of the server with its version in the name.
fn server_library(software: &Path) -> Result<PathBuf, StartError> {
    let library = software.join("usr/lib/rabbitmq/lib");
    let entries = fs::read_dir(&library).map_err(FolderError::new("read", &library))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_server = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rabbitmq_server-"))
    };
    paths.find(is_server).ok_or(StartError::Distribution {
        peer: PEER.name,
        file: library,
        why: "it holds no rabbitmq_server-VERSION",
    })
}

fn cookie(home: &Path) -> Result<(), FolderError> {
    let path = home.join(".erlang.cookie");
    if path.exists() {
        return Ok(());
    }
    write(&path, COOKIE)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400))
        .map_err(FolderError::new("protect", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_nodes_list_each_other_and_a_single_node_does_not() {
        let site = |tier, nodes| Site::somewhere(&PEER, tier, nodes);
        let cluster = config(&site(Tier::T4, 3), 2).render(" = ");
        assert!(cluster.contains("listeners.tcp.1 = 127.0.0.1:24210\n"), "{cluster}");
        assert!(cluster.contains("management.tcp.port = 24215\n"), "{cluster}");
        assert!(cluster.contains("classic_config.nodes.3 = bench3@localhost\n"), "{cluster}");
        assert!(!config(&site(Tier::T3, 1), 1).render(" = ").contains("cluster_formation"));
    }
}
