use tier::Tier;

use super::java;
use crate::config::Config;
use crate::errors::{InstallError, StartError};
use crate::install::Installer;
use crate::plan::{Plan, Site, System};
use crate::ready::Ready;
use crate::{Endpoint, Need, Peer, Source};

/// ElasticMQ, which speaks the protocol of Amazon's SQS.
pub(super) struct ElasticMq;

static PEER: Peer = Peer {
    name: "elasticmq",
    title: "ElasticMQ",
    version: "1.7.1",
    source: Source::MavenCentral,
    needs: &[Need::Java, Need::Maven],
    tiers: &[Tier::T0],
    cluster_tiers: &[],
    ports: &[("sqs", 24_600)],
    note: "messages are in memory only",
};

impl System for ElasticMq {
    fn peer(&self) -> &'static Peer {
        &PEER
    }

    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError> {
        installer.libraries(&[("org.elasticmq", "elasticmq-server_2.13", PEER.version)])?;
        Ok(None)
    }

    fn plan(&self, site: &Site) -> Result<Plan, StartError> {
        let port = site.port("sqs", 1);
        let config = Config::default()
            .place("rest-sqs.bind-hostname", "127.0.0.1")
            .place("rest-sqs.bind-port", port)
            .place("node-address.host", "127.0.0.1")
            .place("node-address.port", port)
            .set("rest-stats.enabled", "false");
        let properties = config.render("=");
        let properties = properties.lines().map(|line| format!("-D{line}"));
        let launch = java::launch(site, 1, Ready::Http(port, "/?Action=ListQueues"))
            .ports(&[port])
            .arguments(java::HEAP)
            .arguments(properties)
            .argument("-cp")
            .argument(format!("{}/libs/*", site.software.display()))
            .argument("org.elasticmq.server.Main");
        let address = format!("http://{}", site.address("sqs", 1));
        let plan = Plan::of(vec![launch], vec![Endpoint::new(1, "sqs", address)]);
        let plan = plan.with_settings(config.settings()).with_settings(java::settings());
        // It accepts any login.
        Ok(Plan { user: Some("x".to_owned()), password: Some("x".to_owned()), ..plan })
    }
}
