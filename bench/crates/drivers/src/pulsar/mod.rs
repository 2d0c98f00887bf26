//! Apache Pulsar, by pulsar (pulsar-rs).
//!
//! *Sent* means: the broker has sent its receipt, after a quorum of bookies had the message. They
//! have it in the page cache (T1, T2) or, with `journalSyncData=true`, on disk (T3, T4). That
//! setting of the bookies cannot be queried, so the user is responsible for it. The number of
//! bookies is the persistence policy of the namespace, or the broker's default: `create` looks it
//! up and rejects replicas and majorities that do not hold.
//!
//! *Hiding*: a message belongs to its consumer until it is acknowledged, released or the consumer
//! is gone; there is no lease. The subscription is `Shared`, or `Key_Shared` where lanes must be in
//! order: then the lane is the key. A settle is not confirmed, and the client has no redelivery
//! mark.
//!
//! Up to `prefetch` messages are sent to a receiver in advance. By default each message is sent by
//! itself. With `batch` above 1 the client puts that many into one entry (or as many as arrive
//! within `linger-ms`), as in the published tests, with one such batch in flight at a time. A
//! message is then only settled when its whole batch is, and released with all of it.
//!
//! The client leaves Nagle's algorithm on. Topics are created by HTTP, at `admin`.
//!
//! Settings: `window`, `prefetch` (1000), `batch` (1), `linger-ms` (1), `namespace`
//! (`public/default`), `admin` (`host:port`; the broker's host, port 8080). A password without a
//! user is a token.

mod admin;
mod batches;
mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use pulsar::error::{ConnectionError, ConsumerError, Error, ProducerError};
use pulsar::proto::ServerError;
use pulsar::{
    Authentication, ConnectionRetryOptions, OperationRetryOptions, Pulsar, TokioExecutor,
};

use crate::pending::WINDOW;
use crate::told::{ms, named_values};
use admin::{Admin, Bookies};

const SYSTEM: &str = "pulsar";
const TITLE: &str = "Apache Pulsar";
const ENDPOINT: &str = "127.0.0.1:6650";
const ADMIN_PORT: u16 = 8080;
const PATIENCE: Duration = Duration::from_secs(5);
/// Retry policy of the client.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
const CONNECTION_RETRIES: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(500);
const OPERATION_RETRIES: u32 = 20;

type Client = Pulsar<TokioExecutor>;

#[derive(Clone, Debug)]
struct Options {
    window: u32,
    prefetch: u32,
    batch: u32,
    linger: Duration,
}

impl Options {
    fn is_batching(&self, topology: &Topology) -> bool {
        self.batch > 1 && !topology.latency_first
    }
}

#[derive(Debug)]
struct PulsarDriver {
    endpoint: String,
    admin: Admin,
    user: Option<String>,
    password: Option<String>,
    options: Options,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let endpoint = target.endpoint(ENDPOINT).trim_start_matches("pulsar://");
    let unusable =
        |why: &str| Failure::Unreachable { endpoint: endpoint.to_owned(), why: why.to_owned() };
    if endpoint.contains("://") {
        return Err(unusable("only pulsar:// is spoken"));
    }
    let (host, _port) = endpoint.rsplit_once(':').ok_or_else(|| unusable("it is not host:port"))?;
    let mut settings = target.settings();
    let options = Options {
        window: settings.take("window", WINDOW)?.max(1),
        prefetch: settings.take("prefetch", 1000)?.max(1),
        batch: settings.take("batch", 1)?.max(1),
        linger: Duration::from_millis(settings.take("linger-ms", 1)?),
    };
    let address = settings.take("admin", format!("{host}:{ADMIN_PORT}"))?;
    let namespace = settings.take("namespace", "public/default".to_owned())?;
    settings.done()?;
    let (user, password) = (target.user.clone(), target.password.clone());
    let admin = Admin::new(&address, namespace, user.as_deref(), password.as_deref());
    let endpoint = endpoint.to_owned();
    Ok(Arc::new(PulsarDriver { endpoint, admin, user, password, options }))
}

/// Distinguishes rejections from unknown outcomes.
fn failure(error: Error) -> Failure {
    let of_connection = match &error {
        Error::Connection(error)
        | Error::Producer(ProducerError::Connection(error))
        | Error::Consumer(ConsumerError::Connection(error)) => Some(error),
        _ => None,
    };
    match of_connection {
        Some(ConnectionError::PulsarError(..)) => Failure::refused(error),
        _ => Failure::unknown(error),
    }
}

impl PulsarDriver {
    fn login(&self) -> Option<Authentication> {
        let password = self.password.as_ref()?;
        let (name, data) = match &self.user {
            Some(user) => ("basic", format!("{user}:{password}")),
            None => ("token", password.clone()),
        };
        Some(Authentication { name: name.to_owned(), data: data.into_bytes() })
    }

