//! KurrentDB (formerly EventStoreDB), by its official client: a stream for each destination, and a
//! persistent subscription for each subscription.
//!
//! *Sent* means: the server replied to the append. It has synced it (T3) or, in a cluster, a
//! majority of the nodes has (T4). A server configured without syncs, or in memory, does not report
//! that, so the user is responsible. `create` queries the number of nodes and rejects T4 with fewer
//! than three.
//!
//! *Hiding*: an event belongs to its consumer until it is acknowledged, rejected (`Retry`) or its
//! timeout (the lease) ends; events of a closed connection are redelivered. Settles are not
//! confirmed. A single receiver gets the order of the stream. Several do not, since the
//! subscription serves them round-robin.
//!
//! Releases are not limited: events are not parked.
//!
//! Settings: `window`, `batch` (the most events of one append, 500), `prefetch` (1000), `tls`
//! (`false`).

mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use kurrentdb::{
    Client, ClientSettings, DeletePersistentSubscriptionOptions, DeleteStreamOptions, Error,
    PersistentSubscriptionOptions, StreamPosition, operations,
};
use tokio::time::timeout;

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::told::{ms, named_values};
use crate::url::escaped;

const SYSTEM: &str = "kurrentdb";
const TITLE: &str = "KurrentDB, persistent subscriptions";
const ENDPOINT: &str = "127.0.0.1:2113";
const PATIENCE: Duration = Duration::from_secs(10);
/// Smallest cluster whose majority survives the loss of a node.
const CLUSTER: usize = 3;
/// As in the published test, in events.
const READ_BATCH: i32 = 1000;
const HISTORY: i32 = 2000;
const CHECKPOINT_AT_MOST: i32 = 10_000;

#[derive(Debug)]
struct KurrentDb {
    settings: ClientSettings,
    endpoint: String,
    user: String,
    window: u32,
    batch: usize,
    prefetch: usize,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?.max(1);
    let batch = settings.take("batch", 500)?.max(1);
    let prefetch = settings.take("prefetch", 1000)?.max(1);
    let tls: bool = settings.take("tls", false)?;
    settings.done()?;
    let endpoint = match target.endpoints.is_empty() {
        true => ENDPOINT.to_owned(),
        false => target.endpoints.join(","),
    };
    let endpoint = endpoint.replace("kurrentdb://", "").replace("esdb://", "");
    let user = target.user.clone().unwrap_or_default();
    let who = target
        .password
        .as_ref()
        .map_or(String::new(), |password| format!("{}:{}@", escaped(&user), escaped(password)));
    let url = format!("kurrentdb://{who}{endpoint}?tls={tls}");
    let settings = url.parse().map_err(|error: kurrentdb::ClientSettingsParseError| {
        Failure::Unreachable { endpoint: endpoint.clone(), why: error.to_string() }
    })?;
    Ok(Arc::new(KurrentDb { settings, endpoint, user, window, batch, prefetch }))
}

/// Distinguishes rejections from unknown outcomes.
fn failure(error: Error) -> Failure {
    match error {
        Error::AccessDenied
        | Error::ResourceAlreadyExists
        | Error::ResourceNotFound
        | Error::ResourceDeleted
        | Error::UnsupportedFeature
        | Error::WrongExpectedVersion { .. } => Failure::refused(error),
        _ => Failure::unknown(error),
    }
}

/// A missing object counts as removed.
fn removed(done: Result<(), Error>) -> Result<(), Failure> {
    match done {
        Ok(()) | Err(Error::ResourceNotFound | Error::ResourceDeleted) => Ok(()),
        Err(error) => Err(failure(error)),
    }
}

impl KurrentDb {
    fn unreachable(&self, why: impl ToString) -> Failure {
        Failure::Unreachable { endpoint: self.endpoint.clone(), why: why.to_string() }
    }

    /// A client of its own; it connects at first use.
    fn client(&self) -> Result<Client, Failure> {
        Client::new(self.settings.clone()).map_err(|error| self.unreachable(error))
    }

