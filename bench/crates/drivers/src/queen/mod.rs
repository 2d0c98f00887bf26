//! Queen MQ, by HTTP: partitions of a queue that are leased whole, on PostgreSQL
//! (github.com/smartpricing/queen).
//!
//! *Sent* means: the push returned `queued` for the message (or `duplicate`: a push with the same
//! transaction id was stored before, and each message has its own). The server has then committed a
//! transaction of PostgreSQL, which syncs unless PostgreSQL is configured otherwise; the driver
//! cannot query that. `buffered` is an error: the message is in a file beside the database.
//!
//! *Hiding*: a pop leases partitions to one receiver, with all their messages, until each message
//! is acknowledged or the lease (of whole seconds) ends. A partition is a lane, so order is kept
//! with any number of receivers. An acknowledgement moves a position within the partition, so
//! messages are acknowledged in order, whatever the order of their settles. Settles out of order
//! wait, and such a message is not delivered again when it returns. A release returns the rest of
//! the partition (`retry`).
//!
//! A subscription is a consumer group; one subscription of a queue is the server's queue mode.
//! Bodies are text in base64, since payloads are JSON. A password is sent as a bearer token.
//!
//! The package registries have no server, so this is tested against exchanges that follow the
//! server's source.
//!
//! Settings: `window`, `batch` (largest number of messages in one push, 500), `partitions` (largest
//! number that one pop leases, 1, as in published tests), `poll-ms` (pause when none of several
//! queues has a message, 10).

mod http;
mod leases;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::told::named_values;
use http::Http;

const SYSTEM: &str = "queen";
const ENDPOINT: &str = "127.0.0.1:6632";
#[derive(Debug)]
struct Queen {
    http: Http,
    window: u32,
    batch: usize,
    partitions: u32,
    poll: Duration,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let batch = settings.take("batch", 500)?;
    let partitions = settings.take("partitions", 1)?;
    let poll = Duration::from_millis(settings.take("poll-ms", 10)?);
    settings.done()?;
    let http = Http::new(target.endpoint(ENDPOINT), target)?;
    Ok(Arc::new(Queen { http, window, batch, partitions, poll }))
}

/// The consumer group of a subscription, if the topology needs groups.
fn group(topology: &Topology, subscription: u32) -> Option<String> {
    let grouped = topology.subscriptions > 1 || topology.style == Style::Log;
    grouped.then(|| topology.subscription(subscription))
}

#[derive(Deserialize)]
struct Health {
    version: String,
}

#[derive(Deserialize)]
struct Configured {
    #[serde(default)]
    configured: bool,
}

#[async_trait]
impl Driver for Queen {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "Queen MQ",
            client: "HTTP by the suite's own (hyper 1)",
            sent_means: "the push was answered, after PostgreSQL's commit",
            hidden_means: "by partition, which is leased to one receiver with all that it holds",
            tiers: &[Tier::T3],
            styles: &[Style::Queue, Style::Log],
            lanes: Lanes::Ordered,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("batch", &self.batch),
            ("partitions", &self.partitions),
            ("poll-ms", &self.poll.as_millis()),
            ("leaseTime", &format!("{} s", topology.lease_seconds())),
            ("tcp nodelay", &true),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        let health: Health = self.http.first("/health").await?;
        // The version is public; this call checks the login.
        self.http.call(Method::GET, "/api/v1/resources/namespaces", None).await?;
        Ok(health.version)
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.version().await?;
        self.remove(topology).await?;
        for destination in 0..topology.destinations {
            let queue = topology.destination(destination);
            let lease = topology.lease_seconds();
            let asked = json!({ "queue": queue, "options": { "leaseTime": lease } });
            let answer: Configured = self.http.post("/api/v1/configure", &asked).await?;
            if !answer.configured {
                return Err(Failure::refused(format!("queue {queue} was not configured")));
            }
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            let path = format!("/api/v1/resources/queues/{}", topology.destination(destination));
            self.http.call(Method::DELETE, &path, None).await?;
        }
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let queues = (0..topology.destinations).map(|index| topology.destination(index)).collect();
        let writer = sender::Writer::new(self.http.another(), queues);
        Ok(Box::new(BatchingSender::spawn(writer, self.window, self.batch)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let queues = destinations.iter().map(|&index| topology.destination(index)).collect();
        Ok(Box::new(receiver::QueenReceiver::new(
            self.http.another(),
            queues,
            group(topology, subscription),
            self.partitions,
            self.poll,
        )))
    }
}