    /// A connection of its own, which the client reopens when it breaks.
    async fn open(&self) -> Result<Client, Failure> {
        let connecting = ConnectionRetryOptions {
            connection_timeout: PATIENCE,
            max_backoff: BACKOFF_MAX,
            max_retries: CONNECTION_RETRIES,
            ..ConnectionRetryOptions::default()
        };
        let operating = OperationRetryOptions {
            retry_delay: RETRY_DELAY,
            max_retries: Some(OPERATION_RETRIES),
            ..OperationRetryOptions::default()
        };
        let mut builder = Pulsar::builder(format!("pulsar://{}", self.endpoint), TokioExecutor)
            .with_connection_retry_options(connecting)
            .with_operation_retry_options(operating)
            .with_outbound_channel_size(self.options.window as usize);
        if let Some(login) = self.login() {
            builder = builder.with_auth(login);
        }
        builder.build().await.map_err(|error| {
            let (endpoint, why) = (self.endpoint.clone(), error.to_string());
            match error {
                Error::Connection(ConnectionError::PulsarError(
                    Some(ServerError::AuthenticationError | ServerError::AuthorizationError),
                    _,
                )) => {
                    let user = self.user.clone().unwrap_or_default();
                    Failure::NotAllowed { endpoint, user, why }
                }
                _ => Failure::Unreachable { endpoint, why },
            }
        })
    }

    async fn check(&self, topology: &Topology) -> Result<(), Failure> {
        if topology.ordered && self.options.batch > 1 {
            let why = "a batch is given to one receiver, whatever lanes are in it".to_owned();
            return Err(Failure::Setting { name: "batch".to_owned(), why });
        }
        let majority = matches!(topology.tier, Tier::T2 | Tier::T4);
        if !majority && topology.replicas <= 1 {
            return Ok(());
        }
        let bookies = self.admin.bookies().await?;
        if bookies.hold(topology.replicas, majority) {
            return Ok(());
        }
        let Bookies { written, acknowledged } = bookies;
        Err(Failure::refused(format!(
            "{} with {} replicas was asked for, and {acknowledged} of {written} bookies are waited \
             for: set the namespace's persistence",
            topology.tier, topology.replicas
        )))
    }

    /// Topic name as clients use it.
    fn topic(&self, topology: &Topology, destination: u32) -> String {
        let namespace = self.admin.namespace();
        format!("persistent://{namespace}/{}", topology.destination(destination))
    }
}

#[async_trait]
impl Driver for PulsarDriver {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "pulsar 6.9",
            sent_means: "the broker sent its receipt, after what its bookies' journalSyncData says",
            hidden_means: "until it is given back or its consumer is gone; there is no lease",
            tiers: &[Tier::T1, Tier::T2, Tier::T3, Tier::T4],
            styles: &[Style::Queue],
            lanes: Lanes::Ordered,
            returns: Return::Connection,
            subscriptions: true,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let Options { window, prefetch, batch, linger } = &self.options;
        let batching = self.options.is_batching(topology);
        let mut settings = named_values(&[
            ("window", window),
            ("batch", batch),
            ("outbound channel size", window),
            ("connection timeout", &ms(PATIENCE)),
            ("connection backoff", &ms(BACKOFF_MAX)),
            ("connection retries", &CONNECTION_RETRIES),
            ("operation retry delay", &ms(RETRY_DELAY)),
            ("operation retries", &OPERATION_RETRIES),
            ("producer.block if the queue is full", &true),
            ("producer.routing", &"RoundRobin"),
            ("prefetch", prefetch),
            ("consumer.receiver queue size", prefetch),
            ("consumer.batch size", prefetch),
            ("consumer.subscription type", &format!("{:?}", receiver::kind(topology.ordered))),
            ("consumer.initial position", &"Earliest"),
        ]);
        if batching {
            settings.extend(named_values(&[
                ("linger-ms", &linger.as_millis()),
                ("producer.batch bytes", &sender::BATCH_BYTES_MAX),
            ]));
        }
        settings
    }

    async fn version(&self) -> Result<String, Failure> {
        self.open().await?;
        self.admin.version().await
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.check(topology).await?;
        self.remove(topology).await?;
        for destination in 0..topology.destinations {
            let name = topology.destination(destination);
            self.admin.create(&name, topology.partitions).await?;
            for subscription in 0..topology.subscriptions.max(1) {
                self.admin.subscribe(&name, &topology.subscription(subscription)).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            self.admin.delete(&topology.destination(destination), topology.partitions).await?;
        }
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let topics = (0..topology.destinations).map(|index| self.topic(topology, index)).collect();
        let client = self.open().await?;
        let sender = sender::PulsarSender::open(&client, &self.options, topics, topology);
        Ok(Box::new(sender.await?))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let topics = destinations.iter().map(|&index| self.topic(topology, index)).collect();
        let name = topology.subscription(subscription);
        let client = self.open().await?;
        let prefetch = self.options.prefetch;
        let receiver =
            receiver::PulsarReceiver::subscribe(&client, topics, name, prefetch, topology.ordered);
        Ok(Box::new(receiver.await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_address_is_rejected() {
        for endpoint in ["pulsar+ssl://broker:6651", "broker"] {
            let target = Target { endpoints: vec![endpoint.into()], ..Target::of(SYSTEM) };
            let refused = connect(&target).expect_err(endpoint);
            assert!(matches!(refused, Failure::Unreachable { .. }), "{refused}");
        }
    }

    #[tokio::test]
    async fn ordered_lanes_reject_batching() {
        let mut target = Target::of(SYSTEM);
        target.settings.insert("batch".into(), "1000".into());
        let driver = connect(&target).expect("connects");
        let topology = Topology { ordered: true, ..Topology::new("lanes", Style::Queue, Tier::T1) };
        let refused = driver.create(&topology).await.expect_err("mixes lanes");
        assert!(matches!(refused, Failure::Setting { .. }), "{refused}");
    }
}
