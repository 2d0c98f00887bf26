//! Redis Streams (and Valkey): `XADD`, consumer groups, `XACK`.
//!
//! *Sent* means: the server replied to `XADD`. Its guarantee depends on `appendfsync`: `always` has
//! synced (T3), `everysec` has written to the page cache (T1), without an append-only file it is in
//! memory (T0). `create` queries the setting, and rejects a tier that does not hold.
//!
//! *Hiding*: an entry that `XREADGROUP` delivered to a consumer is pending there until `XACK`.
//! Entries of a dead consumer do not return by themselves. So every receiver takes over entries
//! that have been pending for a lease (`XAUTOCLAIM`); a release, and the end of a receiver, set an
//! entry's idle time to the lease (`XCLAIM .. IDLE`).
//!
//! A destination has `partitions` streams, by lane; one receiver gets a lane in order, several do
//! not. A settled message of a queue with one subscription is deleted (`XDEL`), others stay.
//!
//! Settings: `window`, `batch` (largest number of `XADD`s in one pipeline, 500), `database`.

mod receiver;
mod reply;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError};

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::told::{ms, named_values};
use crate::url::escaped;

const SYSTEM: &str = "redis";
const TITLE: &str = "Redis Streams";
const ENDPOINT: &str = "127.0.0.1:6379";
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Redis {
    client: redis::Client,
    endpoint: String,
    user: String,
    window: u32,
    batch: usize,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let batch = settings.take("batch", 500)?;
    let database: u32 = settings.take("database", 0)?;
    settings.done()?;
    let endpoint = target.endpoint(ENDPOINT).trim_start_matches("redis://").to_owned();
    let user = target.user.clone().unwrap_or_default();
    let who = target
        .password
        .as_ref()
        .map_or(String::new(), |password| format!("{}:{}@", escaped(&user), escaped(password)));
    let url = format!("redis://{who}{}/{database}", endpoint.trim_end_matches('/'));
    let client = redis::Client::open(url).map_err(|error| Failure::Unreachable {
        endpoint: endpoint.clone(),
        why: error.to_string(),
    })?;
    Ok(Arc::new(Redis { client, endpoint, user, window, batch }))
}

fn refused(error: RedisError) -> Failure {
    match error.kind() {
        ErrorKind::Io => Failure::unknown(error),
        _ => Failure::refused(error),
    }
}

/// The streams of a destination.
fn streams(topology: &Topology, destination: u32) -> Vec<String> {
    let name = topology.destination(destination);
    (0..topology.partitions.max(1)).map(|part| format!("{name}-{part}")).collect()
}

impl Redis {
    async fn open(&self) -> Result<MultiplexedConnection, Failure> {
        // A blocking read lasts as long as its own timeout.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(PATIENCE));
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| {
            let (endpoint, why) = (self.endpoint.clone(), error.to_string());
            match error.kind() {
                ErrorKind::AuthenticationFailed => {
                    Failure::NotAllowed { endpoint, user: self.user.clone(), why }
                }
                _ if why.contains("WRONGPASS") || why.contains("NOAUTH") => {
                    Failure::NotAllowed { endpoint, user: self.user.clone(), why }
                }
                _ => Failure::Unreachable { endpoint, why },
            }
        })
    }

    /// The tier of the server's settings.
    async fn held(&self, connection: &mut MultiplexedConnection) -> Result<Tier, Failure> {
        let get = redis::cmd("CONFIG").arg("GET").arg("append*").to_owned();
        let pairs: Vec<String> = get.query_async(connection).await.map_err(refused)?;
        let value = |name: &str| {
            pairs.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str())
        };
        Ok(match (value("appendonly"), value("appendfsync")) {
            (Some("yes"), Some("always")) => Tier::T3,
            (Some("yes"), _) => Tier::T1,
            _ => Tier::T0,
        })
    }
}

#[async_trait]
impl Driver for Redis {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "redis 1.8",
            sent_means: "the server answered XADD, after what its appendfsync says",
            hidden_means: "pending at the consumer; taken over when that is a lease old",
            tiers: &[Tier::T0, Tier::T1, Tier::T3],
            styles: &[Style::Queue, Style::Log],
            lanes: Lanes::Single,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: true,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[
            ("window", &self.window),
            ("batch", &self.batch),
            ("connection timeout", &ms(PATIENCE)),
            ("response timeout", &"none"),
            ("XADD", &"NOMKSTREAM"),
            ("XREADGROUP BLOCK", &ms(receiver::block(topology.lease))),
            ("XAUTOCLAIM each", &ms(receiver::look_every(topology.lease))),
            ("XDEL once settled", &receiver::deletes(topology)),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        let mut connection = self.open().await?;
        let info: String =
            redis::cmd("INFO").arg("server").query_async(&mut connection).await.map_err(refused)?;
        let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        match (value("valkey_version:"), value("redis_version:")) {
            (Some(valkey), _) => Ok(format!("Valkey {}", valkey.trim())),
            (_, Some(redis)) => Ok(redis.trim().to_owned()),
            _ => Err(Failure::unknown("the server does not say its version")),
        }
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        let mut connection = self.open().await?;
        let held = self.held(&mut connection).await?;
        if topology.tier > held {
            return Err(Failure::refused(format!(
                "{} ({}) was asked for, and the server's append-only file holds {held} ({})",
                topology.tier,
                topology.tier.meaning(),
                held.meaning()
            )));
        }
        self.remove(topology).await?;
        let mut pipe = redis::pipe();
        for destination in 0..topology.destinations {
            for stream in streams(topology, destination) {
                for subscription in 0..topology.subscriptions.max(1) {
                    let group = topology.subscription(subscription);
                    let create = pipe.cmd("XGROUP").arg("CREATE").arg(&stream);
                    create.arg(group).arg("0").arg("MKSTREAM").ignore();
                }
            }
        }
        pipe.query_async::<()>(&mut connection).await.map_err(refused)
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let mut connection = self.open().await?;
        let mut pipe = redis::pipe();
        for destination in 0..topology.destinations {
            for stream in streams(topology, destination) {
                pipe.cmd("DEL").arg(stream).ignore();
            }
        }
        pipe.query_async::<()>(&mut connection).await.map_err(refused)
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let streams = (0..topology.destinations).map(|index| streams(topology, index)).collect();
        let writer = sender::Writer { connection: self.open().await?, streams };
        Ok(Box::new(BatchingSender::spawn(writer, self.window, self.batch)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let named = destinations.iter().flat_map(|&index| streams(topology, index)).collect();
        let connection = self.open().await?;
        Ok(Box::new(receiver::RedisReceiver::new(connection, topology, named, subscription)))
    }
}
