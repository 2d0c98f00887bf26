//! PostgreSQL as a queue: a table for each destination and subscription, `FOR UPDATE SKIP LOCKED`.
//!
//! *Sent* means: the transaction of the insert was committed. Its guarantee is set for each session
//! by `synchronous_commit`: `off` is T0 (a crash of the server loses unwritten data), `local` is T1
//! on a server with `fsync=off` and T3 on others, `remote_write` and `on` are T2 and T4 where the
//! server has synchronous standbys. `create` rejects a tier that does not hold.
//!
//! *Hiding*: a row has the time of its next delivery. A receiver moves it by the lease, in the
//! transaction that locks the row. A release, and the end of a receiver, move it to now. Settling
//! deletes the row.
//!
//! Rows are taken in no order, as in published tests, unless the test requires order: then by `id`,
//! which one receiver gets as it was sent.
//!
//! Settings: `window`, `batch` (largest number of rows in one insert, 500), `database`, `poll-ms`
//! (pause when there is no message, 10).

mod receiver;
mod sender;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use driver::{
    About, Driver, Failure, Lanes, Receiver, Return, Sender, Style, Target, Tier, Topology,
};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use crate::batching::BatchingSender;
use crate::pending::WINDOW;
use crate::tables::{TableReceiver, all_tables, table};
use crate::told::{ms, named_values};

const SYSTEM: &str = "postgres";
const TITLE: &str = "PostgreSQL, SKIP LOCKED";
const ENDPOINT: &str = "127.0.0.1:5432";
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Postgres {
    config: Config,
    endpoint: String,
    user: String,
    window: u32,
    batch: usize,
    poll: Duration,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    let batch = settings.take("batch", 500)?;
    let poll = Duration::from_millis(settings.take("poll-ms", 10)?);
    let database = settings.take("database", "postgres".to_owned())?;
    settings.done()?;
    let endpoint = target.endpoint(ENDPOINT).trim_start_matches("postgres://").to_owned();
    let unusable = |why: &str| Failure::Unreachable { endpoint: endpoint.clone(), why: why.into() };
    let (host, port) = endpoint.rsplit_once(':').ok_or_else(|| unusable("it is not host:port"))?;
    let port = port.parse().map_err(|_| unusable("its port is no number"))?;
    let user = target.user.clone().unwrap_or_else(|| "postgres".into());
    let mut config = Config::new();
    config.host(host).port(port).user(&user).dbname(&database).connect_timeout(PATIENCE);
    config.application_name("postroad-bench");
    if let Some(password) = &target.password {
        config.password(password);
    }
    Ok(Arc::new(Postgres { config, endpoint: endpoint.clone(), user, window, batch, poll }))
}

fn refused(error: tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(said) => Failure::refused(said.message()),
        None => Failure::unknown(error),
    }
}

/// Quotes a name, which may have dashes.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn synchronous_commit(tier: Tier) -> &'static str {
    match tier {
        Tier::T0 => "off",
        Tier::T1 | Tier::T3 => "local",
        Tier::T2 => "remote_write",
        Tier::T4 => "on",
    }
}

impl Postgres {
    async fn open(&self) -> Result<Client, Failure> {
        let (endpoint, user) = (self.endpoint.clone(), self.user.clone());
        let (client, connection) = match timeout(PATIENCE, self.config.connect(NoTls)).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                let said = error.as_db_error().map(|said| said.message().to_owned());
                let state = error.code();
                return Err(match said {
                    Some(why)
                        if state == Some(&SqlState::INVALID_PASSWORD)
                            || state == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) =>
                    {
                        Failure::NotAllowed { endpoint, user, why }
                    }
                    Some(why) => Failure::Refused(why),
                    None => {
                        let source = std::error::Error::source(&error);
                        let why = source.map_or_else(|| error.to_string(), ToString::to_string);
                        Failure::Unreachable { endpoint, why }
                    }
                });
            }
            Err(_) => {
                let why = format!("no answer within {PATIENCE:?}");
                return Err(Failure::Unreachable { endpoint, why });
            }
        };
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection ended: {error}");
            }
        });
        Ok(client)
    }

    async fn session(&self, topology: &Topology) -> Result<Client, Failure> {
        let client = self.open().await?;
        let level = synchronous_commit(topology.tier);
        let set = format!("SET synchronous_commit = {level}");
        client.batch_execute(&set).await.map_err(refused)?;
        Ok(client)
    }

    async fn check(&self, client: &Client, tier: Tier) -> Result<(), Failure> {
        let row = client
            .query_one(
                "SELECT current_setting('fsync'), current_setting('synchronous_standby_names')",
                &[],
            )
            .await
            .map_err(refused)?;
        let (fsync, standbys): (String, String) = (row.get(0), row.get(1));
        if tier.is_synced() && fsync != "on" {
            return Err(Failure::refused(format!(
                "{tier} was asked for, and the server has fsync=off"
            )));
        }
        if matches!(tier, Tier::T2 | Tier::T4) && standbys.is_empty() {
            return Err(Failure::refused(format!(
                "{tier} was asked for, and the server has no synchronous standbys"
            )));
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for Postgres {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "tokio-postgres 0.7",
            sent_means: "the transaction was committed, with the tier's synchronous_commit",
            hidden_means: "by the time of its next delivery, which taking it moves by the lease",
            tiers: &Tier::ALL,
            styles: &[Style::Queue],
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
            ("poll-ms", &self.poll.as_millis()),
            ("connect_timeout", &ms(PATIENCE)),
            ("synchronous_commit", &synchronous_commit(topology.tier)),
            ("STORAGE of bodies", &"EXTERNAL"),
        ])
    }

    async fn version(&self) -> Result<String, Failure> {
        let client = self.open().await?;
        let row = client.query_one("SHOW server_version", &[]).await.map_err(refused)?;
        Ok(row.get(0))
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        if topology.style == Style::Log {
            let what = "reading by position".into();
            return Err(Failure::Unsupported { system: SYSTEM, what });
        }
        let client = self.session(topology).await?;
        self.check(&client, topology.tier).await?;
        for name in all_tables(topology) {
            let (table, index) = (quoted(&name), quoted(&format!("{name}-next")));
            let statements = format!(
                "DROP TABLE IF EXISTS {table};
                 CREATE TABLE {table} (
                     id bigserial PRIMARY KEY,
                     body bytea NOT NULL,
                     next_delivery timestamptz NOT NULL,
                     deliveries int NOT NULL DEFAULT 0);
                 ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL;
                 CREATE INDEX {index} ON {table} (next_delivery);"
            );
            client.batch_execute(&statements).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let client = self.open().await?;
        for name in all_tables(topology) {
            let drop = format!("DROP TABLE IF EXISTS {}", quoted(&name));
            client.batch_execute(&drop).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let client = self.session(topology).await?;
        let writer = sender::Writer::prepare(client, topology).await?;
        Ok(Box::new(BatchingSender::spawn(writer, self.window, self.batch)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let client = Arc::new(self.session(topology).await?);
        let mut tables = Vec::with_capacity(destinations.len());
        for &destination in destinations {
            let name = quoted(&table(topology, destination, subscription));
            tables.push(receiver::PostgresTable::prepare(&client, topology, &name).await?);
        }
        Ok(Box::new(TableReceiver::new(tables, self.poll)))
    }
}
