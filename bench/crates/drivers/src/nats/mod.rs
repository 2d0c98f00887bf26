//! NATS: JetStream with durable pull consumers, and core NATS without storage.
//!
//! *Sent* means, on JetStream: the server acknowledged the publish. A file stream is then in the
//! page cache (T1), or synced if the server has `sync_interval: always` (T3); with three replicas
//! on a majority of them (T2, T4). The protocol does not report the interval. With the setting
//! `monitor=host:port` (the server's HTTP port) `create` looks it up and rejects a tier that does
//! not hold. Without it the user is responsible. T0 is a stream in memory. On core NATS: it was
//! written to the socket; connected subscribers then get it (T0).
//!
//! *Hiding*, on JetStream: a delivery belongs to the consumer until it is acknowledged or the ack
//! wait (the lease) ends. A release is a negative acknowledgement, and a closing receiver sends one
//! for each of its messages. Up to `prefetch` (200) deliveries are sent to the receiver in advance.
//! On core NATS nothing is hidden or redelivered.
//!
//! One receiver gets a destination in one order, several do not.
//!
//! Settings: `window`, `prefetch`, `max-ack-pending` (of a consumer, 1000 by default), `monitor`.

mod core;
mod jetstream;
mod monitor;
mod replication;

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use driver::{Driver, Failure, Target};

use crate::pending::WINDOW;

const ENDPOINT: &str = "127.0.0.1:4222";
const PATIENCE: Duration = Duration::from_secs(5);

/// Address and login of the server.
#[derive(Clone, Debug)]
struct Server {
    endpoints: Vec<String>,
    user: Option<String>,
    password: Option<String>,
}

pub(crate) fn connect_jetstream(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let options = jetstream::Options {
        window: settings.take("window", WINDOW)?,
        prefetch: settings.take("prefetch", 200)?,
        max_ack_pending: settings.take("max-ack-pending", 1000)?,
        monitor: settings.take("monitor", String::new())?,
    };
    settings.done()?;
    Ok(Arc::new(jetstream::JetStream { server: Server::of(target), options }))
}

pub(crate) fn connect_core(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let window = settings.take("window", WINDOW)?;
    settings.done()?;
    Ok(Arc::new(core::Core { server: Server::of(target), window }))
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::refused(error)
}

impl Server {
    fn of(target: &Target) -> Self {
        let endpoints = if target.endpoints.is_empty() {
            vec![ENDPOINT.to_owned()]
        } else {
            target.endpoints.clone()
        };
        Self { endpoints, user: target.user.clone(), password: target.password.clone() }
    }

    async fn open(&self) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new().name("postroad-bench").connection_timeout(PATIENCE);
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            options = options.user_and_password(user.clone(), password.clone());
        }
        options.connect(self.endpoints.as_slice()).await.map_err(|error| {
            let (endpoint, why) = (self.endpoints.join(","), error.to_string());
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    let user = self.user.clone().unwrap_or_default();
                    Failure::NotAllowed { endpoint, user, why }
                }
                _ => Failure::Unreachable { endpoint, why },
            }
        })
    }

    async fn version(&self) -> Result<String, Failure> {
        Ok(self.open().await?.server_info().version)
    }
}
