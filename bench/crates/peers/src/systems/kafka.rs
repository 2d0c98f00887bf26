use tier::Tier;

use super::java;
use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::{Coordinates, Installer};
use crate::launch::{Launch, hermetic, run};
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Apache Kafka in KRaft mode; each node is broker and controller.
pub(super) struct Kafka;

static PEER: Peer = Peer {
    name: "kafka",
    title: "Apache Kafka",
    version: "4.3.1",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T1, Tier::T3],
    cluster_tiers: &[Tier::T2, Tier::T4],
    ports: &[("kafka", 24_100), ("controller", 24_101)],
    note: "by default Kafka acknowledges what is in the page cache; T3 and T4 set \
           log.flush.interval.messages=1",
};

const LIBRARIES: &[Coordinates] = &[
    ("org.apache.kafka", "kafka_2.13", "4.3.1"),
    ("org.apache.kafka", "kafka-tools", "4.3.1"),
    // Without a binding it logs nothing at all.
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
];

/// A base64 UUID, the same for all nodes.
const CLUSTER_ID: &str = "cG9zdHJvYWQtYmVuY2gtMQ";

const LOGGING: &str = "Configuration:
  Appenders:
    Console:
      name: Console
      PatternLayout:
        pattern: \"%d{ISO8601} %-5p %c{1}: %m%n\"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: Console
    Logger:
      name: kafka.server.KafkaRaftServer
      level: INFO
";

impl System for Kafka {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.libraries(LIBRARIES)?;
        write(&installer.staging.join("log4j2.yaml"), LOGGING)?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let mut nodes = Vec::new();
        for node in site.numbers() {
            let path = site.config(node)?.join("server.properties");
            let data = site.data(node)?;
            write(&path, config(site, node).place("log.dirs", data.display()).render("="))?;
            if !data.join("meta.properties").exists() {
                let mut format = hermetic(&crate::install::java(), &site.home);
                format.args(["-cp", &class_path(site), "kafka.tools.StorageTool"]);
                format.args(["format", "-t", CLUSTER_ID, "-c"]).arg(&path);
                run(format, "Kafka's StorageTool", &site.log("format", node))?;
            }
            nodes.push(launch(site, node).argument("kafka.Kafka").argument(path));
        }
        let endpoint = |node| Endpoint::new(node, "kafka", site.address("kafka", node));
        let endpoints = site.numbers().map(endpoint).collect();
        let settings = config(site, 1).settings();
        Ok(Plan::of(nodes, endpoints).with_settings(settings).with_settings(java::settings()))
    }
}

fn launch(site: &Site, node: u32) -> Launch {
    let port = site.port("kafka", node);
    let logging = site.software.join("log4j2.yaml");
    java::launch(site, node, Ready::Kafka(port))
        .ports(&[port, site.port("controller", node)])
        .arguments(java::HEAP)
        // As in Kafka's own start script.
        .arguments(["-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"])
        .arguments(["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"])
        .argument(format!("-Dlog4j2.configurationFile={}", logging.display()))
        .argument("-cp")
        .argument(class_path(site))
}

fn class_path(site: &Site) -> String {
    format!("{}/libs/*", site.software.display())
}

fn config(site: &Site, node: u32) -> Config {
    let voter = |node| format!("{node}@{}", site.address("controller", node));
    let voters: Vec<String> = site.numbers().map(voter).collect();
    let (copies, in_sync) = if site.is_cluster() { (3, 2) } else { (1, 1) };
    let clients = site.address("kafka", node);
    Config::default()
        .place("process.roles", "broker,controller")
        .place("node.id", node)
        .place("controller.quorum.voters", voters.join(","))
        .place(
            "listeners",
            format!("PLAINTEXT://{clients},CONTROLLER://{}", site.address("controller", node)),
        )
        .place("advertised.listeners", format!("PLAINTEXT://{clients}"))
        .place("controller.listener.names", "CONTROLLER")
        .place("offsets.topic.replication.factor", copies)
        .place("transaction.state.log.replication.factor", copies)
        .place("transaction.state.log.min.isr", in_sync)
        .place("share.coordinator.state.topic.replication.factor", copies)
        .place("share.coordinator.state.topic.min.isr", in_sync)
        .set_if(site.is_cluster(), "default.replication.factor", copies)
        .set_if(site.is_cluster(), "min.insync.replicas", in_sync)
        // Consumers begin at once; without effect on later measurements.
        .set("group.initial.rebalance.delay.ms", 0)
        .set_if(site.tier.is_synced(), "log.flush.interval.messages", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(tier: Tier, nodes: u32) -> Site {
        Site::somewhere(&PEER, tier, nodes)
    }

    #[test]
    fn only_the_synced_tiers_flush_every_message() {
        let flush = "log.flush.interval.messages=1\n";
        assert!(!config(&site(Tier::T1, 1), 1).render("=").contains(flush));
        assert!(config(&site(Tier::T3, 1), 1).render("=").contains(flush));
        assert!(config(&site(Tier::T4, 3), 1).render("=").contains(flush));
    }

    #[test]
    fn cluster_of_three_requires_two_in_sync_replicas() {
        let config = config(&site(Tier::T2, 3), 2);
        let text = config.render("=");
        assert!(text.contains("min.insync.replicas=2\n"), "{text}");
        assert!(text.contains("1@127.0.0.1:24101,2@127.0.0.1:24111,3@127.0.0.1:24121\n"), "{text}");
        assert!(text.contains("advertised.listeners=PLAINTEXT://127.0.0.1:24110\n"), "{text}");
        assert_eq!(config.settings()["default.replication.factor"], "3");
        assert!(!config.settings().contains_key("listeners"), "where it is, is no setting");
    }
}
