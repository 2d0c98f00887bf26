use tier::Tier;

use super::java;
use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::launch::Launch;
use crate::plan::{Plan, Site, System, folder, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Apache RocketMQ: a name server, and a broker with its proxy in one process.
pub(super) struct RocketMq;

static PEER: Peer = Peer {
    name: "rocketmq",
    title: "Apache RocketMQ",
    version: "5.5.0",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T1, Tier::T3],
    cluster_tiers: &[],
    // The broker uses two further ports, two below and one above its own.
    ports: &[
        ("grpc", 25_100),
        ("remoting", 25_101),
        ("broker-fast", 25_103),
        ("names", 25_104),
        ("broker", 25_105),
        ("broker-ha", 25_106),
    ],
    note: "by default RocketMQ acknowledges what is in its mapped files; T3 sets \
           flushDiskType=SYNC_FLUSH. Its gRPC, remoting and replication ports cannot be bound to \
           loopback alone",
};

const OPENED: [&str; 6] = [
    "--add-exports",
    "java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.nio=ALL-UNNAMED",
    "--add-opens",
    "java.base/sun.nio.ch=ALL-UNNAMED",
];

impl System for RocketMq {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.libraries(&[
            ("org.apache.rocketmq", "rocketmq-broker", PEER.version),
            ("org.apache.rocketmq", "rocketmq-namesrv", PEER.version),
            ("org.apache.rocketmq", "rocketmq-tools", PEER.version),
            ("org.apache.rocketmq", "rocketmq-proxy", PEER.version),
        ])?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let (config_folder, data) = (site.config(1)?, site.data(1)?);
        let config = config(site).place("storePathRootDir", data.display());
        let broker_path = config_folder.join("broker.conf");
        write(&broker_path, config.render("="))?;
        let names_path = config_folder.join("names.conf");
        let names = Config::default()
            .place("listenPort", site.port("names", 1))
            .place("bindAddress", "127.0.0.1");
        write(&names_path, names.render("="))?;
        // Its programs expect this folder below their home.
        let proxy_path = folder(config_folder.join("conf"))?.join("rmq-proxy.json");
        let (grpc, remoting) = (site.port("grpc", 1), site.port("remoting", 1));
        let proxy = format!(
            "{{\"rocketMQClusterName\": \"DefaultCluster\", \"grpcServerPort\": {grpc}, \
             \"remotingListenPort\": {remoting}}}\n"
        );
        write(&proxy_path, proxy)?;

        let names_port = site.port("names", 1);
        let name_server = launch(site, Ready::Listens(names_port))?
            .helper(site, "names")
            .ports(&[names_port])
            .arguments(["-Xms256m", "-Xmx256m"])
            .argument("-cp")
            .argument(class_path(site))
            .arguments(["org.apache.rocketmq.namesrv.NamesrvStartup", "-c"])
            .argument(names_path);
        let ports = ["grpc", "remoting", "broker-fast", "broker", "broker-ha"];
        let broker = launch(site, Ready::RocketMq { names: names_port, proxy: grpc })?
            .ports(&ports.map(|purpose| site.port(purpose, 1)))
            .arguments(java::HEAP)
            .arguments(OPENED)
            .argument(format!("-Duser.home={}", data.display()))
            .argument("-cp")
            .argument(class_path(site))
            .arguments(["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local"])
            .argument("-n")
            .argument(site.address("names", 1))
            .argument("-bc")
            .argument(broker_path)
            .argument("-pc")
            .argument(proxy_path);
        let endpoints = ["grpc", "names", "broker"]
            .map(|protocol| Endpoint::new(1, protocol, site.address(protocol, 1)))
            .to_vec();
        let plan = Plan { helpers: vec![name_server], ..Plan::of(vec![broker], endpoints) };
        Ok(plan.with_settings(config.settings()).with_settings(java::settings()))
    }
}

fn launch(site: &Site, ready: Ready) -> Result<Launch, StartError> {
    // Without this it ends at once.
    let home = site.config(1)?;
    let names = site.address("names", 1);
    let launch = java::launch(site, 1, ready).folder(&home);
    Ok(launch.environment("ROCKETMQ_HOME", home).environment("NAMESRV_ADDR", names))
}

fn class_path(site: &Site) -> String {
    format!("{}/libs/*", site.software.display())
}

fn config(site: &Site) -> Config {
    Config::default()
        .place("brokerClusterName", "DefaultCluster")
        .place("brokerName", "broker-a")
        .place("brokerId", 0)
        .place("namesrvAddr", site.address("names", 1))
        .place("brokerIP1", "127.0.0.1")
        .place("bindAddress", "127.0.0.1")
        .place("listenPort", site.port("broker", 1))
        .place("haListenPort", site.port("broker-ha", 1))
        .place("brokerRole", "ASYNC_MASTER")
        .set("mappedFileSizeCommitLog", 268_435_456)
        .set_if(site.tier == Tier::T3, "flushDiskType", "SYNC_FLUSH")
}