    /// A connected client, and the server's version.
    async fn open(&self) -> Result<(Client, String), Failure> {
        let client = self.client()?;
        let answered = timeout(PATIENCE, client.server_info()).await;
        let answered =
            answered.map_err(|_| self.unreachable(format!("no answer within {PATIENCE:?}")))?;
        match answered {
            Ok(info) => Ok((client, info.version().to_string())),
            Err(error @ Error::AccessDenied) => {
                let (endpoint, user) = (self.endpoint.clone(), self.user.clone());
                Err(Failure::NotAllowed { endpoint, user, why: error.to_string() })
            }
            Err(error) => Err(self.unreachable(error)),
        }
    }

    async fn check(&self, topology: &Topology) -> Result<(), Failure> {
        if topology.tier != Tier::T4 && topology.replicas <= 1 {
            return Ok(());
        }
        let operations = operations::Client::new(self.settings.clone());
        let operations = operations.map_err(|error| self.unreachable(error))?;
        let members = operations.read_gossip().await.map_err(failure)?;
        let live = members.iter().filter(|member| member.is_alive).count();
        let wanted = CLUSTER.max(topology.replicas as usize);
        if live >= wanted {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} with {} replicas was asked for, and {live} nodes are there, not {wanted}",
            topology.tier, topology.replicas
        )))
    }

    async fn remove_by(&self, client: &Client, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            let stream = topology.destination(destination);
            for subscription in 0..topology.subscriptions.max(1) {
                let (name, options) = (
                    topology.subscription(subscription),
                    DeletePersistentSubscriptionOptions::default(),
                );
                let done = client.delete_persistent_subscription(stream.as_str(), name, &options);
                removed(done.await)?;
            }
            let options = DeleteStreamOptions::default();
            removed(client.delete_stream(stream.as_str(), &options).await.map(drop))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for KurrentDb {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "kurrentdb 1.2",
            sent_means: "the server answered the append, synced by it and by a majority if it has one",
            hidden_means: "until its message timeout, the lease",
            tiers: &[Tier::T3, Tier::T4],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("batch", &self.batch),
            ("prefetch", &self.prefetch),
            ("subscription.start from", &"start"),
            ("subscription.message timeout", &ms(topology.lease)),
            ("subscription.max retries", &i32::MAX),
            ("subscription.read batch", &READ_BATCH),
            ("subscription.history buffer", &HISTORY),
            ("subscription.checkpoint at most", &CHECKPOINT_AT_MOST),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        self.open().await.map(|(_, version)| version)
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.check(topology).await?;
        let (client, _) = self.open().await?;
        self.remove_by(&client, topology).await?;
        let options = PersistentSubscriptionOptions::default()
            .start_from(StreamPosition::Start)
            .message_timeout(topology.lease)
            .max_retry_count(i32::MAX)
            .read_batch_size(READ_BATCH)
            .history_buffer_size(HISTORY)
            .checkpoint_upper_bound(CHECKPOINT_AT_MOST);
        for destination in 0..topology.destinations {
            let stream = topology.destination(destination);
            for subscription in 0..topology.subscriptions.max(1) {
                let name = topology.subscription(subscription);
                let made = client.create_persistent_subscription(stream.as_str(), name, &options);
                made.await.map_err(failure)?;
            }
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let (client, _) = self.open().await?;
        self.remove_by(&client, topology).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let streams = (0..topology.destinations).map(|index| topology.destination(index)).collect();
        let (client, _) = self.open().await?;
        let writer = sender::Writer { client, streams };
        Ok(Box::new(BatchingSender::spawn(writer, self.window, self.batch)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let (client, _) = self.open().await?;
        let streams: Vec<String> =
            destinations.iter().map(|&index| topology.destination(index)).collect();
        let group = topology.subscription(subscription);
        let receiver =
            receiver::KurrentReceiver::subscribe(&client, &streams, &group, self.prefetch);
        Ok(Box::new(receiver.await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unreachable_server_fails_the_first_call() {
        let target = Target { endpoints: vec!["127.0.0.1:1".into()], ..Target::of(SYSTEM) };
        let driver = connect(&target).expect("reads the settings");
        let refused = driver.version().await.expect_err("nobody is there");
        assert!(matches!(refused, Failure::Unreachable { .. }), "{refused}");
    }

    #[test]
    fn invalid_address_is_rejected() {
        let target = Target { endpoints: vec!["host:many".into()], ..Target::of(SYSTEM) };
        assert!(matches!(connect(&target), Err(Failure::Unreachable { .. })));
    }
}
