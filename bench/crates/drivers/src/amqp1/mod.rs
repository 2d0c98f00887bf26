//! AMQP 1.0, by fe2o3-amqp: ActiveMQ Artemis and ActiveMQ Classic.
//!
//! *Sent* means: the broker settled the transfer as accepted. Messages are durable, except at T0.
//! Both brokers write a durable one to their journal and sync it first (T3), unless their own
//! configuration says otherwise (`journal-datasync`, `enableJournalDiskSyncs`: T1), which the
//! protocol does not report.
//!
//! *Hiding*: a delivery belongs to its link until it is accepted, released, or the link ends; there
//! is no lease. Up to `prefetch` (100) deliveries are sent to the receiver in advance.
//!
//! The brokers create queues at first use, and the protocol cannot delete them: `create` and
//! `remove` empty them.
//!
//! Settings: `window`, `prefetch`.

mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Settle, Style, Target, Tier, Topology,
};
use fe2o3_amqp::connection::{ConnectionHandle, OpenError};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::primitives::{Array, Symbol};
use fe2o3_amqp::{Connection, Session};
use tokio::time::timeout;

use crate::pending::WINDOW;
use crate::told::named_values;

const ENDPOINT: &str = "127.0.0.1:5672";
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages received at a time to empty a queue.
const EMPTYING: usize = 1_000;

#[derive(Clone, Copy, Debug)]
struct Broker {
    system: &'static str,
    title: &'static str,
}

pub(crate) fn connect_artemis(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(target, Broker { system: "artemis", title: "ActiveMQ Artemis by AMQP 1.0" })
}

pub(crate) fn connect_classic(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    connect(target, Broker { system: "activemq", title: "ActiveMQ Classic by AMQP 1.0" })
}

#[derive(Debug)]
struct Amqp1 {
    broker: Broker,
    address: String,
    login: Option<(String, String)>,
    window: u32,
    prefetch: u32,
}

/// Connection and session of a sender or a receiver.
#[derive(Debug)]
struct Open {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
}

fn connect(target: &Target, broker: Broker) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let prefetch = settings.take("prefetch", 100)?;
    settings.done()?;
    let address = target.endpoint(ENDPOINT).trim_start_matches("amqp://").to_owned();
    let login = target.user.clone().zip(target.password.clone());
    Ok(Arc::new(Amqp1 { broker, address, login, window, prefetch }))
}

/// Both brokers create a queue for an address with this capability.
fn queue() -> Array<Symbol> {
    Array::from(vec![Symbol::from("queue")])
}

impl Open {
    /// Ends the session, so that the broker has read everything written before.
    async fn close(mut self) -> Result<(), Failure> {
        self.session.end().await.map_err(Failure::unknown)?;
        self.connection.close().await.map_err(Failure::unknown)
    }
}

impl Amqp1 {
    async fn open(&self) -> Result<Open, Failure> {
        let endpoint = self.address.clone();
        let profile = match &self.login {
            None => SaslProfile::Anonymous,
            Some((username, password)) => {
                SaslProfile::Plain { username: username.clone(), password: password.clone() }
            }
        };
        let salt: u64 = rand::random();
        let url = format!("amqp://{}", self.address);
        let builder =
            Connection::builder().container_id(format!("bench-{salt:016x}")).sasl_profile(profile);
        let mut connection = match timeout(PATIENCE, builder.open(url.as_str())).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error @ OpenError::SaslError { .. })) => {
                let user = self.login.as_ref().map_or(String::new(), |(user, _)| user.clone());
                return Err(Failure::NotAllowed { endpoint, user, why: error.to_string() });
            }
            Ok(Err(error)) => {
                return Err(Failure::Unreachable { endpoint, why: error.to_string() });
            }
            Err(_) => {
                let why = format!("no answer within {PATIENCE:?}");
                return Err(Failure::Unreachable { endpoint, why });
            }
        };
        let session = Session::begin(&mut connection).await.map_err(Failure::unknown)?;
        Ok(Open { connection, session })
    }

    async fn empty(&self, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            let mut receiver = self.receiver(topology, &[destination], 0).await?;
            loop {
                let received = receiver.receive(EMPTYING).await?;
                if received.is_empty() {
                    break;
                }
                let settles: Vec<_> =
                    received.iter().map(|received| (received.id, Settle::Accept)).collect();
                receiver.settle(&settles).await?;
            }
            receiver.close().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for Amqp1 {
    fn about(&self) -> About {
        About {
            system: self.broker.system,
            title: self.broker.title,
            client: "fe2o3-amqp 0.18",
            sent_means: "the transfer was settled as accepted, after the journal was synced",
            hidden_means: "until the link ends",
            tiers: &[Tier::T0, Tier::T1, Tier::T3],
            styles: &[Style::Queue],
            lanes: Lanes::Single,
            returns: Return::Connection,
            subscriptions: false,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("prefetch", &self.prefetch),
            ("durable", &sender::is_durable(topology)),
        ])
    }

    /// The client does not expose the broker's version.
    async fn version(&self) -> Result<String, Failure> {
        self.open().await?.close().await?;
        Ok("not told by the client".to_owned())
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        self.empty(topology).await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.empty(topology).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let open = self.open().await?;
        Ok(Box::new(sender::Amqp1Sender::attach(open, topology, self.window).await?))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        _subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let open = self.open().await?;
        let queues: Vec<String> =
            destinations.iter().map(|&index| topology.destination(index)).collect();
        Ok(Box::new(receiver::Amqp1Receiver::attach(open, &queues, self.prefetch).await?))
    }
}
