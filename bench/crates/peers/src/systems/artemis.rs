use std::fs;
use std::path::Path;

use tier::Tier;

use super::java;
use crate::errors::{FolderError, InstallError, StartError};
use crate::install::Installer;
use crate::launch::{hermetic, run};
use crate::plan::{Plan, Site, System, read, write};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// Apache ActiveMQ Artemis.
pub(super) struct Artemis;

static PEER: Peer = Peer {
    name: "artemis",
    title: "Apache ActiveMQ Artemis",
    version: "2.40.0",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T0, Tier::T1, Tier::T3],
    cluster_tiers: &[],
    ports: &[("core", 24_900), ("amqp", 24_901), ("stomp", 24_902)],
    note: "synced by default; T1 is journal-datasync=false, T0 persistence-enabled=false. How long \
           the journal waits for company is measured by Artemis itself when its folder is made",
};

const DISTRIBUTION: &str = "apache-artemis-2.40.0";

impl System for Artemis {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.zip(("org.apache.activemq", "apache-artemis", PEER.version))?;
        installer.expect(&format!("{DISTRIBUTION}/lib/artemis-boot.jar"))?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let home = site.software.join(DISTRIBUTION);
        let data = site.data(1)?;
        let instance = data.join("instance");
        let original = instance.join("etc/broker.xml.created");
        if !original.exists() {
            create(site, &home, &instance)?;
            let made = instance.join("etc/broker.xml");
            fs::copy(&made, &original).map_err(FolderError::new("copy", &made))?;
        }
        let text = read(&original)?;
        let unexpected =
            |why| StartError::Distribution { peer: PEER.name, file: original.clone(), why };
        let configured =
            configure(&text, site).ok_or_else(|| unexpected("an element is missing"))?;
        write(&instance.join("etc/broker.xml"), &configured)?;
        let (core, amqp, stomp) =
            (site.port("core", 1), site.port("amqp", 1), site.port("stomp", 1));
        let launch = java::launch(site, 1, Ready::Amqp1(amqp))
            .ports(&[core, amqp, stomp])
            .folder(&instance)
            .arguments(java::HEAP)
            // As in its own profile.
            .arguments(["-XX:AutoBoxCacheMax=20000", "-XX:+UseG1GC", "-XX:+UseStringDeduplication"])
            .arguments(["--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"])
            .arguments(properties(&home, &instance))
            .argument("-cp")
            .argument(home.join("lib/artemis-boot.jar"))
            .arguments(["org.apache.activemq.artemis.boot.Artemis", "run"]);
        let endpoints = ["core", "amqp", "stomp"]
            .map(|protocol| Endpoint::new(1, protocol, site.address(protocol, 1)))
            .to_vec();
        let mut settings = java::settings();
        for name in
            ["journal-type", "journal-buffer-timeout", "journal-datasync", "persistence-enabled"]
        {
            let value =
                element(&configured, name).ok_or_else(|| unexpected("a value is missing"))?;
            settings.insert(name.to_owned(), value.to_owned());
        }
        Ok(Plan {
            user: Some("admin".to_owned()),
            password: Some("admin".to_owned()),
            ..Plan::of(vec![launch], endpoints).with_settings(settings)
        })
    }
}

/// Creates its instance folder; it measures the disk for a second or two.
fn create(site: &Site, home: &Path, instance: &Path) -> Result<(), StartError> {
    // It rejects the leftovers of an interrupted attempt.
    let _ = fs::remove_dir_all(instance);
    let mut create = hermetic(&crate::install::java(), &site.home);
    create.arg("-cp").arg(home.join("lib/artemis-boot.jar"));
    create.args(properties(home, instance).into_iter().take(HOME_PROPERTIES));
    create.args(["org.apache.activemq.artemis.boot.Artemis", "create"]).arg(instance);
    create.args(["--user", "admin", "--password", "admin", "--allow-anonymous"]);
    create.args(["--host", "127.0.0.1", "--no-web", "--silent"]);
    run(create, "artemis create", &site.log("create", 1))
}

