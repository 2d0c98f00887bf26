use tier::Tier;

use super::java;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::plan::{Plan, Site, System, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Apache ActiveMQ Classic.
pub(super) struct ActiveMq;

static PEER: Peer = Peer {
    name: "activemq",
    title: "Apache ActiveMQ Classic",
    version: "5.18.3",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[],
    ports: &[("openwire", 25_000), ("amqp", 25_001), ("stomp", 25_002)],
    note: "synced by default; T1 is journalDiskSyncStrategy=never of KahaDB, T0 a broker without \
           persistence",
};

const DISTRIBUTION: &str = "apache-activemq-5.18.3";
/// As in its own start script.
const OPENED: [&str; 8] = [
    "java.base/java.lang=ALL-UNNAMED",
    "java.base/java.lang.reflect=ALL-UNNAMED",
    "java.base/java.util=ALL-UNNAMED",
    "java.base/java.util.concurrent=ALL-UNNAMED",
    "java.base/java.net=ALL-UNNAMED",
    "java.rmi/sun.rmi.transport=ALL-UNNAMED",
    "java.naming/javax.naming.spi=ALL-UNNAMED",
    "java.management/sun.management=ALL-UNNAMED",
];
const LOGGING: &str = "rootLogger.level=INFO
rootLogger.appenderRef.console.ref=Console
appender.console.type=Console
appender.console.name=Console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %-5p %c{1}: %m%n
";

impl System for ActiveMq {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.zip(("org.apache.activemq", "apache-activemq", PEER.version))?;
        installer.expect(&format!("{DISTRIBUTION}/bin/activemq.jar"))?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let home = site.software.join(DISTRIBUTION);
        let (config, data) = (site.config(1)?, site.data(1)?);
        let path = config.join("activemq.xml");
        write(&path, broker(site))?;
        let logging = config.join("log4j2.properties");
        write(&logging, LOGGING)?;
        let (openwire, amqp, stomp) =
            (site.port("openwire", 1), site.port("amqp", 1), site.port("stomp", 1));
        let opened = OPENED.iter().flat_map(|module| ["--add-opens", module]);
        let launch = java::launch(site, 1, Ready::Amqp1(amqp))
            .ports(&[openwire, amqp, stomp])
            .folder(&data)
            .arguments(java::HEAP)
            .arguments(opened)
            .argument("-Djava.awt.headless=true")
            .argument(format!("-Dlog4j2.configurationFile={}", logging.display()))
            .argument(format!("-Dactivemq.home={}", home.display()))
            .argument(format!("-Dactivemq.base={}", home.display()))
            .argument(format!("-Dactivemq.conf={}", config.display()))
            .argument(format!("-Dactivemq.data={}", data.display()))
            .argument("-jar")
            .argument(home.join("bin/activemq.jar"))
            .argument("start")
            .argument(format!("xbean:file:{}", path.display()));
        let endpoints = ["openwire", "amqp", "stomp"]
            .map(|protocol| Endpoint::new(1, protocol, site.address(protocol, 1)))
            .to_vec();
        let mut settings = java::settings();
        match site.tier {
            Tier::T0 => drop(settings.insert("persistent".to_owned(), "false".to_owned())),
            Tier::T1 => {
                settings.insert("journalDiskSyncStrategy".to_owned(), "never".to_owned());
            }
            _ => {}
        }
        Ok(Plan {
            user: Some("admin".to_owned()),
            password: Some("admin".to_owned()),
            ..Plan::of(vec![launch], endpoints).with_settings(settings)
        })
    }
}

/// Its default configuration without the web console, the connection limit and the JMX port.
fn broker(site: &Site) -> String {
    let persistent = site.tier > Tier::T0;
    let strategy = if site.tier.is_synced() { "always" } else { "never" };
    let connector = |name: &str, scheme: &str| {
        let address = site.address(name, 1);
        format!(
            "      <transportConnector name=\"{name}\" \
             uri=\"{scheme}://{address}?wireFormat.maxFrameSize=104857600\"/>\n"
        )
    };
    let connectors =
        [connector("openwire", "tcp"), connector("amqp", "amqp"), connector("stomp", "stomp")];
    format!(
        r#"<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="localhost"
          dataDirectory="${{activemq.data}}" persistent="{persistent}">
    <managementContext><managementContext createConnector="false"/></managementContext>
    <persistenceAdapter>
      <kahaDB directory="${{activemq.data}}/kahadb" journalDiskSyncStrategy="{strategy}"/>
    </persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
{}    </transportConnectors>
  </broker>
</beans>
"#,
        connectors.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_has_its_store_and_only_loopback_is_bound() {
        let text = |tier| {
            let peer = &PEER;
            broker(&Site::somewhere(peer, tier, 1))
        };
        assert!(text(Tier::T3).contains("journalDiskSyncStrategy=\"always\""));
        assert!(text(Tier::T1).contains("journalDiskSyncStrategy=\"never\""));
        assert!(text(Tier::T0).contains("persistent=\"false\""));
        assert!(text(Tier::T3).contains("amqp://127.0.0.1:25001?"));
        assert!(!text(Tier::T3).contains("0.0.0.0"));
    }
}