/// The first properties name the folder of the software, the others that of the instance.
const HOME_PROPERTIES: usize = 2;

fn properties(home: &Path, instance: &Path) -> Vec<String> {
    let (home, instance) = (home.display(), instance.display());
    let machine = std::env::consts::ARCH;
    vec![
        format!("-Dartemis.home={home}"),
        format!("-Djava.library.path={home}/bin/lib/linux-{machine}"),
        format!("-Dartemis.instance={instance}"),
        format!("-Dartemis.instance.etc={instance}/etc"),
        format!("-Djava.security.auth.login.config={instance}/etc/login.config"),
        format!("-Djava.io.tmpdir={instance}/tmp"),
        format!("-Ddata.dir={instance}/data"),
        format!("-Dlog4j2.configurationFile=file:{instance}/etc/log4j2.properties"),
        "-Dlog4j2.disableJmx=true".to_owned(),
        "-Dhawtio.roles=amq".to_owned(),
    ]
}

/// Configuration that Artemis made for this disk, with the suite's addresses and the tier's
/// durability.
fn configure(text: &str, site: &Site) -> Option<String> {
    const COMMON: &str = "tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;useEpoll=true";
    let acceptor = |port: &str, more: &str| {
        let address = site.address(port, 1);
        format!("         <acceptor name=\"{port}\">tcp://{address}?{COMMON};{more}</acceptor>\n")
    };
    let acceptors = [
        "\n".to_owned(),
        acceptor("core", "protocols=CORE"),
        acceptor("amqp", "protocols=AMQP;amqpCredits=1000;amqpLowCredits=300"),
        acceptor("stomp", "protocols=STOMP"),
        "      ".to_owned(),
    ];
    let text = with_element(text, "acceptors", &acceptors.concat())?;
    let synced = site.tier.is_synced().to_string();
    let text = with_element(&text, "journal-datasync", &synced)?;
    with_element(&text, "persistence-enabled", &(site.tier > Tier::T0).to_string())
}

/// The content of the first element of this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(content, _)| content)
}

fn with_element(text: &str, name: &str, content: &str) -> Option<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (before, rest) = text.split_once(&open)?;
    let (_, after) = rest.split_once(&close)?;
    Some([before, &open, content, &close, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: &str = "<core>\n<persistence-enabled>true</persistence-enabled>\n\
        <journal-datasync>true</journal-datasync>\n<journal-buffer-timeout>48000\
        </journal-buffer-timeout>\n<acceptors>\n<acceptor>tcp://127.0.0.1:5672</acceptor>\n\
        </acceptors>\n</core>\n";

    fn configured(tier: Tier) -> String {
        let peer = &PEER;
        let site = Site::somewhere(peer, tier, 1);
        configure(MADE, &site).expect("all elements are there")
    }

    #[test]
    fn no_default_port_is_left() {
        let text = configured(Tier::T3);
        assert!(!text.contains("5672"), "{text}");
        assert!(text.contains("tcp://127.0.0.1:24901?"), "{text}");
    }

    #[test]
    fn each_tier_has_its_journal() {
        let of = |tier, name| element(&configured(tier), name).map(str::to_owned);
        assert_eq!(of(Tier::T3, "journal-datasync").as_deref(), Some("true"));
        assert_eq!(of(Tier::T1, "journal-datasync").as_deref(), Some("false"));
        assert_eq!(of(Tier::T1, "persistence-enabled").as_deref(), Some("true"));
        assert_eq!(of(Tier::T0, "persistence-enabled").as_deref(), Some("false"));
        assert_eq!(of(Tier::T1, "journal-buffer-timeout").as_deref(), Some("48000"));
    }

    #[test]
    fn unexpected_distribution_layout_is_rejected() {
        assert_eq!(configure("<core/>", &Site::somewhere(&PEER, Tier::T3, 1)), None);
    }
}
